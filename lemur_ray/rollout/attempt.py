"""Values that describe one episode: what to play within which limits, and how an attempt at it ended.

Frozen and picklable. Knows nothing of how an episode is played or stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import EpisodeKey, Outcome, Step, Task, Trajectory


@dataclass(frozen=True)
class Prices:
    """Prices per million tokens, in any one currency. With all of them 0, no cost is shown."""

    per_million_in: float = 0.0
    per_million_out: float = 0.0
    outside_in: float = 0.0
    """Prompt tokens of the endpoint that environments call (a simulated user)."""
    outside_out: float = 0.0
    """Completion tokens of that endpoint."""

    def cost(self, tokens_in: float, tokens_out: float) -> float:
        return (tokens_in * self.per_million_in + tokens_out * self.per_million_out) / 1e6


@dataclass(frozen=True)
class EpisodeLimits:
    """Limits of one episode: deadlines of single calls in seconds, text per turn, and a budget for all turns."""

    make_s: float = 120.0
    reset_s: float = 120.0
    step_s: float = 60.0
    close_s: float = 20.0
    policy_s: float = 900.0
    """Deadline of one reply. Longer than the policy's own patience: it guards against an endpoint that never stops."""
    reply_chars: int = 16_384
    """A longer reply is truncated, and the episode's detail says so."""
    reasoning_chars: int = 131_072
    """Longer reasoning is truncated in the same way."""
    observation_chars: int = 66_560
    """Observations are truncated in the same way: 64 KiB, the output limit of a sandbox, and 1 KiB for its notice."""
    tokens: int = 0
    """Budget of prompt and completion tokens: once it is used up, there is no further turn. 0: no limit."""
    time_s: float = 0.0
    """Budget of seconds for replies and environment steps, without waits for an endpoint that refuses requests and
    without calls that the environment makes itself. 0: no limit."""
    cost: float = 0.0
    """Budget for the policy's tokens at ``prices``. 0: no limit."""
    prices: Prices = Prices()

    def reached(self, steps: Sequence[Step]) -> Outcome | None:
        """Outcome of the first budget that the turns so far use up. The turn that uses it up is played to its end."""
        tokens_in, tokens_out = sum(s.prompt_tokens for s in steps), sum(s.completion_tokens for s in steps)
        if self.tokens and tokens_in + tokens_out >= self.tokens:
            return Outcome.TOKEN_LIMIT
        if self.time_s and sum(s.policy_s - s.waited_s + s.env_s for s in steps) >= self.time_s:
            return Outcome.TIME_LIMIT
        if self.cost and self.prices.cost(tokens_in, tokens_out) >= self.cost:
            return Outcome.COST_LIMIT
        return None


@dataclass(frozen=True)
class EpisodeSpec:
    """One episode to play."""

    key: EpisodeKey
    task: Task
    sampling: Sampling = Sampling()
    limits: EpisodeLimits = EpisodeLimits()
    isolated: bool = False
    """Its process plays nothing else meanwhile, so a crash of that process is the fault of this episode."""


@dataclass(frozen=True)
class Attempt:
    """How one attempt at an episode ended. ``score`` is None exactly if the outcome is not the policy's doing."""

    outcome: Outcome
    score: float | None
    trajectory: Trajectory = Trajectory()
    wall_s: float = 0.0
    detail: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Score by grader, for benchmarks with several graders."""
    started: str = ""
    """UTC time in ISO 8601; see ``Episode.started``."""
    note: str = ""
    """Remarks of the environment; see ``Episode.note``."""
    excused: bool = False
    """Lost together with its host or with other episodes: it does not count against the retries of this one."""
    fatal_error: str = ""
    """Why no episode of this run can be played any more; empty if others can."""


def derive_seed(*parts: object) -> int:
    """31-bit seed, a pure function of its parts: the same task, epoch and turn get the same seed in every run."""
    text = "|".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def turn_sampling(spec: EpisodeSpec, turn: int) -> Sampling:
    """Sampling options of one turn (0-based): those of the episode with a seed that is the same in every attempt."""
    key, sampling = spec.key, spec.sampling
    return replace(sampling, seed=derive_seed(key.benchmark, key.task, key.epoch, turn, sampling.seed))
