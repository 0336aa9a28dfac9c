"""Hosts with actors on a clock of their own: what is lost, fails or is slow there is said by a test, and nobody waits.

The real pool and the real runner play on them.
"""

from __future__ import annotations

import heapq
import io
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.rollout.actors.actor import ActorEvent, ActorLost, ActorStarted, EpisodeEnded
from lemur_ray.rollout.actors.pool import ActorPool, PoolLimits
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy

SOLVED = Attempt(Outcome.SOLVED, 1.0)
DIES = None
"""What becomes of an order that ends the process it is played in."""


class Hosts:
    """A backend.

    play: a host's name and an order -> seconds, and how it ends there. starts_s: of an actor. turn_s: how long the
    driver is busy (it syncs the ledger) after an event; what happens meanwhile it handles together.
    """

    def __init__(
        self,
        names: Iterable[str],
        play: Callable[[str, EpisodeSpec], tuple[float, Attempt | None]],
        starts_s: float = 8.0,
        turn_s: float = 0.0,
    ) -> None:
        self.now, self.up, self._play, self.starts_s, self.turn_s = 0.0, set(names), play, starts_s, turn_s
        self.actors: dict[SimulatedActor, None] = {}
        self.placed: Counter[str] = Counter()
        self.attempts = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers, self._random = itertools.count(1), random.Random(0)

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), do))

    def pass_time(self, seconds: float) -> None:
        """Until something happens, at most so long."""
        until = self.now + seconds
        if self._due and self._due[0][0] <= until:
            self.now, _, do = heapq.heappop(self._due)
            do()
        else:
            self.now = until

    def lose(self, name: str, back_s: float, noticed_s: float = 15.0) -> None:
        """A host goes silent, which is noticed later, and is back then or later still."""
        self.up.discard(name)
        for actor in [one for one in self.actors if one.host == name]:
            actor.is_silent = True
            self.after(noticed_s, lambda gone=actor: gone.tell(ActorLost("its node has died", with_host=True)))  # type: ignore[misc]
        self.after(max(back_s, noticed_s), lambda: self.up.add(name))

    def cut_off(self, name: str, back_s: float, noticed_s: float = 15.0) -> None:
        """A host that nobody reaches. If it is back before that is noticed, what happened there comes late; else its
        actors count as lost, play on in vain, and the host takes new ones when it is back."""
        if back_s < noticed_s:
            for actor in [one for one in self.actors if one.host == name]:
                actor.reached_at = max(actor.reached_at, self.now + back_s)
        else:
            self.lose(name, back_s, noticed_s)

    def kill_any(self) -> None:
        """One process that runs, as a host does that is short of memory."""
        if running := [one for one in self.actors if one.runs and not one.is_silent]:
            self._random.choice(running).die()

    def start_actor(self, tell: Callable[[ActorEvent], None]) -> SimulatedActor:
        actor = SimulatedActor(self, tell)
        self.actors[actor] = None
        actor.place()
        return actor

    def played(self, actor: SimulatedActor, spec: EpisodeSpec, ticket: int) -> None:
        self.attempts += 1
        seconds, attempt = self._play(actor.host, spec)

        def end() -> None:
            if not actor.is_silent:
                actor.die() if attempt is DIES else actor.tell(EpisodeEnded(ticket, attempt))

        self.after(seconds, end)

    def request_pressure(self, tell: Callable[[int, Pressure], None]) -> None:
        pass

    def shortage(self, num_actors: int) -> str:
        return f"{num_actors} environment actors wait for a host"

    def close(self) -> None:
        pass


class SimulatedActor:
    def __init__(self, hosts: Hosts, tell: Callable[[ActorEvent], None]) -> None:
        self._tell, self._hosts = tell, hosts
        self.host, self.runs, self.is_silent = "", False, False
        self.reached_at = 0.0
        """Time from which on the pool hears of it."""

    def tell(self, event: ActorEvent) -> None:
        if self.reached_at <= self._hosts.now or isinstance(event, ActorLost):
            self._tell(event)
        else:
            self._hosts.after(self.reached_at - self._hosts.now, lambda: self._tell(event))

    def place(self) -> None:
        """On the host with fewest, as soon as there is any."""
        if self.is_silent:
            return
        if not self._hosts.up:
            self._hosts.after(1.0, self.place)
            return
        self.host = min(sorted(self._hosts.up), key=self._hosts.placed.__getitem__)
        self._hosts.placed[self.host] += 1
        self._hosts.after(self._hosts.starts_s, self._run)

    def _run(self) -> None:
        if not self.is_silent:
            self.runs = True
            self.tell(ActorStarted(id(self), elsewhere=True))

    def die(self) -> None:
        if not self.is_silent:
            self.is_silent = True
            self.tell(ActorLost("its worker process has died"))

    def settle(self) -> None:
        pass

    def play(self, spec: EpisodeSpec, ticket: int) -> None:
        self._hosts.played(self, spec, ticket)

    def request_pressure(self) -> None:
        pass

    def end(self) -> None:
        self.is_silent = True
        del self._hosts.actors[self]
        self._hosts.placed[self.host] -= 1


class SimulatedPool(ActorPool):
    """Whoever waits for news lets time pass."""

    _backend: Hosts

    def _next_events(self, timeout_s: float) -> Any:
        until = self._backend.now + timeout_s
        while self._events.empty() and self._backend.now < until:
            self._backend.pass_time(until - self._backend.now)
        until = self._backend.now + self._backend.turn_s
        while self._backend.now < until:
            self._backend.pass_time(until - self._backend.now)
        return super()._next_events(0.0)


def run_on(hosts: Hosts, tasks: Sequence[Task], path: Path, **pool: Any) -> list[Episode]:
    """Raises PoolBroken, and AssertionError after a simulated day."""
    hosts.after(86_400.0, _never_ends)
    limits = PoolLimits(**{"num_actors": 3, "episodes_per_actor": 3, **pool})
    actors = SimulatedPool(hosts, limits, clock=lambda: hosts.now)
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())
    progress = Progress(io.StringIO(), lambda: hosts.now)
    with Ledger(path) as ledger:
        return list(
            run_episodes(plan, actors, ledger, retries=RetryPolicy(), progress=progress, clock=lambda: hosts.now)
        )


def _never_ends() -> None:
    raise AssertionError("a day is over")
