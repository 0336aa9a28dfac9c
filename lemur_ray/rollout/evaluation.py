"""One evaluation from its configuration: where it writes, what identifies it, and how it is run to its end.

Gets tasks, a policy and a pool handed in; knows no benchmark, no server and no Ray.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from lemur_ray.agents.messages import Policy, PolicyUnreachable, Sampling
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger, LedgerError
from lemur_ray.rollout.policy_target import EvaluationError
from lemur_ray.rollout.progress import Prices, Progress
from lemur_ray.rollout.runner import Retries, plan_orders, run_orders
from lemur_ray.rollout.threads import NoPool, Pool, PoolBroken, ThreadPool

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


def remember(out: Path, settings: Settings, config: EvalConfig) -> None:
    """Keep in ``evaluations.json`` what a recipe hash stands for: replays and exports build the tasks from it again."""
    known = recalled(out)
    same = known.setdefault(settings.hash, {"settings": dict(settings.values), "configs": []})
    without_password = {**asdict(config), "engine": config.engine_kind}
    if without_password not in same["configs"]:
        same["configs"].append(without_password)
        replace_file(out / "evaluations.json", json.dumps(known, indent=1) + "\n")


def recalled(out: Path) -> dict[str, dict[str, Any]]:
    """Recipe hash -> settings of the evaluations in a folder, and every configuration that had them (with other limits
    for example). Raises EvaluationError."""
    path = out / "evaluations.json"
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise EvaluationError(f"{path} is not JSON ({error}); remove it and run the evaluation again") from error


def replace_file(path: Path, text: str) -> None:
    """Write a whole file or none of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


def prepare_out(folder: str) -> Path:
    """The output folder, made and proven writable. Raises EvaluationError."""
    if "://" in folder:
        raise EvaluationError(f"--out {folder}: episodes and pages are written to local files; give a local folder")
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        if (path / "episodes.jsonl").exists() and not os.access(path / "episodes.jsonl", os.W_OK):
            raise PermissionError("episodes.jsonl there is read-only")
    except OSError as error:
        raise EvaluationError(f"--out {folder} is not writable ({error}); choose another folder") from error
    return path


def run_evaluation(
    config: EvalConfig,
    tasks: Sequence[Task],
    policy: str,
    settings: Settings,
    out: Path,
    make_pool: Callable[[], AbstractContextManager[Pool]],
) -> list[Episode]:
    """Play everything that has no score in the ledger in ``out``; the episodes of all tasks and epochs.

    ``make_pool`` is called only if there is something to play: a finished evaluation starts no server and no Ray.
    """
    if not tasks:
        raise EvaluationError(f"{config.benchmark}: no tasks, so nothing to evaluate")
    limits = EpisodeLimits(step_s=config.step_s, policy_s=config.reply_s)
    orders = plan_orders(
        tasks, epochs=config.epochs, policy=policy, recipe=settings.hash, sampling=settings.sampling, limits=limits
    )
    with Ledger(out / "episodes.jsonl") as ledger:
        remember(out, settings, config)
        if ledger.repaired:
            print(ledger.repaired, file=sys.stderr, flush=True)
        with contextlib.ExitStack() as stack:
            finished = all(ledger.settled(order.key) for order in orders)
            pool = NoPool() if finished else stack.enter_context(make_pool())
            prices = Prices(config.price_in, config.price_out)
            every_s = math.inf if config.by_hand else 10.0
            progress = Progress(sys.stderr, time.monotonic, label=config.benchmark, every_s=every_s, prices=prices)
            return run_orders(orders, pool, ledger, retries=Retries(), progress=progress, clock=time.monotonic)


def say_missing(episodes: Sequence[Episode]) -> None:
    """Say why episodes have no score, each reason once, the most frequent first."""
    reasons = Counter(
        episode.detail.strip().splitlines()[-1][:500]
        for episode in episodes
        if episode.detail.strip() and not episode.outcome.scored
    )
    for reason, count in reasons.most_common(3):
        print(f"{count} without a score: {reason}", file=sys.stderr, flush=True)


def say_overflow(episodes: Sequence[Episode]) -> None:
    """Warn on stderr where episodes ended because the conversation did not fit the model before it really began."""
    early = [e for e in episodes if e.outcome is Outcome.CONTEXT_OVERFLOW and len(e.trajectory.steps) <= 1]
    if early:
        print(
            f"{len(early)} of {len(episodes)} episodes did not fit the model's context after at most one turn, so "
            "their 0 says nothing of its skill: give it a shorter prompt (--prompt brief) or replies (--max-tokens)",
            file=sys.stderr,
            flush=True,
        )


def default_out(benchmark: str, label: str) -> str:
    """Where an evaluation is written under LEMUR_HOME."""
    return f"episodes/{benchmark.replace('/', '-')}-{re.sub(r'[^A-Za-z0-9.@_-]+', '-', label)}"


def pool_of(config: EvalConfig, policy: Callable[[], Policy]) -> Pool:
    """The pool a configuration asks for; actors need a connected Ray."""
    if not config.num_actors:
        return ThreadPool(policy(), 1 if config.by_hand else config.in_flight)
    from lemur_ray.rollout.pool import RayPool  # the only road to Ray, taken only where actors are asked for

    per_actor = math.ceil(config.in_flight / config.actors)
    return RayPool(policy, num_actors=config.actors, episodes_per_actor=per_actor)


@dataclass
class End:
    """How a job ended, as an exit code."""

    code: int = 0

    def say(self, headline: Mapping[str, Any]) -> None:
        """Print the JSON line that ends a job. An evaluation in which nothing was scored measured nothing: code 1."""
        print(json.dumps(headline, allow_nan=False), flush=True)
        if headline["scored"] == 0:
            self.code = 1
            why = ", ".join(f"{count} by {blame}" for blame, count in headline["missing_by_blame"].items())
            print(
                f"nothing was scored ({why}), so there is no rate; episodes.jsonl says what went wrong, and the same "
                "command plays them again",
                file=sys.stderr,
                flush=True,
            )


@contextlib.contextmanager
def ending_well(job: str) -> Iterator[End]:
    """What may go wrong becomes one line on stderr and an exit code: 1, or 130 where the run was stopped.

    SIGTERM (``ray job stop``) stops a run as Ctrl-C does: resumable, and with everything given back.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    end = End()
    try:
        yield end
    except (EvaluationError, LedgerError, PoolBroken, PolicyUnreachable, ValueError, OSError) as error:
        print(f"{job}: {error}", file=sys.stderr, flush=True)
        end.code = 1
    except KeyboardInterrupt:
        print(f"{job}: stopped; the same command goes on where it left off", file=sys.stderr, flush=True)
        end.code = 130
    finally:
        signal.signal(signal.SIGTERM, before)
