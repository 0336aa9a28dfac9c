"""Values that describe one episode: the task to play, its limits and prices, and how an attempt at it ended.

Frozen and picklable."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lemur_ray.agents.messages import Sampling, Trace
from lemur_ray.agents.trajectory import EpisodeKey, Outcome, Step, Task, Trajectory


@dataclass(frozen=True)
class Prices:
    """Prices per million tokens of the policy and of the environments' endpoint. If all are 0, no cost is shown."""

    per_million_in: float = 0.0
    per_million_out: float = 0.0
    outside_in: float = 0.0
    """Price of a million prompt tokens of the endpoint that environments call (a simulated user)."""
    outside_out: float = 0.0
    """Price of a million completion tokens of that endpoint."""

    def cost(self, tokens_in: float, tokens_out: float) -> float:
        return (tokens_in * self.per_million_in + tokens_out * self.per_million_out) / 1e6


@dataclass(frozen=True)
class EpisodeLimits:
    """Limits of one episode: deadlines in seconds of making, resetting, stepping and closing the environment and of a
    reply (``make_s`` to ``policy_s``), characters per turn, and budgets for all turns together."""

    make_s: float = 120.0
    reset_s: float = 120.0
    step_s: float = 60.0
    close_s: float = 20.0
    policy_s: float = 900.0
    """Deadline of one reply, longer than the policy's own patience: a guard against an endpoint that never stops."""
    reply_chars: int = 16_384
    """Maximum characters of a reply; a longer one is truncated, with a remark in the episode's detail."""
    reasoning_chars: int = 131_072
    """Maximum characters of a reply's reasoning, truncated in the same way."""
    observation_chars: int = 66_560
    """Maximum characters of an observation, truncated in the same way: 64 KiB (a sandbox's output limit) and 1 KiB for
    a notice."""
    tokens: int = 0
    """Budget of prompt and completion tokens, after which there is no further turn. 0: no limit."""
    time_s: float = 0.0
    """Budget of seconds for replies and environment steps, without waits for an endpoint that refuses requests and
    without calls that the environment makes itself. 0: no limit."""
    cost: float = 0.0
    """Budget for the policy's tokens at ``prices``. 0: no limit."""
    prices: Prices = Prices()

    def reached(self, steps: Sequence[Step]) -> Outcome | None:
        """The outcome if the turns so far have used up a budget (tokens first, then time, then cost); None if none."""
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
    """One episode to play: its key (benchmark, task, policy, recipe, epoch), task, sampling options and limits."""

    key: EpisodeKey
    task: Task
    sampling: Sampling = Sampling()
    limits: EpisodeLimits = EpisodeLimits()
    isolated: bool = False
    """Whether its process plays nothing else meanwhile, so that a crash of that process is this episode's fault."""
    turns: str = ""
    """Folder of files with the turns of running episodes (``episode_record.TurnFile``). Empty: none are written."""


@dataclass(frozen=True)
class Attempt:
    """Result of one attempt at an episode. ``score`` (0 to 1) is None if, and only if, the outcome is not the policy's
    doing. ``wall_s``: seconds; ``detail``: errors and truncations as text."""

    outcome: Outcome
    score: float | None
    trajectory: Trajectory = Trajectory()
    wall_s: float = 0.0
    detail: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Score by grader, for benchmarks with several graders."""
    started: str = ""
    """Start of the attempt, UTC in ISO 8601; empty if unknown."""
    note: str = ""
    """The environment's summary: counts, paths of its files."""
    excused: bool = False
    """Whether the attempt was lost with its host or with other episodes, so that it does not count as a retry."""
    quarantined: bool = False
    """Whether a sandbox that could not be reset ended the attempt."""
    truncated_prompts: int = 0
    """Number of turns whose prompt the endpoint seems to have truncated."""
    traces: tuple[Trace | None, ...] = ()
    """Trace of each turn, if the policy traces its replies; no part of the episode's record."""
    fatal_error: str = ""
    """Reason why no episode of this run can be played any more; empty if others can."""


def derive_seed(*parts: object) -> int:
    """A seed from 0 to 2^31 - 1: a hash of ``parts`` as text, equal in every process and run."""
    text = "|".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def turn_sampling(spec: EpisodeSpec, turn: int) -> Sampling:
    """Sampling options of turn number ``turn`` (from 0): those of the episode, with a seed derived from task, epoch and
    turn, so that a repeated attempt gets the same seeds."""
    key, sampling = spec.key, spec.sampling
    return replace(sampling, seed=derive_seed(key.benchmark, key.task, key.epoch, turn, sampling.seed))
