"""A run: tasks x epochs minus what the ledger holds, played through a pool, retried by blame, each written once.

Killing the process at any moment loses only what was in flight; the same call resumes. An outcome that is not the
policy's is tried again with the same seeds a bounded number of times for each blame, then recorded as missing; what
every earlier attempt died of stays in the episode (``retried``), and the next run plays it again. An attempt that was
lost with its host, or where others were lost as well, does not count (``Attempt.excused``): losing a host costs time
and no episode. One to which that happens again and again is played apart, when everything else has ended: what ends
its process then is itself. Where nothing but silence comes from the policy in ``RetryPolicy.silence_s``, it stops.
Knows nothing of Ray, models or environments.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from lemur_ray.agents.messages import EndpointRefused, PolicyUnreachable
from lemur_ray.agents.trajectory import Blame, Episode, EpisodeKey, Outcome, Task
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.ledger import Episodes, Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.schedule.scheduler import EpisodeScheduler
from lemur_ray.rollout.threads import Pool

REFERENCE_CHARS = 4000
"""Of a reference, as much as is kept."""


@dataclass
class _Silence:
    """Attempts in a row that found the policy unreachable."""

    attempts: int = 0
    since: float = 0.0

    def heard(self, outcome: Outcome, now: float) -> None:
        if outcome is not Outcome.POLICY_UNREACHABLE:
            self.attempts = 0
        else:
            self.since = self.since if self.attempts else now
            self.attempts += 1

    def check(self, now: float, in_flight: int, retries: RetryPolicy, detail: str) -> None:
        """Raises PolicyUnreachable where going on would only cost time."""
        lasted = now - self.since
        if self.attempts > max(2, in_flight) and lasted >= retries.silence_s:
            raise PolicyUnreachable(
                f"the policy answered nobody for {lasted / 60:.0f} minutes ({self.attempts} attempts in a row, the "
                f"last: {detail[:300]}). What was finished is kept: run the same command again once it answers"
            )


@dataclass
class _Try:
    """How often an order was tried, and what it died of so far."""

    number: int = 1
    reasons: tuple[str, ...] = ()
    excused: int = 0
    counted: Counter[Blame] = field(default_factory=Counter)
    """Attempts that were not excused."""

    def again(self, attempt: Attempt, retries: RetryPolicy) -> bool:
        """Whether another attempt is due after this one."""
        if attempt.outcome.scored:
            return False
        if attempt.excused:
            self.excused += 1
            return True
        self.counted[attempt.outcome.blame] += 1
        return self.counted[attempt.outcome.blame] <= retries.allowed(attempt.outcome)


def run_episodes(
    plan: Sequence[EpisodeSpec],
    pool: Pool,
    ledger: Ledger,
    *,
    retries: RetryPolicy,
    progress: Progress,
    clock: Callable[[], float],
    cluster: Callable[[Task], str] = attrgetter("cluster"),
) -> Episodes:
    """Play every order without a score in the ledger; return the episodes of all of them, in the order of ``orders``.

    An episode is written and forgotten: what is returned reads the ledger's file whenever it is looked at.

    ``clock``: monotonic seconds. ``cluster``: of a task, as its episodes are to say. KeyboardInterrupt, EndpointRefused
    (nobody will be answered) and PolicyUnreachable (a policy that answers nobody for too long) leave a ledger that the
    same call continues.
    """
    agenda = EpisodeScheduler(plan, ledger.settled)
    settled = ledger.episodes(spec.key for spec in plan if ledger.settled(spec.key))
    progress.begin(total=len(plan), finished=settled)
    tries: dict[EpisodeKey, _Try] = {}
    later: list[tuple[float, int, EpisodeSpec]] = []
    isolated: deque[EpisodeSpec] = deque()
    tie_break = itertools.count()
    in_flight, of_them_apart, detail, refused = 0, 0, "", ""
    silence = _Silence()
    while left := len(agenda) + len(later) + len(isolated) + in_flight:
        pool.expect(left)
        while later and later[0][0] <= clock():
            due_now = heapq.heappop(later)[2]
            isolated.append(due_now) if due_now.isolated else agenda.put_back(due_now)
        while in_flight < pool.capacity and (spec := agenda.next(idle=not (in_flight or later or isolated))):
            pool.submit(spec)
            in_flight += 1
        if isolated and in_flight == of_them_apart and all(one.isolated for _, _, one in later):
            while isolated and in_flight < min(pool.num_isolated, pool.capacity):
                pool.submit(isolated.popleft())
                in_flight, of_them_apart = in_flight + 1, of_them_apart + 1
        ended: list[Episode] = []
        for spec, attempt in pool.collect(timeout_s=0.5):
            in_flight, of_them_apart = in_flight - 1, of_them_apart - spec.isolated
            silence.heard(attempt.outcome, clock())
            detail = attempt.detail
            refused = refused or attempt.fatal_error
            if attempt.fatal_error:
                continue
            tried = tries.setdefault(spec.key, _Try())
            if tried.again(attempt, retries):
                tried.reasons += (f"attempt {tried.number}: {attempt.outcome.value}: {attempt.detail}"[:2000],)
                due = clock() + retries.delay_s(attempt.outcome, tried.number)
                tried.number += 1
                spec = replace(spec, isolated=tried.excused > retries.infra)
                heapq.heappush(later, (due, next(tie_break), spec))
                progress.retried(attempt.outcome)
                continue
            del tries[spec.key]
            agenda.ended(spec.key)
            ended.append(_episode(spec, attempt, tried, cluster(spec.task)))
        if ended:
            ledger.extend(ended)
            progress.ended(*ended)
        if refused:
            raise EndpointRefused(refused)
        if silence.attempts:
            silence.check(clock(), in_flight, retries, detail)
        progress.show(in_flight=in_flight, waiting=len(later), pressure=pool.pressure())
    progress.finish()
    return ledger.episodes(spec.key for spec in plan)


def _episode(spec: EpisodeSpec, attempt: Attempt, tried: _Try, cluster: str) -> Episode:
    return Episode(
        key=spec.key,
        category=spec.task.category,
        outcome=attempt.outcome,
        score=attempt.score,
        attempts=tried.number,
        trajectory=attempt.trajectory,
        wall_s=round(attempt.wall_s, 4),
        detail=attempt.detail,
        retried=tried.reasons,
        scores=attempt.scores,
        reference=_reference(spec.task),
        cluster=cluster,
        started=attempt.started,
        note=attempt.note,
    )


def _reference(task: Task) -> str:
    """What answers are compared with, where a task says so in a word or a number; for readers of the ledger."""
    found = task.options.get("reference")
    found = found.get("answer") if isinstance(found, Mapping) else found
    return str(found)[:REFERENCE_CHARS] if isinstance(found, str | int | float) else ""
