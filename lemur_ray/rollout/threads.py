"""Episodes in threads of this process: the pool without Ray, and what runs inside each actor of the pool with Ray.

One daemon thread per episode in flight plus a companion for its calls (``rollout.calls.deadline``). Both mostly wait,
for a model's answer over HTTP, so hundreds fit in a process. Knows nothing of retries or ledgers.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from lemur_ray.agents.messages import Policy
from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.calls.deadline import CompanionThread
from lemur_ray.rollout.episode import MakeEnv, make_by_id, run_episode


class PoolBroken(Exception):
    """Nothing can be played any more; what was finished is in the ledger."""


class Pool(Protocol):
    """Where orders are played. Not thread-safe: one runner owns it."""

    @property
    def capacity(self) -> int:
        """Episodes it can have in flight now; the runner submits no more."""
        ...

    @property
    def num_isolated(self) -> int:
        """Episodes that can be played each where nothing else is, while nothing else is played at all."""
        ...

    def expect(self, left: int) -> None:
        """No more than so many episodes are still to end: what is not needed for them may go."""
        ...

    def submit(self, spec: EpisodeSpec) -> None:
        """Start an episode."""
        ...

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        """Episodes that ended since the last call; waits at most ``timeout_s`` for the first."""
        ...

    def pressure(self) -> Pressure:
        """How the policy's endpoint holds the episodes back, as far as it is known."""
        ...

    def close(self) -> None:
        """Give everything back; episodes in flight are lost."""
        ...


class EpisodeThreads:
    """Starts episodes in threads and hands each attempt to a callback; counts calls that never came back."""

    def __init__(self, policy: Policy, make_env: MakeEnv = make_by_id) -> None:
        self.stuck = 0
        """Abandoned calls so far: threads that this process can no longer get rid of."""
        self._policy = policy
        self._make_env = make_env
        self._lock = threading.Lock()

    def pressure(self) -> Pressure:
        """How the policy is held back, nothing where it has no such thing."""
        ask: Callable[[], Pressure] | None = getattr(self._policy, "pressure", None)
        return ask() if ask else Pressure()

    def close(self) -> None:
        """Close the policy's connections, where it has any. Threads of episodes in flight end with the process."""
        close: Callable[[], None] | None = getattr(self._policy, "close", None)
        if close:
            close()

    def start(self, spec: EpisodeSpec, done: Callable[[Attempt | KeyboardInterrupt], None]) -> None:
        """Play ``order`` in a thread of its own; ``done`` is called from that thread.

        It is given a KeyboardInterrupt where the policy (a person) left: that stops the whole run, as Ctrl-C does.
        """
        threading.Thread(target=self._play, args=(spec, done), name=spec.task.id, daemon=True).start()

    def _play(self, spec: EpisodeSpec, done: Callable[[Attempt | KeyboardInterrupt], None]) -> None:
        call = CompanionThread(spec.task.id)
        ended: Attempt | KeyboardInterrupt
        # What a policy without a model plays is the same at any time, and so is its record.
        started = (
            "" if getattr(self._policy, "repeats", False) else datetime.now(UTC).isoformat(timespec="milliseconds")
        )
        try:
            attempt = run_episode(spec, self._policy, clock=time.monotonic, call=call, make_env=self._make_env)
            ended = replace(attempt, started=started)
        except KeyboardInterrupt as left:
            ended = left
        except BaseException as error:  # a thread that ended without an answer would be waited for for ever
            ended = Attempt(Outcome.HARNESS_BUG, None, detail=f"episode thread: {error!r}")
        finally:
            call.close()
            with self._lock:
                self.stuck += call.abandoned
        done(ended)


class ThreadPool:
    """The pool in this process: for quick tests, and for policies that cost nothing (random, expert)."""

    num_isolated = 1

    def __init__(self, policy: Policy, capacity: int, make_env: MakeEnv = make_by_id) -> None:
        self.capacity = capacity
        self._threads = EpisodeThreads(policy, make_env)
        self._ended: queue.SimpleQueue[tuple[EpisodeSpec, Attempt | KeyboardInterrupt]] = queue.SimpleQueue()

    def expect(self, left: int) -> None:
        pass

    def submit(self, spec: EpisodeSpec) -> None:
        self._threads.start(spec, lambda attempt: self._ended.put((spec, attempt)))

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        """Raises KeyboardInterrupt where the policy left."""
        try:
            ended = [self._ended.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        while not self._ended.empty():
            ended.append(self._ended.get())
        attempts: list[tuple[EpisodeSpec, Attempt]] = []
        for spec, attempt in ended:
            if isinstance(attempt, KeyboardInterrupt):
                raise attempt
            attempts.append((spec, attempt))
        return attempts

    def pressure(self) -> Pressure:
        return self._threads.pressure()

    def close(self) -> None:
        self._threads.close()


class EmptyPool:
    """The pool of a run that has nothing left to play."""

    capacity = num_isolated = 0

    def expect(self, left: int) -> None:
        pass

    def submit(self, spec: EpisodeSpec) -> None:
        raise AssertionError(f"nothing was left to play, but {spec.key} was submitted")

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        return []

    def pressure(self) -> Pressure:
        return Pressure()

    def close(self) -> None:
        pass
