"""Task, Step, Trajectory and Episode: the frozen records of an evaluation, with an exact JSON round trip."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from lemur_ray.agents.messages import Cut, Message, ToolCall, parse_tool_calls, turn_messages


class Blame(StrEnum):
    """Who is responsible for an outcome: policy, environment, machine (infra) or this project (harness)."""

    POLICY = "policy"
    ENV = "env"
    INFRA = "infra"
    HARNESS = "harness"


class Outcome(StrEnum):
    """How an episode ended."""

    SOLVED = "solved"
    FAILED = "failed"
    INVALID_ACTIONS = "invalid_actions"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    COST_LIMIT = "cost_limit"
    CONTEXT_OVERFLOW = "context_overflow"
    SANDBOX_DESTROYED = "sandbox_destroyed"
    ENV_ERROR = "env_error"
    INFRA_LOST = "infra_lost"
    POLICY_UNREACHABLE = "policy_unreachable"
    HARNESS_BUG = "harness_bug"

    @property
    def blame(self) -> Blame:
        return _BLAME.get(self, Blame.POLICY)

    @property
    def scored(self) -> bool:
        """Whether the policy is responsible for this outcome; other episodes are retried, then reported missing."""
        return self.blame is Blame.POLICY


_BLAME = {
    Outcome.ENV_ERROR: Blame.ENV,
    Outcome.INFRA_LOST: Blame.INFRA,
    Outcome.POLICY_UNREACHABLE: Blame.INFRA,
    Outcome.HARNESS_BUG: Blame.HARNESS,
}


@dataclass(frozen=True)
class Task:
    """One task of a benchmark. ``options`` is what ``env.reset`` needs to build it (JSON values only)."""

    benchmark: str
    id: str
    env_id: str
    category: str
    options: Mapping[str, Any] = field(default_factory=dict)
    max_turns: int = 50
    cluster: str = ""
    """Group of dependent tasks (a database, a template, a subject); empty: independent of others"""
    after: tuple[str, ...] = ()
    """Ids of tasks that must have ended, with any outcome, before this one begins"""
    lanes: int = 0
    """Maximum number of epochs in flight, for tasks that change a shared state: epoch e starts after all such tasks of
    epoch e - lanes have ended. 0: any number"""


@dataclass(frozen=True)
class Step:
    """One turn: reply, action read from it (None: none) and whether it is valid, observation after it, and reward."""

    reply: str
    action: str | None
    observation: str
    reward: float
    valid: bool
    policy_s: float = 0.0
    env_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    version: str = ""
    """Version of the weights; empty if unknown"""
    reasoning: str = ""
    """The model's reasoning, if the endpoint returns it; no part of the reply"""
    waited_s: float = 0.0
    """Part of ``policy_s``: pauses, failed requests, waiting for a request slot"""
    outside: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """External calls of the environment by service (a simulated user, a search): calls, seconds; not in ``env_s``"""
    choices: tuple[float, ...] = ()
    """Log-likelihood of each choice, for a question with choices"""
    pictured: bool = False
    """Whether the request had a picture, which is not stored; ``picture``: its digest, as in ``ChatRequest``"""
    picture: str = ""
    cut: str = ""
    """How the reply is incomplete (a value of ``messages.Cut``); empty: complete, or not recorded"""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls of tools offered natively; no part of ``reply``"""
    results: tuple[str, ...] = ()
    """Results of the calls, in their order; ``observation`` is then a user's message after them"""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools offered natively from the next request on; empty: no change"""
    weight: int = 1
    instead: str = ""
    """The model's own reply, if ``reply`` is a teacher's in its place. ``weight`` 0: the reply is not to be trained"""

    def messages(self, prefix: str = "") -> list[Message]:
        """The messages of this turn: reply, results of calls, observation. ``prefix``: see ``turn_messages``."""
        return turn_messages(self.reply, self.tool_calls, self.results, self.observation, prefix)

    def to_json(self) -> dict[str, Any]:
        """The step as a JSON object; rare fields are left out if empty, the weight if it is 1."""
        rare = {"reasoning", "waited_s", "outside", "choices", "pictured", "picture", "cut", "tool_calls", "results"}
        values = {**asdict(self), "tool_calls": [call.to_json() for call in self.tool_calls]}
        rare |= {"instead", "tools"}
        return {n: v for n, v in values.items() if (v or n not in rare) and (n, v) != ("weight", 1)}


