"""A run: plays all episodes without a score in the ledger in a pool, repeats failed attempts, and records each episode.

A process killed at any moment loses only the episodes in flight; the same call resumes. An attempt whose outcome is not
the policy's doing is repeated with the same seeds, a limited number of times per blame, then recorded as missing; the
episode lists why each attempt failed (``retried``), and the next run plays it again. An attempt that was lost with
its host or with other episodes does not count (``Attempt.excused``), so a lost host costs time but no episode. An
episode that is lost again and again is played isolated after all others: if its process dies then, it is the cause.
The run stops if no attempt reaches the policy for ``RetryPolicy.silence_s``."""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from lemur_ray.agents.messages import EndpointRefused
from lemur_ray.agents.recording import record_episodes
from lemur_ray.agents.replay import ReplayPolicy
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Task
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.episode_record import discard_turns
from lemur_ray.rollout.ledger import Episodes, Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.schedule.retries import AttemptHistory, RetryPolicy, RetryQueue, SilenceWatch
from lemur_ray.rollout.schedule.scheduler import EpisodeScheduler
from lemur_ray.rollout.threads import Pool, ThreadPool

REFERENCE_CHARS = 4000
"""Maximum characters of a reference answer stored in the ledger."""
COLLECT_S = 0.5
"""Seconds for which one turn of the loop waits for an episode to end."""


def run_episodes(
    plan: Sequence[EpisodeSpec],
    pool: Pool | None,
    ledger: Ledger,
    *,
    retries: RetryPolicy,
    progress: Progress,
    clock: Callable[[], float],
    cluster: Callable[[Task], str] = attrgetter("cluster"),
) -> Episodes:
    """Play every episode of ``plan`` without a score in the ledger; returns the episodes of ``plan``, in its order.
    Episodes are not held in memory: the returned sequence reads the ledger's file on each access. ``pool``: None if
    every episode has a score. ``clock``: monotonic seconds. ``cluster``: from a task to its group of dependent tasks,
    which is recorded. KeyboardInterrupt, EndpointRefused (the endpoint refuses every request) and PolicyUnreachable (no
    attempt reaches the policy for too long) leave a ledger that the same call continues. ``retries``: how often failed
    attempts are repeated; ``progress``: counts and prints."""
    settled = ledger.episodes(spec.key for spec in plan if ledger.settled(spec.key))
    progress.begin(total=len(plan), finished=settled)
    scheduler, queue = EpisodeScheduler(plan, ledger.settled), RetryQueue(retries)
    silence, in_flight = SilenceWatch(retries.silence_s), 0
    while remaining := len(scheduler) + len(queue) + in_flight:
        assert pool is not None
        pool.expect(remaining)
        for spec in queue.pop_due(clock()):
            scheduler.put_back(spec)
        in_flight += _submit(pool, scheduler, queue, in_flight)
        ended: list[Episode] = []
        fatal_error = ""
        for spec, attempt in pool.collect(timeout_s=COLLECT_S):
            in_flight -= 1
            if attempt.outcome is Outcome.INFRA_LOST:
                discard_turns(spec)
            silence.observe(attempt, clock())
            fatal_error = fatal_error or attempt.fatal_error
            if attempt.fatal_error:
                continue
            history = queue.finish(spec, attempt, clock())
            if history is None:
                progress.retried()
                continue
            scheduler.ended(spec.key)
            ended.append(episode_of(spec, attempt, history, cluster(spec.task)))
        if ended:
            ledger.extend(ended)
            progress.ended(*ended)
        if fatal_error:
            raise EndpointRefused(fatal_error)
        silence.check(clock(), in_flight)
        progress.show(in_flight=in_flight, waiting=queue.num_delayed, pressure=pool.pressure())
    progress.finish()
    return ledger.episodes(spec.key for spec in plan)


def _submit(pool: Pool, scheduler: EpisodeScheduler, queue: RetryQueue, in_flight: int) -> int:
    """Submit the next episodes while the pool has room, isolated ones only while no others are played. Returns the
    number of episodes submitted."""
    before = in_flight
    while in_flight < pool.capacity and (spec := scheduler.next(idle=not (in_flight or len(queue)))):
        pool.submit(spec)
        in_flight += 1
    while queue.may_isolate(in_flight) and in_flight < min(pool.num_isolated, pool.capacity):
        pool.submit(queue.pop_isolated())
        in_flight += 1
    return in_flight - before


def episode_of(spec: EpisodeSpec, attempt: Attempt, history: AttemptHistory, cluster: str) -> Episode:
    """The record of an episode after its last attempt. ``cluster``: name of its group of dependent tasks. ``history``:
    of its earlier attempts."""
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
        quarantined=history.quarantined,
        truncated_prompts=attempt.truncated_prompts,
        scores=attempt.scores,
        reference=_reference(spec.task),
        cluster=cluster,
        started=attempt.started,
        note=attempt.note,
    )


def _reference(task: Task) -> str:
    """The reference answer of a task as text, if it is a text or a number, else empty; for readers of the ledger."""
    reference = task.options.get("reference")
    reference = reference.get("answer") if isinstance(reference, Mapping) else reference
    return str(reference)[:REFERENCE_CHARS] if isinstance(reference, str | int | float) else ""


def replay_episodes(played: Sequence[tuple[Episode, Task]], in_flight: int) -> dict[EpisodeKey, Outcome]:
    """Play each episode's stored replies again on its task, ``in_flight`` episodes at a time, without a model, in
    threads of this process; progress goes to stderr. Returns the new outcomes by key. An episode that ends differently
    has a wrong record, or an environment that is not deterministic."""
    recording = record_episodes((episode for episode, _ in played), "ledger")
    plan = [EpisodeSpec(episode.key, task) for episode, task in played]
    pool = ThreadPool(ReplayPolicy(recording), in_flight)
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "replay.jsonl") as ledger:
        progress = Progress(sys.stderr, time.monotonic, label="replay")
        ended = run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
        return {episode.key: episode.outcome for episode in ended}
