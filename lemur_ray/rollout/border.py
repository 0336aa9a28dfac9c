"""What crosses between an environment and an episode, checked once: shapes of answers, size and storability of text.

Knows nothing of policies or of calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lemur_ray.agents.trajectory import Outcome


class EnvironmentFault(Exception):
    """The environment raised, hung or broke its protocol."""


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
            if math.isfinite(reward):
                return observation, float(reward), bool(terminated), bool(truncated), info
    expected = "(observation: str, finite reward, terminated, truncated, info: dict)"
    raise EnvironmentFault(f"{env_id}: step returned {_shape(answer)}: expected {expected}")


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
