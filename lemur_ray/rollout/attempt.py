"""The records of one attempt at an episode: what is to be played, within which limits, and how it went.

Frozen, picklable, JSON-free. Knows nothing of how an episode is played or stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import EpisodeKey, Outcome, Step, Task, Trajectory


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
    reasoning_chars: int = 131_072
    """Longer thoughts are cut likewise."""
    observation_chars: int = 66_560
    """A longer observation is cut likewise: 64 KiB, which is what a sandbox keeps, and 1 KiB for what it says of it."""
    tokens: int = 0
    """Of prompts and replies of an episode that has used so many, no further turn is asked for. 0: no limit."""
    time_s: float = 0.0
    """Likewise of seconds that the model took for its replies and the environment for its steps: waiting for an
    endpoint that refuses, and whoever an environment asks, do not count."""
    cost: float = 0.0
    """Likewise of the policy's tokens at these prices."""
    price_in: float = 0.0
    """Of a million prompt tokens, in any currency."""
    price_out: float = 0.0
    """Of a million tokens of replies."""

    def reached(self, steps: Sequence[Step]) -> Outcome | None:
        """Which limit the turns so far have reached. The turn that reaches one is played to its end."""
        tokens_in, tokens_out = sum(s.prompt_tokens for s in steps), sum(s.completion_tokens for s in steps)
        if self.tokens and tokens_in + tokens_out >= self.tokens:
            return Outcome.TOKEN_LIMIT
        if self.time_s and sum(s.policy_s - s.waited_s + s.env_s for s in steps) >= self.time_s:
            return Outcome.TIME_LIMIT
        if self.cost and (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6 >= self.cost:
            return Outcome.COST_LIMIT
        return None


@dataclass(frozen=True)
class EpisodeSpec:
    """One episode to be played."""

    key: EpisodeKey
    task: Task
    sampling: Sampling = Sampling()
    limits: EpisodeLimits = EpisodeLimits()
    isolated: bool = False
    """Nothing else is played in its process meanwhile, so that what is lost there was lost by this one."""


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
    started: str = ""
    """As of ``Episode``"""
    note: str = ""
    """As of ``Episode``"""
    excused: bool = False
    """Lost with a host, or where others are lost too: says nothing of the episode, however often."""
    fatal_error: str = ""
    """Why no other episode could be played either; empty where one could."""


def derive_seed(*parts: object) -> int:
    """31-bit seed, a pure function of its parts: the same task, epoch and turn get the same one in every run."""
    text = "|".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def turn_sampling(spec: EpisodeSpec, turn: int) -> Sampling:
    """The order's sampling with the seed of this turn (0-based), the same in every attempt."""
    key, s = spec.key, spec.sampling
    seed = derive_seed(key.benchmark, key.task, key.epoch, turn, s.seed)
    return Sampling(s.max_tokens, s.temperature, s.top_p, s.top_k, seed, s.stop)
