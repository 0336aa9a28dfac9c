"""Which attempts at episodes are repeated, when, and the history of earlier attempts. Time is always an argument."""

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lemur_ray.agents.messages import PolicyUnreachable
from lemur_ray.agents.trajectory import Blame, EpisodeKey, Outcome
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec

LONGEST_DELAY_S = 60.0
"""Maximum delay before another attempt, in seconds."""
REASON_CHARS = 2000
"""Maximum characters of the recorded reason why an attempt had no score."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often a failed attempt is repeated, by who is to blame (``env``, ``infra``, ``harness``), and after which
    delay. An attempt with a score is never repeated."""

    env: int = 2
    infra: int = 3
    harness: int = 1
    unreachable_delay_s: float = 5.0
    """Seconds before the repetition if the endpoint did not answer. Doubles per attempt, up to LONGEST_DELAY_S."""
    infra_delay_s: float = 1.0
    """Seconds before the repetition if the machine failed (INFRA_LOST). Doubles likewise."""
    silence_s: float = 300.0
    """Seconds without any attempt that reaches the policy after which the run stops."""

    def allowed(self, outcome: Outcome) -> int:
        """Maximum number of repetitions of attempts with the blame of ``outcome``; 0 if that is the policy."""
        limits = {Blame.ENV: self.env, Blame.INFRA: self.infra, Blame.HARNESS: self.harness}
        return limits.get(outcome.blame, 0)

    def delay_s(self, outcome: Outcome, attempt: int) -> float:
        """Seconds to wait before the repetition of attempt number ``attempt`` (from 1) that ended with ``outcome``: the
        first delay doubled for each earlier attempt, at most LONGEST_DELAY_S; 0 for most outcomes."""
        first_s = {Outcome.POLICY_UNREACHABLE: self.unreachable_delay_s, Outcome.INFRA_LOST: self.infra_delay_s}
        return min(LONGEST_DELAY_S, first_s.get(outcome, 0.0) * 2 ** min(attempt - 1, 10))


@dataclass
class AttemptHistory:
    """The attempts at one episode so far: number of the current one, from 1, why earlier ones had no score, and how
    many were ``excused`` or ``counted`` against the allowed repetitions."""

    number: int = 1
    reasons: tuple[str, ...] = ()
    quarantined: tuple[int, ...] = ()
    """Numbers of the earlier attempts that a sandbox in quarantine ended."""
    excused: int = 0
    counted: Counter[Blame] = field(default_factory=Counter)
    """Number of attempts that count against the allowed repetitions, by blame."""

    def allows_retry(self, attempt: Attempt, policy: RetryPolicy) -> bool:
        """Count an ended attempt. Returns whether ``policy`` allows another: never after a score, always if excused."""
        if attempt.outcome.scored:
            return False
        if attempt.excused:
            self.excused += 1
            return True
        self.counted[attempt.outcome.blame] += 1
        return self.counted[attempt.outcome.blame] <= policy.allowed(attempt.outcome)


class RetryQueue:
    """Episodes that wait for another attempt. One that was excused more often than ``RetryPolicy.infra`` waits until it
    can be played isolated: while no other episode is played in its process."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._histories: dict[EpisodeKey, AttemptHistory] = {}
        self._delayed: list[tuple[float, int, EpisodeSpec]] = []
        self._isolated: deque[EpisodeSpec] = deque()
        self._num_playing = 0
        """Number of isolated episodes in flight."""
        self._tie_break = itertools.count()

    def __len__(self) -> int:
        return len(self._delayed) + len(self._isolated)

    @property
    def num_delayed(self) -> int:
        return len(self._delayed)

    def finish(self, spec: EpisodeSpec, attempt: Attempt, now: float) -> AttemptHistory | None:
        """Count an attempt that has ended at time ``now`` (monotonic seconds). Returns the episode's history if it was
        the last one; None if the episode now waits here for another."""
        self._num_playing -= spec.isolated
        history = self._histories.setdefault(spec.key, AttemptHistory())
        if not history.allows_retry(attempt, self._policy):
            return self._histories.pop(spec.key)
        reason = f"attempt {history.number}: {attempt.outcome.value}: {attempt.detail}"
        history.reasons += (reason[:REASON_CHARS],)
        history.quarantined += (history.number,) * attempt.quarantined
        due = now + self._policy.delay_s(attempt.outcome, history.number)
        history.number += 1
        spec = replace(spec, isolated=history.excused > self._policy.infra)
        heapq.heappush(self._delayed, (due, next(self._tie_break), spec))
        return None

    def pop_due(self, now: float) -> Iterator[EpisodeSpec]:
        """Remove and yield the episodes whose delay has passed at ``now`` (monotonic seconds). Those to be played
        isolated are kept for ``pop_isolated``."""
        while self._delayed and self._delayed[0][0] <= now:
            spec = heapq.heappop(self._delayed)[2]
            if spec.isolated:
                self._isolated.append(spec)
            else:
                yield spec

    def may_isolate(self, in_flight: int) -> bool:
        """Whether an isolated episode is due, and all ``in_flight`` and delayed ones are isolated, too."""
        alone = in_flight == self._num_playing and all(spec.isolated for _, _, spec in self._delayed)
        return bool(self._isolated) and alone

    def pop_isolated(self) -> EpisodeSpec:
        """Remove and return the next isolated episode that ``pop_due`` has kept, in flight until ``finish``. Does not
        check ``may_isolate``. Raises IndexError if none is kept."""
        spec = self._isolated.popleft()
        self._num_playing += 1
        return spec


class SilenceWatch:
    """Stops a run whose endpoint is gone: ``observe`` counts the attempts in a row that did not reach the policy,
    ``check`` raises if there are enough of them and they go on for at least ``limit_s`` seconds."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._attempts, self._since, self._detail = 0, 0.0, ""

    def observe(self, attempt: Attempt, now: float) -> None:
        if attempt.outcome is not Outcome.POLICY_UNREACHABLE:
            self._attempts = 0
            return
        self._since = self._since if self._attempts else now
        self._attempts += 1
        self._detail = attempt.detail

    def check(self, now: float, in_flight: int) -> None:
        """Raise PolicyUnreachable if the latest attempts in a row did not reach the policy, the first of them ended at
        least ``limit_s`` seconds before ``now`` (monotonic), and they are at least 3 and more than ``in_flight``, the
        number of episodes in flight."""
        lasted = now - self._since
        if self._attempts > max(2, in_flight) and lasted >= self._limit_s:
            raise PolicyUnreachable(
                f"the policy answered nobody for {lasted / 60:.0f} minutes ({self._attempts} attempts in a row, the "
                f"last: {self._detail[:300]}). What was finished is kept: run the same command again once it answers"
            )
