"""Task, Step, Trajectory, Episode: what is asked, what happened, and whose fault the end was.

Frozen records with an exact JSON round trip. Knows nothing of how an episode is run or where it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from lemur_ray.agents.messages import Message


class Blame(StrEnum):
    """Whose doing an outcome was. Only what is the policy's is scored."""

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
        """Whether this outcome says something about the policy. All others are retried, then reported as missing."""
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


@dataclass(frozen=True)
class Step:
    """One turn: what the policy said, what the environment understood and answered. Times in seconds."""

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
    """Of the weights that the reply comes from; empty where nobody said"""


@dataclass(frozen=True)
class Trajectory:
    """The messages before the first reply, then every turn."""

    opening: tuple[Message, ...] = ()
    steps: tuple[Step, ...] = ()

    def messages(self) -> tuple[Message, ...]:
        """The whole conversation; the last observation is its last user message."""
        turns = [m for s in self.steps for m in (Message("assistant", s.reply), Message("user", s.observation))]
        return (*self.opening, *turns)


@dataclass(frozen=True)
class EpisodeKey:
    """What makes an episode the same episode. The first record of a key in a ledger wins."""

    benchmark: str
    task: str
    policy: str
    recipe: str
    epoch: int = 0

    def __str__(self) -> str:
        return "|".join((self.benchmark, self.task, self.policy, self.recipe, str(self.epoch)))


@dataclass(frozen=True)
class Episode:
    """The record of one finished episode. ``score`` is None exactly when the outcome is not the policy's."""

    key: EpisodeKey
    category: str
    outcome: Outcome
    score: float | None
    attempts: int
    trajectory: Trajectory
    wall_s: float = 0.0
    detail: str = ""
    retried: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    """Score by each grader, where a benchmark has several; ``score`` is one of them."""

    def __post_init__(self) -> None:
        if (self.score is None) == self.outcome.scored:
            raise ValueError(f"episode {self.key}: score {self.score!r} does not go with outcome {self.outcome.value}")

    @property
    def blame(self) -> Blame:
        return self.outcome.blame

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value, "blame": self.blame.value}

    @classmethod
    def from_json(cls, value: Any) -> Episode:
        """Inverse of ``to_json``. Raises ValueError that says what is wrong; every value has its type afterwards."""
        try:
            trajectory = value["trajectory"]
            return cls(
                key=_key(value["key"]),
                category=_text(value["category"], "category"),
                outcome=Outcome(value["outcome"]),
                score=None if value["score"] is None else _number(value["score"], "score"),
                attempts=_count(value["attempts"], "attempts"),
                trajectory=Trajectory(
                    opening=tuple(Message.from_json(m) for m in trajectory["opening"]),
                    steps=tuple(_step(s) for s in trajectory["steps"]),
                ),
                wall_s=_number(value["wall_s"], "wall_s"),
                detail=_text(value["detail"], "detail"),
                retried=tuple(_text(reason, "retried") for reason in value["retried"]),
                scores={str(name): _number(score, "scores") for name, score in value.get("scores", {}).items()},
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an episode record: {type(error).__name__}: {error}") from error


def _step(value: Any) -> Step:
    step = Step(**value)
    if not isinstance(step.valid, bool):
        raise ValueError(f"valid is {step.valid!r}: expected true or false")
    for name in ("reward", "policy_s", "env_s"):
        _number(getattr(step, name), name)
    for name in ("prompt_tokens", "completion_tokens"):
        _count(getattr(step, name), name)
    _text(step.reply, "reply")
    _text(step.version, "version")
    _text(step.observation, "observation")
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
