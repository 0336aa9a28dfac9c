"""What crosses between an environment and an episode, checked once: shapes of answers, size and storability of text.

Knows nothing of policies or of calls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Outcome

ERROR_CHARS = 500
_QUOTING = re.compile(r"[\s`'\"\\]+")


class EnvironmentFault(Exception):
    """The environment raised, hung or broke its protocol."""


class MachineFault(EnvironmentFault):
    """The machine took from the environment what it runs in."""


class PolicyFault(Exception):
    """What the policy's code did to its sandbox ended the turn."""


def bounded(text: str, limit: int, what: str, notes: list[str]) -> str:
    """Text that every reader can store: at most ``limit`` characters, no lone surrogate, no NUL. A cut is noted."""
    if len(text) > limit:
        notes.append(f"{what}: {len(text)} characters, cut to {limit}")
        text = text[:limit]
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def reset_answer(answer: Any, env_id: str) -> tuple[str, Mapping[str, Any]]:
    """The checked answer of ``reset``. Raises EnvironmentFault."""
    match answer:
        case (str() as observation, Mapping() as info):
            return observation, info
    raise EnvironmentFault(f"{env_id}: reset returned {_shape(answer)}: expected (observation: str, info: dict)")


def step_answer(answer: Any, env_id: str) -> tuple[str, float, bool, bool, Mapping[str, Any]]:
    """The checked answer of ``step``: observation, reward, terminated, truncated, info. Raises EnvironmentFault."""
    match answer:
        case (str() as observation, (int() | float()) as reward, terminated, truncated, Mapping() as info):
            if _finite(reward):
                return observation, float(reward), bool(terminated), bool(truncated), info
    expected = "(observation: str, finite reward, terminated, truncated, info: dict)"
    raise EnvironmentFault(f"{env_id}: step returned {_shape(answer)}: expected {expected}")


def score_of(info: Mapping[str, Any], reward: float, env_id: str) -> float:
    """``info['score']``, or the last reward where there is none. Raises EnvironmentFault."""
    score = info.get("score", reward)
    if isinstance(score, int | float) and _finite(score):
        return float(score)
    raise EnvironmentFault(f"{env_id}: info['score'] is {str(score)[:40]!r}: expected a finite number")


def scores_in(info: Mapping[str, Any], env_id: str) -> dict[str, float]:
    """The scores of several graders, empty where there are none. Raises EnvironmentFault."""
    scores = info.get("scores") or {}
    if not isinstance(scores, Mapping):
        raise EnvironmentFault(f"{env_id}: info['scores'] is of type {type(scores).__name__}: expected a mapping")
    return {str(name): score_of({"score": score}, 0.0, env_id) for name, score in scores.items()}


def text_in(info: Mapping[str, Any], name: str, env_id: str) -> str | None:
    """A text of ``info``, None where there is none. Raises EnvironmentFault."""
    value = info.get(name)
    if value is None or isinstance(value, str):
        return value
    raise EnvironmentFault(f"{env_id}: info[{name!r}] is of type {type(value).__name__}: expected a text or None")


def count_in(info: Mapping[str, Any], name: str, env_id: str) -> int | None:
    """A whole number of ``info``, None where there is none. Raises EnvironmentFault."""
    value = info.get(name)
    if value is None or (isinstance(value, int) and value >= 0):
        return value
    raise EnvironmentFault(f"{env_id}: info[{name!r}] is {str(value)[:40]!r}: expected a whole number or None")


@dataclass(frozen=True)
class Asking:
    """How a policy is asked, where an environment says more of it than its observation: single questions."""

    raw: bool = False
    prefill: str = ""
    choices: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    """Instead of the benchmark's, where there are any."""
    before: tuple[Message, ...] = ()
    """Messages before the first observation: worked examples as turns."""
    shared: int = 0
    """Characters that the opening has in common with others', from its beginning."""
    dialogue_limit: int | None = None
    """As of ``Trajectory``."""
    on_value_error: str = ""
    """What stands for the reply of a policy that raises ValueError, ``{error}`` being what that says; empty: nothing
    does, it is a bug of the harness."""

    def instead_of(self, error: ValueError) -> str:
        """That reply. In one line without quotes, so that it is what it is in any language of actions."""
        return self.on_value_error.replace("{error}", _QUOTING.sub(" ", str(error)).strip()[:ERROR_CHARS])


def asking_of(info: Mapping[str, Any], env_id: str) -> Asking:
    """``info['ask']`` and ``info['dialogue_limit']`` of a reset. Raises EnvironmentFault."""
    ask = info.get("ask") or {}
    try:
        return Asking(
            raw=bool(ask.get("raw", False)),
            prefill=str(ask.get("prefill", "")),
            choices=tuple(map(str, ask.get("choices", ()))),
            stop=tuple(map(str, ask.get("stop", ()))),
            before=tuple(Message.from_json(message) for message in ask.get("before", ())),
            shared=int(ask.get("shared", 0)),
            dialogue_limit=count_in(info, "dialogue_limit", env_id),
            on_value_error=str(ask.get("on_value_error", "")),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise EnvironmentFault(f"{env_id}: info['ask'] is {str(ask)[:100]!r}: {error}") from error


def _finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond every float
        return False


def outcome_named(name: Any, env_id: str) -> Outcome:
    """The outcome an environment reports in ``info['outcome']``. Raises EnvironmentFault."""
    try:
        return Outcome(name)
    except ValueError:
        known = ", ".join(Outcome)
        raise EnvironmentFault(f"{env_id}: info['outcome'] is {name!r}: expected one of {known}") from None


def _shape(answer: Any) -> str:
    if isinstance(answer, tuple):
        return "(" + ", ".join(repr(v) if isinstance(v, float) else type(v).__name__ for v in answer) + ")"
    return type(answer).__name__
