"""Configuration of an evaluation: its command-line flags, and the settings that its scores depend on.

Flags that only one benchmark has are in ``options``, of a class of that benchmark."""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from lemur_ray.agents.endpoint import AUTO_THINKING, parse_json_object
from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import Task
from lemur_ray.config import topics
from lemur_ray.rollout.attempt import EpisodeLimits, Prices

A_WEEK_S = 7 * 86_400.0
"""Seconds that a person may take for one reply."""

Options = TypeVar("Options")


@dataclass(frozen=True)
class EvalConfig(Generic[Options]):
    """Play a benchmark's tasks with a policy; the same command again resumes."""

    HELP = topics("eval")
    HELP_MORE: ClassVar[Mapping[str, str]] = {
        "--list": "List all benchmarks, what they need, and what of it is missing here.",
        "--suite NAME": "Play the benchmarks of a table of the paper, table3 to table7, or paper; --without NAME,...",
        "--protocol published": "Set what the benchmark's published protocol prescribes.",
        "--view [PORT]": "Serve the report and the turns of running episodes meanwhile (port 8009).",
        "--check-gold": "Play the reference answers of a benchmark, or of all.",
    }
    options: Options
    benchmark: str
    """family/variant, for example intercode/sql, module:object, gym:MODULE:ID or harbor:FOLDER; --help after it shows
    its own flags, too."""
    policy: str = "checkpoint"
    """openai:URL, checkpoint[:RUN], handle[:RUN], replay:FILE, ledger:DIR, replies:FILE, function:MODULE:NAME, human,
    noop, random or expert. RUN is a run folder or its name under LEMUR_HOME/runs, the newest by default; handle asks it
    by token ids inside the cluster, without HTTP. ledger and replies grade existing replies again. function is a Python
    function, noop gives empty replies."""
    policy_model: str = ""
    """Model name at an openai endpoint; empty: the only one that it serves. With ledger:DIR, name of the policy."""
    policy_key_env: str = ""
    """Name of the environment variable with the endpoint's key. NAME_FILE may have the path of a file with it. Empty:
    OPENAI_API_KEY, only for OpenAI's endpoint or that of OPENAI_BASE_URL."""
    policy_api: Literal["chat", "completions"] = "chat"
    """completions: for a base model, which gets the conversation as one text (Human: and Assistant:)."""
    policy_body: str = ""
    """JSON object of further fields of every request to an openai endpoint; null removes a standard field. It is stored
    with the results, so it must contain no keys."""
    policy_token_field: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto"
    """Request field of the reply's token limit. auto: max_tokens, or max_completion_tokens on demand."""
    resend_reasoning: bool = False
    """Send a model its reasoning of earlier turns, if its endpoint returned it."""
    teacher_key_env: str = ""
    """Name of the environment variable with the key of the endpoint that environments call (a simulated user)."""
    teacher_body: str = ""
    """JSON object of further fields of every request to that endpoint; see policy_body."""
    out: str = ""
    """Folder for episodes and report, local or in a bucket (gs://, s3://). Empty:
    LEMUR_HOME/episodes/<benchmark>-<policy>."""
    data: str = field(default_factory=lambda: os.environ.get("LEMUR_DATA", ""))
    """Folder of outside data sets (default $LEMUR_DATA, else LEMUR_HOME/data)."""
    limit: int = 0
    """Number of tasks, 0 for the benchmark's default, usually all."""
    tasks: str = ""
    """Tasks to play: ids, ranges A:B (10:20 is the eleventh to the twentieth) or @FILE of those, with commas."""
    sample: Literal["strata", "first"] = "strata"
    """How --limit selects tasks: strata: a share of every category, the same for every policy; or the first ones."""
    sample_seed: int = 0
    """Seed of the sample that --limit draws."""
    epochs: int = 1
    """Number of times that each task is played, each time with other seeds."""
    in_flight: int = 32
    """Maximum number of episodes played at the same time."""
    actors: int | None = None
    """Maximum number of Ray actors that play them; fewer run while hosts lack room. 0: threads in this process, without
    Ray. None: threads, or 2 actors if a cluster is there, or if episodes run programs or browsers."""
    actor_cpus: float = 0.0
    """CPUs that each actor requests from Ray. 0: what its episodes need, or little on a single host."""
    prompt: Literal["auto", "full", "brief"] = "auto"
    """Length of the instructions. auto: brief for models that this project serves, here or at an endpoint, full for
    others."""
    chat_template: str = ""
    """Chat template for a checkpoint or handle: a Jinja file, or chatml. Empty: the model's own."""
    replay: Literal["auto", "strict", "grading"] = "auto"
    """A replay executes the recorded actions (strict), or only grades the recorded submissions (grading). auto: the
    benchmark's default, mostly strict."""
    max_tokens: int = 0
    """Earlier name of reply_tokens."""
    reply_tokens: int = 0
    """Maximum tokens of one reply, without the reasoning before it, 0 for the benchmark's limit."""
    thinking_tokens: int = AUTO_THINKING
    """Maximum tokens of a chat model's reasoning before one reply. -1: 16384 once a reply shows that it reasons."""
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    top_p: float = 1.0
    """Sample from the smallest set of likeliest tokens whose probabilities add up to this (nucleus sampling)."""
    seed: int = 0
    """Part of the sampling seed of every turn."""
    patience_s: float = 240.0
    """Maximum seconds for one reply of an endpoint, with all repeated requests; then the episode is tried again."""
    step_s: float = 60.0
    """Maximum seconds of one step of an environment, without its external calls (a simulated user, a search); not below
    the benchmark's minimum."""
    episode_tokens: int = 0
    """Maximum tokens of an episode, prompts and replies together, after which it gets no further turn (token_limit). 0:
    none."""
    episode_s: float = 0.0
    """Maximum seconds of model and environment for an episode, without waits (time_limit). 0: none."""
    episode_cost: float = 0.0
    """Maximum cost of the policy's tokens of an episode by price_in and price_out (cost_limit). 0: none."""
    price_in: float = 0.0
    """Price of a million prompt tokens of the policy, in any currency. If all prices are 0, no cost is shown."""
    price_out: float = 0.0
    """Price of a million reply tokens of the policy."""
    teacher_price_in: float = 0.0
    """Price of a million prompt tokens of the endpoint that environments call, whose cost is shown separately."""
    teacher_price_out: float = 0.0
    """Price of a million reply tokens of that endpoint."""

    def __post_init__(self) -> None:
        """Raise ValueError, with the flag, its value and the expected one, for an invalid value."""
        from_0 = dict.fromkeys(("limit", "actors", "max_tokens", "reply_tokens", "episode_tokens"), 0)
        for name, least in (from_0 | {"epochs": 1, "in_flight": 1, "thinking_tokens": AUTO_THINKING}).items():
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"--{name.replace('_', '-')} {value}: expected {least} or more")
        if self.max_tokens and self.reply_tokens not in (0, self.max_tokens):
            raise ValueError(f"--max-tokens {self.max_tokens}: expected --reply-tokens alone, its present name")
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
        """Whether the policy is a person at the terminal, who plays one episode at a time in this process."""
        return self.policy == "human"

    @property
    def prices(self) -> Prices:
        return Prices(self.price_in, self.price_out, self.teacher_price_in, self.teacher_price_out)

    @property
    def limits(self) -> EpisodeLimits:
        """Limits of every episode. A reply may take an hour longer than the policy's own patience (a person: a week).
        Waits for a request slot and pauses that an endpoint demands do not count (``external_calls.excluded_wait``)."""
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
    """The settings of an evaluation that its scores depend on, whatever the policy. ``sampling``: options of requests;
    ``values``: all settings as JSON values."""

    sampling: Sampling
    values: Mapping[str, Any]

    @property
    def hash(self) -> str:
        """Recipe hash of ``values``, 16 hex digits, which is part of every episode's key."""
        return hashlib.sha256(json.dumps(dict(self.values), sort_keys=True).encode()).hexdigest()[:16]


_HASHED_IF_CHANGED = (
    *("policy_api", "policy_body", "resend_reasoning", "thinking_tokens", "teacher_body", "top_p"),
    *("episode_tokens", "episode_s", "episode_cost"),
)
"""Fields that scores depend on but earlier versions lack: hashed only if not the default, so that old hashes stay
valid."""


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
    """The settings of ``config`` that scores depend on, for the recipe hash. ``prompt``, ``max_tokens``, ``stop``: the
    benchmark's. ``tasks``: for digests of their data. ``identity``: options of the benchmark that scores depend on.
    ``recording``, ``replies``: file to replay or grade, whose content counts."""
    length = config.reply_tokens or config.max_tokens or max_tokens
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
