"""A run: tasks x epochs minus what the ledger holds, played through a pool, retried by blame, each written once.

Killing the process at any moment loses only what was in flight; the same call resumes. An outcome that is not the
policy's is tried again with the same seeds a bounded number of times for each blame, then recorded as missing; what
every earlier attempt died of stays in the episode (``retried``), and the next run plays it again. An attempt that was
lost with its host, or where others were lost as well, does not count (``Attempt.excused``): losing a host costs time
and no episode. One to which that happens again and again is played apart, when everything else has ended: what ends
its process then is itself. Where nothing but silence comes from the policy for ``Retries.silence_s``, the run stops.
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
from lemur_ray.rollout.attempt import Attempt, Order
from lemur_ray.rollout.ledger import Episodes, Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.scheduler import EpisodeScheduler
from lemur_ray.rollout.threads import Pool

REFERENCE_CHARS = 4000
"""Of a reference, as much as is kept."""
LONGEST_DELAY_S = 60.0


@dataclass(frozen=True)
class Retries:
    """How often an attempt that says nothing of the policy is repeated, and how long the runner waits before."""

    env: int = 2
    infra: int = 3
    harness: int = 1
    unreachable_delay_s: float = 5.0
    """Before another attempt at an endpoint that did not answer; doubles with each attempt, up to LONGEST_DELAY_S."""
    infra_delay_s: float = 1.0
    """Likewise at an episode that its host lost."""
    silence_s: float = 300.0
    """Of attempts that all found the policy unreachable, more than are in flight: then the run stops."""

    def allowed(self, outcome: Outcome) -> int:
        """Repetitions after the first attempt."""
        return {Blame.POLICY: 0, Blame.ENV: self.env, Blame.INFRA: self.infra, Blame.HARNESS: self.harness}[
            outcome.blame
        ]

    def delay_s(self, outcome: Outcome, attempt: int) -> float:
        """Seconds to wait after attempt number ``attempt`` (1-based)."""
        first_s = {Outcome.POLICY_UNREACHABLE: self.unreachable_delay_s, Outcome.INFRA_LOST: self.infra_delay_s}
        return min(LONGEST_DELAY_S, first_s.get(outcome, 0.0) * 2 ** min(attempt - 1, 10))


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

    def check(self, now: float, in_flight: int, retries: Retries, detail: str) -> None:
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

    def again(self, attempt: Attempt, retries: Retries) -> bool:
        """Whether another attempt is due after this one."""
        if attempt.outcome.scored:
            return False
        if attempt.excused:
            self.excused += 1
            return True
        self.counted[attempt.outcome.blame] += 1
        return self.counted[attempt.outcome.blame] <= retries.allowed(attempt.outcome)


def run_orders(
    orders: Sequence[Order],
    pool: Pool,
    ledger: Ledger,
    *,
    retries: Retries,
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
    agenda = EpisodeScheduler(orders, ledger.settled)
    settled = ledger.episodes(order.key for order in orders if ledger.settled(order.key))
    progress.begin(total=len(orders), finished=settled)
    tries: dict[EpisodeKey, _Try] = {}
    later: list[tuple[float, int, Order]] = []
    apart: deque[Order] = deque()
    tie_break = itertools.count()
    in_flight, of_them_apart, detail, refused = 0, 0, "", ""
    silence = _Silence()
    while left := len(agenda) + len(later) + len(apart) + in_flight:
        pool.expect(left)
        while later and later[0][0] <= clock():
            due_now = heapq.heappop(later)[2]
            apart.append(due_now) if due_now.apart else agenda.put_back(due_now)
        while in_flight < pool.capacity and (order := agenda.next(idle=not (in_flight or later or apart))):
            pool.submit(order)
            in_flight += 1
        if apart and in_flight == of_them_apart and all(one.apart for _, _, one in later):
            while apart and in_flight < min(pool.num_apart, pool.capacity):
                pool.submit(apart.popleft())
                in_flight, of_them_apart = in_flight + 1, of_them_apart + 1
        ended: list[Episode] = []
        for order, attempt in pool.collect(timeout_s=0.5):
            in_flight, of_them_apart = in_flight - 1, of_them_apart - order.apart
            silence.heard(attempt.outcome, clock())
            detail = attempt.detail
            refused = refused or attempt.ends_run
            if attempt.ends_run:
                continue
            tried = tries.setdefault(order.key, _Try())
            if tried.again(attempt, retries):
                tried.reasons += (f"attempt {tried.number}: {attempt.outcome.value}: {attempt.detail}"[:2000],)
                due = clock() + retries.delay_s(attempt.outcome, tried.number)
                tried.number += 1
                order = replace(order, apart=tried.excused > retries.infra)
                heapq.heappush(later, (due, next(tie_break), order))
                progress.retried(attempt.outcome)
                continue
            del tries[order.key]
            agenda.ended(order.key)
            ended.append(_episode(order, attempt, tried, cluster(order.task)))
        if ended:
            ledger.extend(ended)
            progress.ended(*ended)
        if refused:
            raise EndpointRefused(refused)
        if silence.attempts:
            silence.check(clock(), in_flight, retries, detail)
        progress.show(in_flight=in_flight, waiting=len(later), pressure=pool.pressure())
    progress.finish()
    return ledger.episodes(order.key for order in orders)


def _episode(order: Order, attempt: Attempt, tried: _Try, cluster: str) -> Episode:
    return Episode(
        key=order.key,
        category=order.task.category,
        outcome=attempt.outcome,
        score=attempt.score,
        attempts=tried.number,
        trajectory=attempt.trajectory,
        wall_s=round(attempt.wall_s, 4),
        detail=attempt.detail,
        retried=tried.reasons,
        scores=attempt.scores,
        reference=_reference(order.task),
        cluster=cluster,
        started=attempt.started,
        note=attempt.note,
    )


def _reference(task: Task) -> str:
    """What answers are compared with, where a task says so in a word or a number; for readers of the ledger."""
    found = task.options.get("reference")
    found = found.get("answer") if isinstance(found, Mapping) else found
    return str(found)[:REFERENCE_CHARS] if isinstance(found, str | int | float) else ""
