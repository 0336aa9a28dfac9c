"""What an evaluation is asked to do: its command line, and what of it changes the numbers.

Knows no task and no pool.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import Task

A_WEEK_S = 7 * 86_400.0


@dataclass(frozen=True)
class EvalConfig:
    """Play a benchmark's tasks with a policy; the same command again resumes."""

    benchmark: str = "alfworld/text"
    """alfworld/text, intercode/ with sql, bash, python, ctf, or mint/ with gsm8k, math, theoremqa, hotpotqa, mmlu,
    humaneval, mbpp, alfworld."""
    policy: str = "checkpoint"
    """openai:URL, checkpoint[:RUN] (a run folder or its name under LEMUR_HOME/runs; the newest by default),
    handle[:RUN] (the same, asked for token ids inside the cluster, no HTTP), replay:FILE, human, random or expert."""
    policy_model: str = ""
    """Model name at an openai endpoint. Empty: the one it serves."""
    out: str = ""
    """Folder for episodes.jsonl, report.json and index.html. Empty: LEMUR_HOME/episodes/<benchmark>-<policy>."""
    data: str = field(default_factory=lambda: os.environ.get("LEMUR_DATA", ""))
    """Folder of outside data sets (default $LEMUR_DATA). Without one, intercode/sql asks about a sample database."""
    limit: int = 0
    """Number of tasks, the first ones. 0: 120 generated ALFWorld games, or all there are."""
    epochs: int = 1
    """Times each task is played, each with seeds of its own."""
    in_flight: int = 32
    """Episodes played at the same time."""
    actors: int = 2
    """Ray actors they are spread over. 0: threads in this process, no Ray."""
    split: Literal["heldout", "train", "novel_object"] = "heldout"
    """alfworld/text: which generated games. Solved games of train may become training data (jobs/export_sft.py)."""
    prompt: Literal["auto", "full", "brief"] = "auto"
    """How much a model is told. auto: brief for a model that we serve, here or at an endpoint, full for others."""
    reward: Literal["iou", "tau"] = "iou"
    """InterCode-SQL: overlap of rows, or overlap times agreement of order."""
    handicap: bool = False
    """InterCode-SQL: tell the model all tables and columns."""
    engine: str = "sqlite"
    """InterCode-SQL: sqlite, or mysql:URL of a MySQL or MariaDB, for example mysql://user:password@127.0.0.1:3306."""
    compat: bool = False
    """InterCode: repeat upstream's quirks, to compare with published numbers."""
    replay: Literal["auto", "strict", "grading"] = "auto"
    """A replay carries out the recorded actions (strict), or grades the recorded results (grading). auto: grading for
    CTF and MINT, whose submissions alone are worth anything, else strict."""
    sandbox: Literal["bwrap", "docker"] = "bwrap"
    """Where code of a model runs: bubblewrap, or a Docker engine on each actor's machine (docs/guides/sandbox.md)."""
    rootfs: str = ""
    """InterCode-Bash: a root file system for its sandbox. Empty: /usr of this machine."""
    grader: Literal["auto", "mint-2023", "strict"] = "auto"
    """MINT: which verdict ends an episode; both are always reported. auto: mint-2023 for a replay, else strict."""
    option_rule: Literal["legacy", "head"] = "legacy"
    """MINT, TheoremQA under mint-2023: as in the recorded runs, or as since 2023-10-11."""
    feedback: Literal["none", "textual", "binary"] = "none"
    """MINT: what a simulated user says after every turn."""
    teacher: str = ""
    """MINT: who that is, openai:URL#MODEL or log:FILE. In a replay the recorded one."""
    ground_truth: bool = False
    """MINT: the simulated user knows the solution."""
    wikipedia: str = "none"
    """MINT: what the search tool asks: none, live, index:FILE, answers:FILE. In a replay the recorded answers."""
    parser: Literal["tags", "lenient"] = "tags"
    """MINT: lenient also takes fenced code and CodeLlama's tag for code to run."""
    max_tokens: int = 0
    """Tokens of one reply. 0: the benchmark's own limit."""
    temperature: float = 0.0
    """0 is greedy."""
    seed: int = 0
    """Enters the sampling seed of every turn."""
    patience_s: float = 240.0
    """Seconds an endpoint may fail to answer one request before the episode is given up and tried again."""
    step_s: float = 60.0
    """Seconds one step of an environment may take."""
    price_in: float = 0.0
    """Price of a million prompt tokens, in any currency. With price_out 0 too, no cost is shown."""
    price_out: float = 0.0
    """Price of a million tokens of replies."""

    def __post_init__(self) -> None:
        """Raises ValueError that names the setting, what was found and what was expected."""
        for name, least in (("limit", 0), ("epochs", 1), ("in_flight", 1), ("actors", 0), ("max_tokens", 0)):
            if (found := getattr(self, name)) < least:
                raise ValueError(f"--{name.replace('_', '-')} {found}: expected {least} or more")
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"--temperature {self.temperature:g}: expected 0 (greedy) or a finite number above it")
        for name in ("price_in", "price_out"):
            if not 0 <= (price := getattr(self, name)) < math.inf:
                raise ValueError(f"--{name.replace('_', '-')} {price:g}: expected a price of 0 or more")
        for name in ("patience_s", "step_s"):
            if not 0 < (seconds := getattr(self, name)) < math.inf:
                raise ValueError(f"--{name.replace('_', '-')} {seconds:g}: expected a finite number of seconds above 0")

    @property
    def engine_kind(self) -> str:
        """The engine without its address and password."""
        return self.engine.partition(":")[0]

    @property
    def by_hand(self) -> bool:
        """Whether a person at the terminal plays: then one episode at a time, in this process."""
        return self.policy == "human"

    @property
    def num_actors(self) -> int:
        """Ray actors, 0 for threads in this process."""
        return 0 if self.by_hand else self.actors

    @property
    def reply_s(self) -> float:
        """The last resort against a policy that never answers: beyond its own patience and any wait for a place."""
        return A_WEEK_S if self.by_hand else self.patience_s + 3600.0

    @property
    def judged_by(self) -> str:
        """MINT's grader, with ``auto`` decided."""
        if self.grader != "auto":
            return self.grader
        return "mint-2023" if self.policy.startswith("replay:") else "strict"


@dataclass(frozen=True)
class Settings:
    """What of a configuration changes the numbers, for any policy."""

    sampling: Sampling
    values: Mapping[str, Any]

    @property
    def hash(self) -> str:
        """16 hex digits: the recipe in the key of every episode."""
        return hashlib.sha256(json.dumps(dict(self.values), sort_keys=True).encode()).hexdigest()[:16]


def settings_of(
    config: EvalConfig,
    prompt: str,
    max_tokens: int,
    tasks: Sequence[Task],
    names: Sequence[str],
    stop: tuple[str, ...] = (),
    recording: str = "",
) -> Settings:
    """``names``: fields of the configuration that matter for this benchmark alone. ``stop``: where its replies end.
    ``recording``: the file that is replayed, whose content belongs to what is measured."""
    length = config.max_tokens or max_tokens
    sampling = Sampling(max_tokens=length, temperature=config.temperature, seed=config.seed, stop=stop)
    data = sorted({str(task.options["database_id"]) for task in tasks if "database_id" in task.options})
    values = {"prompt": prompt, "max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
    values |= {"seed": sampling.seed, "data": data, **{name: getattr(config, name) for name in names}}
    if recording:
        values["recording"] = hashlib.sha256(Path(recording).read_bytes()).hexdigest()[:16]
    return Settings(sampling, values)
