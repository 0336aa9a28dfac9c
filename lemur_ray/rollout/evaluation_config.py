"""Configuration of an evaluation: its command-line flags, and the settings that its scores depend on.

The flags of a single benchmark are its ``options``, of a type of its own. Knows no benchmark, no task and no pool.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from lemur_ray.agents.endpoint import parse_json_object
from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import Task
from lemur_ray.rollout.attempt import EpisodeLimits, Prices

A_WEEK_S = 7 * 86_400.0
"""How long a person may take for one reply."""

Options = TypeVar("Options")


@dataclass(frozen=True)
class EvalConfig(Generic[Options]):
    """Play a benchmark's tasks with a policy; the same command again resumes."""

    options: Options
    benchmark: str
    """family/variant, for example intercode/sql, or module:object; --help after it shows its own flags, too."""
    policy: str = "checkpoint"
    """openai:URL, checkpoint[:RUN] (a run folder or its name under LEMUR_HOME/runs; the newest by default),
    handle[:RUN] (the same, asked for token ids inside the cluster, no HTTP), replay:FILE, ledger:DIR or replies:FILE
    (replies that are there, graded again), human, random or expert."""
    policy_model: str = ""
    """Model name at an openai endpoint. Empty: the one it serves. Of a ledger: which of its policies."""
    policy_key_env: str = ""
    """Environment variable that holds the endpoint's key; NAME_FILE may name a file that does. Empty: OPENAI_API_KEY,
    for OpenAI's own endpoint or that of OPENAI_BASE_URL alone."""
    policy_api: Literal["chat", "completions"] = "chat"
    """completions: a base model, which is shown the conversation as one text (Human: and Assistant:)."""
    policy_body: str = ""
    """JSON object of further fields of every request to an openai endpoint; null leaves one of ours out. It is kept
    with the results: no keys in it."""
    policy_token_field: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto"
    """What bounds a reply in a request. auto: max_tokens, or the other where the endpoint asks for it."""
    resend_reasoning: bool = False
    """Send a model what it thought in earlier turns, where its endpoint tells."""
    teacher_key_env: str = ""
    """Environment variable that holds the key of the endpoint that environments ask (a simulated user)."""
    teacher_body: str = ""
    """Further fields of every request to that one; see policy_body."""
    out: str = ""
    """Folder for episodes.jsonl, report.json and index.html; one in a bucket, gs:// or s3://, too. Empty:
    LEMUR_HOME/episodes/<benchmark>-<policy>."""
    data: str = field(default_factory=lambda: os.environ.get("LEMUR_DATA", ""))
    """Folder of outside data sets (default $LEMUR_DATA, else LEMUR_HOME/data)."""
    limit: int = 0
    """Number of tasks. 0: as many as the benchmark has by default, mostly all."""
    tasks: str = ""
    """Which tasks: ids, places A:B (10:20 are the eleventh to the twentieth) or @FILE of those, parted by commas."""
    sample: Literal["strata", "first"] = "strata"
    """Which tasks --limit leaves: of every category its share, the same for every policy; or the first ones."""
    sample_seed: int = 0
    """Another one draws another sample."""
    epochs: int = 1
    """Times each task is played, each with seeds of its own."""
    in_flight: int = 32
    """Episodes played at the same time."""
    actors: int = 2
    """Ray actors they are spread over, at most: as many as hosts have room for, and more as hosts come. 0: threads in
    this process, no Ray."""
    actor_cpus: float = 0.0
    """CPUs that each actor asks Ray for. 0: what its episodes take, and little where there is a single host."""
    prompt: Literal["auto", "full", "brief"] = "auto"
    """How much a model is told. auto: brief for a model that we serve, here or at an endpoint, full for others."""
    chat_template: str = ""
    """File with the Jinja template of chats for a checkpoint or handle, or chatml. Empty: the model's own."""
    replay: Literal["auto", "strict", "grading"] = "auto"
    """A replay carries out the recorded actions (strict), or grades the recorded results (grading). auto: grading where
    submissions alone are worth anything, else strict."""
    max_tokens: int = 0
    """Tokens of one reply. 0: the benchmark's own limit."""
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    """Of the likeliest tokens, as many as have this probability together are drawn from."""
    seed: int = 0
    """Enters the sampling seed of every turn."""
    patience_s: float = 240.0
    """Seconds that one reply of an endpoint may take, and that one may fail to come before its episode is given up and
    tried again."""
    step_s: float = 60.0
    """Seconds one step of an environment may take, no fewer than its benchmark's own limits need; a simulated user or a
    search that it asks takes its own time."""
    episode_tokens: int = 0
    """Tokens of an episode, prompts and replies together: with so many it gets no further turn (token_limit)."""
    episode_s: float = 0.0
    """Seconds that a model and its environment may work on an episode, waiting not counted (time_limit)."""
    episode_cost: float = 0.0
    """What the policy's tokens of an episode may cost by price_in and price_out (cost_limit)."""
    price_in: float = 0.0
    """Price of a million prompt tokens, in any currency. With price_out 0 too, no cost is shown."""
    price_out: float = 0.0
    """Price of a million tokens of replies."""
    teacher_price_in: float = 0.0
    """The same of the endpoint that environments ask, whose cost is counted apart."""
    teacher_price_out: float = 0.0
    """The same of its replies."""

    def __post_init__(self) -> None:
        """Raises ValueError that names the flag, its value and what was expected."""
        from_0 = dict.fromkeys(("limit", "actors", "max_tokens", "episode_tokens"), 0)
        for name, least in (from_0 | {"epochs": 1, "in_flight": 1}).items():
            if (value := getattr(self, name)) < least:
                raise ValueError(f"--{name.replace('_', '-')} {value}: expected {least} or more")
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"--temperature {self.temperature:g}: expected 0 (greedy) or a finite number above it")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"--top-p {self.top_p:g}: expected a number above 0, at most 1")
        for name in ("price_in", "price_out", "teacher_price_in", "teacher_price_out", "episode_cost", "episode_s"):
            if not 0 <= (number := getattr(self, name)) < math.inf:
                what = "seconds" if name.endswith("_s") else "a price"
                raise ValueError(f"--{name.replace('_', '-')} {number:g}: expected {what} of 0 or more")
        if not 0 <= self.actor_cpus < math.inf:
            raise ValueError(f"--actor-cpus {self.actor_cpus:g}: expected a number of processors, 0 or more")
        if self.episode_cost and not self.price_in + self.price_out:
            raise ValueError(f"--episode-cost {self.episode_cost:g}: expected --price-in and --price-out with it")
        for name in ("policy_body", "teacher_body"):
            if body := getattr(self, name):
                parse_json_object(body, f"--{name.replace('_', '-')}")
        for name in ("patience_s", "step_s"):
            if not 0 < (seconds := getattr(self, name)) < math.inf:
                raise ValueError(f"--{name.replace('_', '-')} {seconds:g}: expected a finite number of seconds above 0")

    @property
    def by_hand(self) -> bool:
        """Whether a person at the terminal plays, one episode at a time in this process."""
        return self.policy == "human"

    @property
    def num_actors(self) -> int:
        """Number of Ray actors, 0 for threads in this process."""
        return 0 if self.by_hand else self.actors

    @property
    def prices(self) -> Prices:
        return Prices(self.price_in, self.price_out, self.teacher_price_in, self.teacher_price_out)

    @property
    def limits(self) -> EpisodeLimits:
        """Limits of every episode. A reply may take an hour longer than the policy's own patience (a person: a week).

        Waits for a free request slot, and waits that the endpoint requests, do not count (``external_calls.waiting``).
        """
        return EpisodeLimits(
            step_s=self.step_s,
            policy_s=A_WEEK_S if self.by_hand else self.patience_s + 3600.0,
            tokens=self.episode_tokens,
            time_s=self.episode_s,
            cost=self.episode_cost,
            prices=self.prices,
        )