@dataclass(frozen=True)
class Trajectory:
    """The conversation of an episode: the messages before the first reply (``opening``), then every turn."""

    opening: tuple[Message, ...] = ()
    steps: tuple[Step, ...] = ()
    shared: int = 0
    """Number of characters at the start of the opening that many episodes share: worked examples"""
    dialogue_limit: int | None = None
    """Maximum number of messages of past turns in a request, in whole turns, at least one; 0: only the newest
    observation, in place of the opening's last message. None: all, or not recorded"""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools offered natively in every request until ``Step.tools`` replaces them, as in ``ChatRequest``"""
    reply_prefix: str = ""
    """Text before every past reply in a request; empty: none, or not recorded"""

    def messages(self) -> tuple[Message, ...]:
        """The whole conversation; its last message is the last observation."""
        return (*self.opening, *(message for step in self.steps for message in step.messages()))

    def tools_of(self, turn: int | None) -> tuple[Mapping[str, Any], ...]:
        """Tools offered natively in the request for reply ``turn``, from 0 (None: the next); empty without any."""
        return next((step.tools for step in reversed(self.steps[:turn]) if step.tools), self.tools)

    def shown(self, turn: int) -> tuple[Message, ...]:
        """The messages of the request for reply ``turn``, from 0; past turns beyond ``dialogue_limit`` are left out."""
        limit, past = self.dialogue_limit, self.steps[:turn]
        if limit == 0 and past:
            return (*self.opening[:-1], Message("user", past[-1].observation))
        newest = past if limit is None else past[-max(1, limit // 2) :]
        return (*self.opening, *(message for step in newest for message in step.messages(self.reply_prefix)))

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {n: [m.to_json() for m in getattr(self, n)] for n in ("opening", "steps")}
        rare = {"shared": self.shared, "tools": list(self.tools), "reply_prefix": self.reply_prefix}
        record |= {name: value for name, value in rare.items() if value}
        return record if self.dialogue_limit is None else {**record, "dialogue_limit": self.dialogue_limit}


@dataclass(frozen=True)
class EpisodeKey:
    """Identity of an episode. ``recipe``: hash of the settings that scores depend on; ``epoch``: repetition, from 0."""

    benchmark: str
    task: str
    policy: str
    recipe: str
    epoch: int = 0

    def __str__(self) -> str:
        """The five parts joined by pipes, with pipes inside a part escaped (inverse: ``from_text``)."""
        parts = (self.benchmark, self.task, self.policy, self.recipe, str(self.epoch))
        return "|".join(part.replace("%", "%25").replace("|", "%7C") for part in parts)

    @classmethod
    def from_text(cls, text: str) -> "EpisodeKey":
        """Parse the text that ``str`` returns. Raises ValueError for any other text."""
        parts = text.split("|")
        if len(parts) != 5 or not parts[4].isdigit():
            raise ValueError(f"{text!r} names no episode: expected benchmark|task|policy|recipe|epoch")
        names = [part.replace("%7C", "|").replace("%25", "%") for part in parts]
        return cls(names[0], names[1], names[2], names[3], int(names[4]))


@dataclass(frozen=True)
class Episode:
    """Record of a finished episode. ``score`` is None if, and only if, the policy is not to blame for the outcome
    (``Outcome.scored`` is false); anything else raises ValueError."""

    key: EpisodeKey
    category: str
    outcome: Outcome
    score: float | None
    attempts: int
    trajectory: Trajectory
    wall_s: float = 0.0
    detail: str = ""
    """Error, or the limit that ended the episode"""
    retried: tuple[str, ...] = ()
    """Earlier attempts, each as ``attempt NUMBER: OUTCOME: DETAIL``"""
    quarantined: tuple[int, ...] = ()
    """Numbers, from 1, of the attempts in ``retried`` that ended because a sandbox was put in quarantine"""
    truncated_prompts: int = 0
    """Number of turns whose prompt the endpoint seems to have truncated"""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Scores by name of grader, if the benchmark has several graders; ``score`` is one of them."""
    reference: str = ""
    """Reference answer, if the benchmark stores it; the model never sees it"""
    cluster: str = ""
    """Group of dependent tasks, as in ``Task``"""
    started: str = ""
    """Start of the last attempt, UTC in ISO 8601; empty if unknown"""
    note: str = ""
    """The environment's summary: counts, paths of its files"""

    def __post_init__(self) -> None:
        if (self.score is None) == self.outcome.scored:
            raise ValueError(f"episode {self.key}: score {self.score!r} does not go with outcome {self.outcome.value}")

    @property
    def blame(self) -> Blame:
        return self.outcome.blame

    def to_json(self) -> dict[str, Any]:
        rare = ("reference", "cluster", "started", "note", "quarantined", "truncated_prompts")
        rest = {f.name: getattr(self, f.name) for f in fields(Episode)}
        rest = {name: value for name, value in rest.items() if value or name not in rare}
        rest |= {"key": asdict(self.key), "trajectory": self.trajectory.to_json(), "scores": dict(self.scores)}
        return {**rest, "outcome": self.outcome.value, "blame": self.blame.value}

    @classmethod
    def from_json(cls, value: Any) -> "Episode":
        """Parse what ``to_json`` returns. Raises ValueError if a value is missing or of another type."""
        try:
            value, trajectory = {**_marks_in_texts(value), **value}, value["trajectory"]
            limit = trajectory.get("dialogue_limit")
            return cls(
                key=_key(value["key"]),
                category=_text(value["category"], "category"),
                outcome=Outcome(value["outcome"]),
                score=None if value["score"] is None else _number(value["score"], "score"),
                attempts=_count(value["attempts"], "attempts"),
                trajectory=Trajectory(
                    opening=tuple(Message.from_json(m) for m in trajectory["opening"]),
                    steps=tuple(_step(s) for s in trajectory["steps"]),
                    shared=_count(trajectory.get("shared", 0), "shared"),
                    dialogue_limit=None if limit is None else _count(limit, "dialogue_limit"),
                    tools=tuple(dict(tool) for tool in trajectory.get("tools", ())),
                    reply_prefix=_text(trajectory.get("reply_prefix", ""), "reply_prefix"),
                ),
                wall_s=_number(value["wall_s"], "wall_s"),
                detail=_text(value["detail"], "detail"),
                retried=tuple(_text(reason, "retried") for reason in value["retried"]),
                quarantined=tuple(_count(number, "quarantined") for number in value["quarantined"]),
                truncated_prompts=_count(value["truncated_prompts"], "truncated_prompts"),
                scores={str(name): _number(score, "scores") for name, score in value.get("scores", {}).items()},
                **{name: _text(value.get(name, ""), name) for name in ("reference", "cluster", "started", "note")},
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not an episode record: {type(error).__name__}: {error}") from error


def _marks_in_texts(record: Any) -> dict[str, Any]:
    """``quarantined`` and ``truncated_prompts`` of a record of an earlier version, found in its texts."""
    lost = [n for n, text in enumerate(record["retried"], 1) if "a sandbox was put in quarantine" in text]
    return {"quarantined": lost, "truncated_prompts": record["detail"].count("fewer prompt tokens for a longer conv")}


def _step(value: Any) -> Step:
    choices = tuple(_number(one, "choices") for one in value.get("choices", ()))
    tools = tuple(dict(tool) for tool in value.get("tools", ()))
    results = tuple(_text(one, "results") for one in value.get("results", ()))
    value = {**value, "choices": choices, "tool_calls": parse_tool_calls(value), "results": results, "tools": tools}
    step = Step(**value)
    if step.cut and step.cut not in tuple(Cut):
        raise ValueError(f"cut is {step.cut!r:.40}: expected one of {', '.join(Cut)}")
    if not_bool := [name for name in ("valid", "pictured") if not isinstance(getattr(step, name), bool)]:
        raise ValueError(f"{not_bool[0]} is {getattr(step, not_bool[0])!r}: expected true or false")
    for name in ("reward", "policy_s", "env_s", "waited_s"):
        _number(getattr(step, name), name)
    for name in ("prompt_tokens", "completion_tokens", "weight"):
        _count(getattr(step, name), name)
    for name in ("reply", "version", "reasoning", "observation", "instead", "picture"):
        _text(getattr(step, name), name)
    for counted in step.outside.values():
        for name, number in counted.items():
            _number(number, name)
    _text("" if step.action is None else step.action, "action")
    return step


def _key(value: Any) -> EpisodeKey:
    key = EpisodeKey(**value)
    for name in ("benchmark", "task", "policy", "recipe"):
        _text(getattr(key, name), name)
    _count(key.epoch, "epoch")
    return key


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is of type {type(value).__name__}: expected a text")
    return value


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e300 < value < 1e300:
        raise ValueError(f"{name} is {str(value)[:40]!r}: expected a finite number")
    return value


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {str(value)[:40]!r}: expected a whole number, 0 or more")
    return value


def split_opening(trajectory: Trajectory) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """(shared messages, rest) of a trajectory's opening, split after its first ``shared`` characters, if need be within
    a message. Raises ValueError if the opening is shorter."""
    left = trajectory.shared
    for place, message in enumerate(trajectory.opening):
        if left <= len(message.content):
            before, after = replace(message, content=message.content[:left]), message.content[left:]
            rest = (replace(message, content=after), *trajectory.opening[place + 1 :])
            return (*trajectory.opening[:place], before), rest
        left -= len(message.content)
    raise ValueError(f"{trajectory.shared} characters of an opening are shared, but it is shorter by {left}")


def join_opening(head: tuple[Message, ...], trajectory: Trajectory) -> Trajectory:
    """A copy of ``trajectory``, whose opening is the rest, with the shared part ``head`` in front: inverse of
    ``split_opening``. Raises ValueError if either part is empty."""
    if not trajectory.opening or not head:
        raise ValueError("an opening without a message that goes on from its shared part")
    first, *rest = trajectory.opening
    opening = (*head[:-1], replace(first, content=head[-1].content + first.content), *rest)
    return replace(trajectory, opening=opening, shared=sum(len(message.content) for message in head))


def opening_digest(head: tuple[Message, ...]) -> str:
    """Digest of the shared part of an opening: 16 hex digits of SHA-256."""
    return hashlib.sha256(json.dumps([message.to_json() for message in head]).encode()).hexdigest()[:16]
