"""The records of one attempt at an episode: what is to be played, within which limits, and how it went.

Frozen, picklable, JSON-free. Knows nothing of how an episode is played or stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import EpisodeKey, Outcome, Task, Trajectory


@dataclass(frozen=True)
class EpisodeLimits:
    """Deadlines of single calls in seconds, and how much text of one turn is kept."""

    make_s: float = 120.0
    reset_s: float = 120.0
    step_s: float = 60.0
    close_s: float = 20.0
    policy_s: float = 900.0
    """Longer than the policy's own patience: the last resort, against an endpoint that streams for ever."""
    reply_chars: int = 16_384
    """A longer reply is cut, and the episode's detail says so."""
    observation_chars: int = 66_560
    """A longer observation is cut likewise: 64 KiB, which is what a sandbox keeps, and 1 KiB for what it says of it."""


@dataclass(frozen=True)
class Order:
    """One episode to be played."""

    key: EpisodeKey
    task: Task
    sampling: Sampling = Sampling()
    limits: EpisodeLimits = EpisodeLimits()


@dataclass(frozen=True)
class Attempt:
    """How one attempt at an episode ended. ``score`` is None exactly when the outcome is not the policy's."""

    outcome: Outcome
    score: float | None
    trajectory: Trajectory = Trajectory()
    wall_s: float = 0.0
    detail: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Score by each grader, where a benchmark has several."""


def seed_of(*parts: object) -> int:
    """31-bit seed, a pure function of its parts: the same task, epoch and turn get the same one in every run."""
    text = "|".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def turn_sampling(order: Order, turn: int) -> Sampling:
    """The order's sampling with the seed of this turn (0-based), the same in every attempt."""
    key, s = order.key, order.sampling
    seed = seed_of(key.benchmark, key.task, key.epoch, turn, s.seed)
    return Sampling(s.max_tokens, s.temperature, s.top_p, s.top_k, seed, s.stop)
