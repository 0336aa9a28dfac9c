"""Plays episodes in threads of this process: the interface of pools, a pool without Ray, and what each Ray actor uses.

Each episode in flight has one daemon thread and a companion thread for its calls (``rollout.calls.deadline``). Both
mostly wait for a model's reply over HTTP, so hundreds fit in a process."""

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
from lemur_ray.host.exit_codes import ExitCode
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.calls.deadline import CompanionThread
from lemur_ray.rollout.calls.env_session import MakeEnv
from lemur_ray.rollout.episode import make_by_id, run_episode


class PoolBroken(Exception):
    """Raised if a pool can play no episode any more (no host, or only losses); the message has the reason."""

    exit_code = ExitCode.TRY_AGAIN


class Pool(Protocol):
    """Interface of a pool, which plays episodes concurrently. Not thread-safe: one runner uses it."""

    @property
    def capacity(self) -> int:
        """Maximum number of episodes in flight at present; the runner submits no more."""

    @property
    def num_isolated(self) -> int:
        """Number of isolated episodes (each alone in its process) that may be in flight at a time."""

    def expect(self, remaining: int) -> None:
        """Announce that at most ``remaining`` episodes have yet to end, so that the pool may free surplus processes."""

    def submit(self, spec: EpisodeSpec) -> None:
        """Start an episode without waiting; ``collect`` returns its attempt once it has ended."""

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        """(episode, attempt) pairs for attempts that have ended since the last call, possibly empty; waits up to
        ``timeout_s`` seconds for the first."""

    def pressure(self) -> Pressure:
        """Limit, queue and refusals of requests to endpoints, as far as they are known."""

    def close(self) -> None:
        """Free all resources; episodes in flight are lost."""


class EpisodeThreads:
    """Plays each episode in a new thread with ``policy``, passes its attempt to a callback, and counts calls that never
    returned (``stuck``). ``make_env``: creates an environment from its id."""

    def __init__(self, policy: Policy, make_env: MakeEnv = make_by_id) -> None:
        self.stuck = 0
        """Number of abandoned calls, whose threads this process cannot end."""
        self.policy = policy
        """Policy of the episodes that start from now on."""
        self._make_env = make_env
        self._lock = threading.Lock()

    def pressure(self) -> Pressure:
        """Limit, queue and refusals of requests to the policy's endpoint; all 0 for a policy without one."""
        ask: Callable[[], Pressure] | None = getattr(self.policy, "pressure", None)
        return ask() if ask else Pressure()

    def close(self) -> None:
        """Close the policy's connections, if it has any. Threads of episodes in flight end with the process."""
        close: Callable[[], None] | None = getattr(self.policy, "close", None)
        if close:
            close()

    def start(self, spec: EpisodeSpec, done: Callable[[Attempt | KeyboardInterrupt], None]) -> None:
        """Play an episode in a new thread, which calls ``done`` at its end. ``done`` gets a KeyboardInterrupt if the
        policy (a person) left: that stops the whole run, as Ctrl-C does."""
        threading.Thread(target=self._play, args=(spec, self.policy, done), name=spec.task.id, daemon=True).start()

    def _play(self, spec: EpisodeSpec, policy: Policy, done: Callable[[Attempt | KeyboardInterrupt], None]) -> None:
        call = CompanionThread(spec.task.id)
        ended: Attempt | KeyboardInterrupt
        # A policy without a model always plays the same, so its record has no times that would differ.
        repeats = getattr(policy, "repeats", False)
        started = "" if repeats else datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            attempt = run_episode(spec, policy, clock=time.monotonic, call=call, make_env=self._make_env)
            ended = replace(attempt, started=started)
        except KeyboardInterrupt as left:
            ended = left
        except BaseException as error:  # without an attempt, the runner would wait for this episode for ever
            ended = Attempt(Outcome.HARNESS_BUG, None, detail=f"episode thread: {error!r}")
        finally:
            call.close()
            with self._lock:
                self.stuck += call.abandoned
        done(ended)


class ThreadPool:
    """A ``Pool`` of at most ``capacity`` threads in this process: for tests, people, and policies that cost nothing."""

    num_isolated = 1

    def __init__(self, policy: Policy, capacity: int, make_env: MakeEnv = make_by_id) -> None:
        self.capacity = capacity
        self._threads = EpisodeThreads(policy, make_env)
        self._ended: queue.SimpleQueue[tuple[EpisodeSpec, Attempt | KeyboardInterrupt]] = queue.SimpleQueue()

    def expect(self, remaining: int) -> None:
        pass

    def submit(self, spec: EpisodeSpec) -> None:
        self._threads.start(spec, lambda attempt: self._ended.put((spec, attempt)))

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        """As ``Pool.collect``. Raises KeyboardInterrupt if the policy, a person at the terminal, ended the input."""
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