@dataclass(frozen=True)
class Settings:
    """The settings of a configuration that scores depend on, for any policy."""

    sampling: Sampling
    values: Mapping[str, Any]

    @property
    def hash(self) -> str:
        """Recipe hash in the key of every episode, 16 hex digits."""
        return hashlib.sha256(json.dumps(dict(self.values), sort_keys=True).encode()).hexdigest()[:16]


_HASHED_IF_CHANGED = (
    *("policy_api", "policy_body", "resend_reasoning", "teacher_body", "top_p"),
    *("episode_tokens", "episode_s", "episode_cost"),
)
"""Fields that scores depend on but earlier versions lack. Hashed only if changed, so that old hashes stay valid."""


def settings_of(
    config: EvalConfig[Any],
    prompt: str,
    max_tokens: int,
    tasks: Sequence[Task],
    identity: Mapping[str, Any],
    stop: tuple[str, ...] = (),
    recording: str = "",
    replies: str = "",
) -> Settings:
    """Settings of ``config`` for the recipe hash.

    ``prompt``, ``max_tokens``, ``stop``: the benchmark's. ``identity``: values of its options that scores depend on.
    ``recording``, ``replies``: the file that is replayed or graded; its content is part of the hash.
    """
    length = config.max_tokens or max_tokens
    sampling = Sampling(length, config.temperature, config.top_p, seed=config.seed, stop=stop)
    data = sorted({str(task.options["database_id"]) for task in tasks if "database_id" in task.options})
    values = {"prompt": prompt, "max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
    values |= {"seed": sampling.seed, "data": data, **identity}
    for name in _HASHED_IF_CHANGED:
        if getattr(config, name) != getattr(EvalConfig, name):
            values[name] = getattr(config, name)
    if config.episode_cost:
        values |= {"price_in": config.price_in, "price_out": config.price_out}
    if config.chat_template:
        file = Path(config.chat_template).expanduser()
        template = hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else config.chat_template
        values["chat_template"] = template
    if recording:
        values["recording"] = hashlib.sha256(Path(recording).read_bytes()).hexdigest()[:16]
    if replies:
        values["replies"] = hashlib.sha256(Path(replies).read_bytes()).hexdigest()[:16]
    return Settings(sampling, values)
