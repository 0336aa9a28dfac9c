"""Episodes in many actors: each is a process that plays many episodes at once; the pool says who plays what.

| fault | what the pool does |
|---|---|
| an actor or its node dies | its episodes end as infra_lost (the runner tries them again), a new actor replaces it |
| an actor lives and loses one episode after another | it rests, longer each time, and is then tried with one |
| all of them do, for long | what ended is handed out, then PoolBroken |
| its process says nothing for ``SILENT_S`` | it is ended, and counts as lost |
| no node has room for an actor | it gets no episodes until one has; the others play on |
| calls in an actor never come back | after ``max_stuck`` of them it gets no more episodes, and is replaced once idle |
| actors die again and again, for long, and nothing is played | likewise |
| no actor has a node for long | PoolBroken |

What takes many actors at once, a node for example, is one loss: actors count that were begun after the last one. What
is lost so, or with others, or by an actor that loses everything, is excused (``Attempt.excused``); an episode is not
that was alone in a process that ended, or that nothing speaks for but its own loss. Where
fewer episodes are left than there are places, actors that are not needed end, so that an autoscaler takes their hosts.

What an episode costs here does not grow with the number of actors: they tell what happens in a queue, and nobody looks
at all of them. Knows nothing of Ray, of retries or of ledgers.
"""

from __future__ import annotations

import itertools
import math
import queue
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import Blame, Outcome
from lemur_ray.rollout.actors.actor import ActorBackend, ActorEvent, ActorLost, ActorStarted, EpisodeEnded
from lemur_ray.rollout.actors.membership import Member, Membership
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.threads import PoolBroken

PRESSURE_EVERY_S = 2.0
ASKED_AT_ONCE = 100
"""Actors are asked for their pressure in turns, so many each time."""
SAY_AFTER_S = 60.0
"""So long may actors wait for a node before it is said."""
IDLE_S = 20.0
"""So long may an actor, or the wish for one, outlive its use."""
SILENT_S = 600.0
"""So long may a process that runs leave a question open."""
LONGEST_REST_S = 60.0
"""Of an actor that loses whatever it plays."""


