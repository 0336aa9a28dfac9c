"""A run: tasks x epochs minus what the ledger holds, played in a pool, retried by blame, each written once.

A process killed at any moment loses only the episodes in flight; the same call resumes. An outcome that is not the
policy's doing is tried again with the same seeds, a bounded number of times for each blame, then recorded as missing;
the episode lists why each attempt failed (``retried``), and the next run plays it again. An attempt that was lost with
its host or with other episodes does not count (``Attempt.excused``), so a lost host costs time but no episode. An
episode that is lost again and again is played isolated after all others: if its process dies then, it is the cause.
The run stops if no attempt reaches the policy for ``RetryPolicy.silence_s``. Knows nothing of Ray, models or
environments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from lemur_ray.agents.messages import EndpointRefused
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.ledger import Episodes, Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.schedule.retries import AttemptHistory, RetryPolicy, RetryQueue, SilenceWatch
from lemur_ray.rollout.schedule.scheduler import EpisodeScheduler
from lemur_ray.rollout.threads import Pool

REFERENCE_CHARS = 4000
"""Maximum characters of a reference answer stored in the ledger."""
COLLECT_S = 0.5
"""How long one turn of the loop waits for an episode to end."""


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
    """Play every episode without a score in the ledger; return the episodes of ``plan``, in its order.

    Episodes are not held in memory: the returned sequence reads the ledger's file on each access.

    ``clock``: monotonic seconds. ``cluster``: the cluster of a task, recorded with its episodes. KeyboardInterrupt,
    EndpointRefused (the endpoint refuses every request) and PolicyUnreachable (no attempt reaches the policy for too
    long) leave a ledger that the same call continues.
    """
    settled = ledger.episodes(spec.key for spec in plan if ledger.settled(spec.key))
    progress.begin(total=len(plan), finished=settled)
    scheduler, queue = EpisodeScheduler(plan, ledger.settled), RetryQueue(retries)
    silence = SilenceWatch(retries.silence_s)
    in_flight = _InFlight(pool)
    while remaining := len(scheduler) + len(queue) + in_flight.total:
        pool.expect(remaining)
        for spec in queue.pop_due(clock()):
            scheduler.put_back(spec)
        in_flight.fill(scheduler, queue)
        ended: list[Episode] = []
        fatal_error = ""
        for spec, attempt in in_flight.collect():
            silence.observe(attempt, clock())
            fatal_error = fatal_error or attempt.fatal_error
            if attempt.fatal_error:
                continue
            history = queue.finish(spec, attempt, clock())
            if history is None:
                progress.retried(attempt.outcome)
                continue
            scheduler.ended(spec.key)
            ended.append(episode_of(spec, attempt, history, cluster(spec.task)))
        if ended:
            ledger.extend(ended)
            progress.ended(*ended)
        if fatal_error:
            raise EndpointRefused(fatal_error)
        silence.check(clock(), in_flight.total)
        progress.show(in_flight=in_flight.total, waiting=queue.num_delayed, pressure=pool.pressure())
    progress.finish()
    return ledger.episodes(spec.key for spec in plan)


class _InFlight:
    """Counts the episodes that the pool plays, and submits more while it has room."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.total = self._isolated = 0

    def fill(self, scheduler: EpisodeScheduler, queue: RetryQueue) -> None:
        """Submit what comes next; isolated episodes only while nothing else is played."""
        while self.total < self._pool.capacity:
            spec = scheduler.next(idle=not (self.total or len(queue)))
            if spec is None:
                break
            self._submit(spec)
        while self.total == self._isolated and queue.has_isolated:
            if self.total >= min(self._pool.num_isolated, self._pool.capacity):
                break
            self._submit(queue.pop_isolated())

    def collect(self) -> list[tuple[EpisodeSpec, Attempt]]:
        """The attempts that have ended."""
        ended = self._pool.collect(timeout_s=COLLECT_S)
        self.total -= len(ended)
        self._isolated -= sum(spec.isolated for spec, _ in ended)
        return ended

    def _submit(self, spec: EpisodeSpec) -> None:
        self._pool.submit(spec)
        self.total += 1
        self._isolated += spec.isolated


def episode_of(spec: EpisodeSpec, attempt: Attempt, history: AttemptHistory, cluster: str) -> Episode:
    """The record of an episode after its last attempt."""
    return Episode(
        key=spec.key,
        category=spec.task.category,
        outcome=attempt.outcome,
        score=attempt.score,
        attempts=history.number,
        trajectory=attempt.trajectory,
        wall_s=round(attempt.wall_s, 4),
        detail=attempt.detail,
        retried=history.reasons,
        scores=attempt.scores,
        reference=_reference(spec.task),
        cluster=cluster,
        started=attempt.started,
        note=attempt.note,
    )


def _reference(task: Task) -> str:
    """The reference answer of a task, if it is a text or a number; for readers of the ledger."""
    reference = task.options.get("reference")
    reference = reference.get("answer") if isinstance(reference, Mapping) else reference
    return str(reference)[:REFERENCE_CHARS] if isinstance(reference, str | int | float) else ""