class ActorPool:
    """At most ``num_actors`` actors with ``episodes_per_actor`` episodes each. One thread uses it."""

    def __init__(
        self,
        backend: ActorBackend,
        *,
        num_actors: int,
        episodes_per_actor: int,
        max_stuck: int = 8,
        max_deaths: int = 5,
        start_timeout_s: float = 600.0,
        quiet_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``max_deaths``: losses in a row without one episode coming back, and ``quiet_s`` seconds without one: of more
        the pool breaks. ``clock``: monotonic seconds.

        Begins with the first actor that runs. Raises PoolBroken, BundleError."""
        self._backend, self._clock = backend, clock
        self._num_actors, self._episodes_per_actor = num_actors, episodes_per_actor
        self._max_deaths, self._start_timeout_s, self._quiet_s = max_deaths, start_timeout_s, quiet_s
        self._events: queue.SimpleQueue[tuple[Member | int, ActorEvent]] = queue.SimpleQueue()
        self._tickets = itertools.count()
        self._membership = Membership(episodes_per_actor, max_stuck, clock)
        self._wanted = num_actors
        """As many as the episodes that are left need."""
        self._enough_since = math.inf
        """Since when those that run have been enough."""
        self._losses = self._in_a_row = 0
        self._losing_since = math.inf
        """The first loss since an episode came back that was not lost."""
        self._resting: list[Member] = []
        self._broken = ""
        self._waits_since = clock()
        """Since when some actor has had no node."""
        self._said = False
        self._ask_at = clock() + PRESSURE_EVERY_S
        self._to_ask: deque[Member] = deque()
        self._gates: dict[int, Pressure] = {}
        self._pressure = Pressure()
        try:
            self._staff()
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        deadline = self._clock() + self._start_timeout_s
        while not self.capacity:
            told = self._told(max(0.0, deadline - self._clock()))
            if not told:
                raise PoolBroken(self._backend.lacking(self._num_actors))
            for source, event in told:
                if not isinstance(source, Member) or source not in self._membership:
                    continue
                if isinstance(event, ActorLost):
                    self._remove(source)  # with its host, perhaps, and others have theirs
                    if not len(self._membership):
                        raise PoolBroken(f"environment actors do not start: {event.why}")
                elif isinstance(event, ActorStarted):
                    self._runs(source, event)

    @property
    def capacity(self) -> int:
        """Episodes for which there are actors that run and take more; and those that the others still play."""
        return self._membership.capacity

    @property
    def pids(self) -> list[int]:
        """Processes of the actors that run, each on its own node."""
        return [member.pid for member in self._membership if member.pid]

    @property
    def num_isolated(self) -> int:
        return self._membership.num_open

    def expect(self, left: int) -> None:
        """Have as many actors as so many episodes need; those that are too many end where they are idle."""
        self._wanted = max(1, min(self._num_actors, math.ceil(left / self._episodes_per_actor)))
        self._staff()

    def submit(self, spec: EpisodeSpec) -> None:
        """To one of those that play least. Raises BundleError, and IndexError beyond the capacity."""
        member = self._membership.least_busy()
        if member is None:
            raise IndexError(f"{spec.key}: every actor plays as many episodes as it takes")
        ticket = next(self._tickets)
        member.in_flight[ticket] = spec
        self._membership.changed(member)
        member.actor.play(spec, ticket)

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        if self._broken:
            raise PoolBroken(self._broken)
        self._look_at_waiting()
        self._wake()
        ended: list[tuple[EpisodeSpec, Attempt]] = []
        gone: dict[Member, ActorLost] = {}
        for source, event in self._told(timeout_s):
            if isinstance(source, int):
                if isinstance(event, Pressure):
                    self._add(event, self._gates.get(source, Pressure()))
                    self._gates[source] = event
            elif source not in self._membership:
                continue  # it is replaced, and what it played is given up
            elif isinstance(event, EpisodeEnded):
                ended.append(self._ended(source, event))
            elif isinstance(event, ActorStarted):
                self._runs(source, event)
            elif isinstance(event, ActorLost):
                gone.setdefault(source, event)
            else:
                source.asked_at = math.inf
                self._add(event, source.pressure)
                source.pressure = event
        for member, event in gone.items():
            if member in self._membership:
                self._lose(member, replace(event, with_host=event.with_host or len(gone) > 1), ended)
        self._release()
        self._staff()
        return ended

    def pressure(self) -> Pressure:
        """The sum over the actors and the gates, each as it last told."""
        if self._clock() >= self._ask_at:
            self._ask_at = self._clock() + PRESSURE_EVERY_S
            self._backend.ask(lambda gate, pressure: self._events.put((gate, pressure)))
            self._to_ask = self._to_ask or deque(self._membership)
            for _ in range(min(ASKED_AT_ONCE, len(self._to_ask))):
                member = self._to_ask.popleft()
                if not member.pid or member not in self._membership:
                    continue
                if member.asked_at == math.inf:
                    member.asked_at = self._clock()
                    member.actor.ask()
                elif (silent_s := self._clock() - member.asked_at) >= SILENT_S:
                    self._tell(
                        member, ActorLost(f"it answered nothing for {silent_s / 60:.0f} minutes", with_host=True)
                    )
        return self._pressure

    def close(self) -> None:
        for member in list(self._membership):
            self._remove(member)
        self._backend.close()

    def _told(self, timeout_s: float) -> list[tuple[Member | int, ActorEvent]]:
        """Everything that was told by now; waits at most ``timeout_s`` for the first."""
        try:
            told = [self._events.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        return told + [self._events.get() for _ in range(self._events.qsize())]  # nobody else takes any

    def _staff(self) -> None:
        """Ask for the actors that lack; wherever there is room for one, it will say so."""
        membership = self._membership
        while len(membership) < self._num_actors and membership.num_open + membership.num_pending < self._wanted:
            member = Member(self._losses)
            member.actor = self._backend.begin(partial(self._tell, member))
            membership.add(member)

    def _tell(self, member: Member, event: ActorEvent) -> None:
        self._events.put((member, event))

    def _runs(self, member: Member, event: ActorStarted) -> None:
        """Raises BundleError."""
        member.actor.settle()
        member.pid, member.elsewhere = event.pid, event.elsewhere
        self._membership.changed(member)
        self._waits_since = self._clock()

    def _ended(self, member: Member, event: EpisodeEnded) -> tuple[EpisodeSpec, Attempt]:
        spec, attempt = member.in_flight.pop(event.ticket), event.attempt
        if attempt.outcome.blame is not Blame.INFRA:
            self._in_a_row, self._losing_since = 0, math.inf
            member.lost, member.num_lost = set(), 0
        else:
            attempt = self._lost_there(member, spec, attempt)
        member.stuck = max(member.stuck, event.stuck)  # answers arrive in any order, and it never falls
        self._membership.changed(member)
        if self._membership.is_worn(member) and not member.in_flight:
            self._remove(member)
        return spec, attempt

    def _lost_there(self, member: Member, spec: EpisodeSpec, attempt: Attempt) -> Attempt:
        """An actor that lost several episodes one after another is what is wrong, and not they."""
        if spec.isolated:
            return replace(attempt, excused=False)
        member.num_lost += 1
        if len(member.lost) < 2:
            member.lost.add(spec.key)
        if len(member.lost) < 2:
            return attempt
        if not member.rests:
            self._resting.append(member)
        rest_s = min(LONGEST_REST_S, 2.0 ** min(member.num_lost - 2, 10))
        member.rests, member.rests_until = True, self._clock() + rest_s
        if attempt.outcome is Outcome.INFRA_LOST and self._is_quiet() and self._all_lose():
            self._broken = f"for {self._quiet_s / 60:.0f} minutes no host could play anything: {attempt.detail[:1000]}"
        return replace(attempt, excused=True)

    def _is_quiet(self) -> bool:
        """There was a loss. Whether for long nothing but losses came."""
        self._losing_since = min(self._losing_since, self._clock())
        return self._clock() - self._losing_since >= self._quiet_s

    def _all_lose(self) -> bool:
        return all(len(member.lost) > 1 for member in self._membership if member.pid)

    def _wake(self) -> None:
        now, resting = self._clock(), self._resting
        self._resting = []
        for member in resting:
            if member in self._membership and member.rests_until > now:
                self._resting.append(member)
            elif member in self._membership:
                member.rests = False
                self._membership.changed(member)

    def _lose(self, member: Member, event: ActorLost, ended: list[tuple[EpisodeSpec, Attempt]]) -> None:
        """What is in flight in a dead actor is lost with it; one that it played alone, and not with its host, may be
        what it died of."""
        why = event.why
        if member.after == self._losses:
            self._losses += 1
            self._in_a_row += 1
        excused = event.with_host or len(member.in_flight) > 1
        lost = Attempt(Outcome.INFRA_LOST, None, detail=f"actor lost: {why}"[:1000], excused=excused)
        ended += [(spec, lost) for spec in member.in_flight.values()]
        self._remove(member)  # ends one that was only unreachable, so that nothing is played twice
        if self._is_quiet() and self._in_a_row > self._max_deaths:
            self._broken = f"actors died {self._in_a_row} times in a row without one episode coming back: {why[:1000]}"

    def _remove(self, member: Member) -> None:
        member.actor.end()
        self._membership.remove(member)
        self._add(Pressure(), member.pressure)

    def _add(self, now: Pressure, before: Pressure) -> None:
        changes = (now.limit - before.limit, now.waiting - before.waiting, now.refused - before.refused)
        self._pressure += Pressure(*changes)

    def _release(self) -> None:
        """End the actors that the episodes which are left do not need: that never ran, that are idle elsewhere."""
        now, membership = self._clock(), self._membership
        self._enough_since = min(self._enough_since, now) if membership.num_open >= self._wanted else math.inf
        if now - self._enough_since >= IDLE_S:
            for member in membership.pending:
                self._remove(member)
        while membership.num_open > self._wanted and (idle := membership.longest_idle_elsewhere()) is not None:
            if now - idle.idle_since < IDLE_S:
                break
            self._remove(idle)

    def _look_at_waiting(self) -> None:
        """Say it where actors wait for a node for long; break where nothing else goes on."""
        number, now = self._membership.num_pending, self._clock()
        if not number:
            self._waits_since = now
        waited_s = now - self._waits_since
        if waited_s > self._start_timeout_s and number == len(self._membership):
            raise PoolBroken(self._backend.lacking(number))
        if waited_s > SAY_AFTER_S and not self._said:
            self._said = True
            said = self._backend.lacking(len(self._membership))
            print(f"{number} of {said}; the others play on", file=sys.stderr, flush=True)
