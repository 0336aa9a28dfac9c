"""A pool of actors, each a process that plays many episodes; the pool assigns episodes and replaces lost actors.

| fault | what the pool does |
|---|---|
| an actor or its node dies | its episodes end as infra_lost (the runner tries them again), a new actor replaces it |
| a living actor loses one episode after another | it gets none for a while, longer each time, then one at a time |
| all actors do so for ``quiet_s`` | PoolBroken, after the ended episodes have been returned |
| a process answers nothing for ``SILENT_S`` | it is killed and counts as lost |
| no node has room for an actor | the actor waits for one; the others play on |
| calls in an actor never return | after ``max_stuck`` of them it gets no more episodes, and is replaced once idle |
| for ``quiet_s`` actors die and no episode ends, until none that played before is left | PoolBroken, as above |
| no actor gets a node for ``start_timeout_s`` | PoolBroken |

Actors that die together, for example with their node, count as one loss. An episode that was lost with its host,
together with others, or in an actor that loses everything, is excused (``Attempt.excused``: the loss does not count
against its retries); one that ran alone in a process that died is not. If fewer episodes are left than the pool has
room for, surplus actors end, so that an autoscaler can remove their hosts.

The cost of an episode does not grow with the number of actors: events arrive in a queue, and nothing iterates over all
actors."""

import itertools
import math
import queue
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import Blame, Outcome
from lemur_ray.rollout.actors.actor import ActorBackend, ActorEvent, ActorLost, ActorStarted, EpisodeEnded
from lemur_ray.rollout.actors.membership import Member, Membership
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.threads import PoolBroken

PRESSURE_EVERY_S = 2.0
ASKED_AT_ONCE = 100
"""Maximum number of actors that are asked for their pressure at a time, all in turn."""
SAY_AFTER_S = 60.0
"""Seconds for which actors wait for a node before a message is printed."""
IDLE_S = 20.0
"""Seconds after which a surplus actor, or a surplus request for one, is ended."""
SILENT_S = 600.0
"""Seconds without an answer after which a running process counts as lost."""
LONGEST_REST_S = 60.0
"""Maximum seconds for which an actor that loses every episode gets none."""


@dataclass(frozen=True)
class PoolLimits:
    """Number of actors of a pool, episodes that each plays at a time, and the faults that the pool tolerates."""

    num_actors: int
    episodes_per_actor: int
    max_stuck: int = 8
    """Number of calls that never return after which an actor is replaced."""
    max_deaths: int = 5
    """The pool breaks after more losses of actors than this in a row, over ``quiet_s`` seconds without an ended
    episode, once every actor that was there before them is lost, too."""
    start_timeout_s: float = 600.0
    """Seconds to wait for the first actor, or for any actor while none runs."""
    quiet_s: float = 300.0
    """Seconds, see ``max_deaths``."""


class ActorPool:
    """A pool of the actors that ``backend`` starts (``rollout.threads.Pool``). For use by one thread."""

    def __init__(
        self, backend: ActorBackend, limits: PoolLimits, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start the actors and wait for the first one. ``clock``: monotonic seconds. Raises PoolBroken if none starts,
        BundleError if the tasks' files cannot be sent to its host."""
        self._backend, self._limits, self._clock = backend, limits, clock
        self._events: queue.SimpleQueue[tuple[Member | int, ActorEvent]] = queue.SimpleQueue()
        self._tickets = itertools.count()
        self._membership = Membership(limits.episodes_per_actor, limits.max_stuck, clock)
        self._wanted = limits.num_actors
        """Number of actors that the remaining episodes need."""
        self._enough_since = math.inf
        """Time since which the running actors have been enough for the remaining episodes."""
        self._losses = self._losses_in_a_row = 0
        self._losing_since = math.inf
        """Time of the first loss after the last episode that was not lost."""
        self._resting: list[Member] = []
        self._broken = ""
        """Reason why the pool can play nothing any more; empty if it can."""
        self._waits_since = clock()
        """Time since which an actor has been waiting for a node."""
        self._shortage_printed = False
        self._query_at = clock() + PRESSURE_EVERY_S
        self._to_query: deque[Member] = deque()
        self._gates: dict[int, Pressure] = {}
        self._pressure = Pressure()
        try:
            self._request_actors()
            self._wait_for_first_actor()
        except BaseException:
            self.close()
            raise

    def _wait_for_first_actor(self) -> None:
        deadline = self._clock() + self._limits.start_timeout_s
        while not self.capacity:
            events = self._next_events(max(0.0, deadline - self._clock()))
            if not events:
                raise PoolBroken(self._backend.shortage(self._limits.num_actors))
            for source, event in events:
                if not isinstance(source, Member) or source not in self._membership:
                    continue
                if isinstance(event, ActorLost):
                    self._remove(source)  # perhaps with its host; actors on other hosts may still start
                    if not len(self._membership):
                        raise PoolBroken(f"environment actors do not start: {event.reason}")
                elif isinstance(event, ActorStarted):
                    self._start(source, event)

    @property
    def capacity(self) -> int:
        """Maximum number of episodes in flight: room in open actors, plus what all others still play."""
        return self._membership.capacity

    @property
    def pids(self) -> list[int]:
        """Process ids of the running actors, each valid on the actor's node."""
        return [member.pid for member in self._membership if member.pid]

    @property
    def num_isolated(self) -> int:
        return self._membership.num_open

    def expect(self, remaining: int) -> None:
        """Adapt the number of actors to the ``remaining`` episodes; surplus actors end once they are idle."""
        needed = math.ceil(remaining / self._limits.episodes_per_actor)
        self._wanted = max(1, min(self._limits.num_actors, needed))
        self._request_actors()

    def resume(self, remaining: int) -> None:
        """Go on after a pause without calls of ``collect``, with no episode in flight: take in what happened meanwhile
        and adapt to the ``remaining`` episodes. The pause counts neither as waiting for a node nor as time of losses or
        surplus. Raises PoolBroken if too many actors were lost, BundleError as ``submit``."""
        self._waits_since, self._enough_since = self._clock(), math.inf
        self._losses_in_a_row, self._losing_since = 0, math.inf
        self.expect(remaining)
        self.collect(0)

    def submit(self, spec: EpisodeSpec) -> None:
        """Start an episode in one of the least busy actors, without waiting for it. Raises IndexError if all actors
        play as many episodes as they may, BundleError if the task's files cannot be sent to the actor's host."""
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
        self._check_pending()
        self._end_rests()
        ended: list[tuple[EpisodeSpec, Attempt]] = []
        lost: dict[Member, ActorLost] = {}
        for source, event in self._next_events(timeout_s):
            if isinstance(source, int):
                if isinstance(event, Pressure):
                    self._update_pressure(event, self._gates.get(source, Pressure()))
                    self._gates[source] = event
            elif source not in self._membership:
                continue  # from an actor that was replaced and whose episodes were given up
            elif isinstance(event, EpisodeEnded):
                ended.append(self._end_episode(source, event))
            elif isinstance(event, ActorStarted):
                self._start(source, event)
            elif isinstance(event, ActorLost):
                lost.setdefault(source, event)
            else:
                source.queried_at = math.inf
                self._update_pressure(event, source.pressure)
                source.pressure = event
        for member, loss in lost.items():
            if member in self._membership:
                self._lose(member, replace(loss, with_host=loss.with_host or len(lost) > 1), ended)
        self._end_surplus()
        self._request_actors()
        return ended

    def pressure(self) -> Pressure:
        """Sum of what actors and gates last reported. Requests new ones every 2 s; actors long silent count as lost."""
        if self._clock() >= self._query_at:
            self._query_at = self._clock() + PRESSURE_EVERY_S
            self._backend.request_pressure(lambda gate, pressure: self._events.put((gate, pressure)))
            self._to_query = self._to_query or deque(self._membership)
            for _ in range(min(ASKED_AT_ONCE, len(self._to_query))):
                member = self._to_query.popleft()
                if not member.pid or member not in self._membership:
                    continue
                if member.queried_at == math.inf:
                    member.queried_at = self._clock()
                    member.actor.request_pressure()
                elif (silent_s := self._clock() - member.queried_at) >= SILENT_S:
                    loss = ActorLost(f"it answered nothing for {silent_s / 60:.0f} minutes", with_host=True)
                    self._report(member, loss)
        return self._pressure

    def close(self) -> None:
        for member in list(self._membership):
            self._remove(member)
        self._backend.close()

    def _next_events(self, timeout_s: float) -> list[tuple[Member | int, ActorEvent]]:
        """All arrived events with their source: actor, or index of a gate. Waits up to ``timeout_s`` for one."""
        try:
            events = [self._events.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        return events + [self._events.get() for _ in range(self._events.qsize())]  # this is the only consumer

    def _request_actors(self) -> None:
        """Request actors until enough run or wait for a node for the remaining episodes."""
        membership = self._membership
        while len(membership) < self._limits.num_actors and membership.num_open + membership.num_pending < self._wanted:
            member = Member(self._losses)
            member.actor = self._backend.start_actor(partial(self._report, member))
            membership.add(member)

    def _report(self, member: Member, event: ActorEvent) -> None:
        self._events.put((member, event))

    def _start(self, member: Member, event: ActorStarted) -> None:
        """Let a started actor play episodes. Raises BundleError as ``submit``."""
        member.actor.settle()
        member.pid, member.elsewhere, member.started_at = event.pid, event.elsewhere, self._clock()
        self._membership.changed(member)
        self._waits_since = self._clock()

    def _end_episode(self, member: Member, event: EpisodeEnded) -> tuple[EpisodeSpec, Attempt]:
        spec, attempt = member.in_flight.pop(event.ticket), event.attempt
        if attempt.outcome.blame is not Blame.INFRA:
            self._losses_in_a_row, self._losing_since = 0, math.inf
            member.lost, member.num_lost = set(), 0
        else:
            attempt = self._count_lost_episode(member, spec, attempt)
        member.stuck = max(member.stuck, event.stuck)  # events arrive in any order, and the number never falls
        self._membership.changed(member)
        if self._membership.is_worn(member) and not member.in_flight:
            self._remove(member)
        return spec, attempt

    def _count_lost_episode(self, member: Member, spec: EpisodeSpec, attempt: Attempt) -> Attempt:
        """Count an episode lost by a living actor. From its second one on, the actor is at fault: the episode is
        excused, and the actor gets no episodes for a while."""
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
        all_lose = all(len(other.lost) > 1 for other in self._membership if other.pid)
        if attempt.outcome is Outcome.INFRA_LOST and self._only_losses() and all_lose:
            minutes = self._limits.quiet_s / 60
            self._broken = f"for {minutes:.0f} minutes no host could play anything: {attempt.detail[:1000]}"
        return replace(attempt, excused=True)

    def _only_losses(self) -> bool:
        """Note that something was lost now. Returns whether there were only losses for ``quiet_s`` seconds."""
        self._losing_since = min(self._losing_since, self._clock())
        return self._clock() - self._losing_since >= self._limits.quiet_s

    def _has_survivor(self) -> bool:
        """Whether an actor plays on that had started before the first of the losses. An episode may take longer than
        ``quiet_s``, so hosts that are lost and replaced beside it show no fault that all share."""
        return any(m.pid and m.in_flight and m.started_at < self._losing_since for m in self._membership)

    def _end_rests(self) -> None:
        now, resting = self._clock(), self._resting
        self._resting = []
        for member in resting:
            if member in self._membership and member.rests_until > now:
                self._resting.append(member)
            elif member in self._membership:
                member.rests = False
                self._membership.changed(member)

    def _lose(self, member: Member, loss: ActorLost, ended: list[tuple[EpisodeSpec, Attempt]]) -> None:
        """End a dead actor's episodes as lost, into ``ended``. All are excused but one that was alone in a process that
        died by itself, since it may have killed it."""
        if member.losses_before == self._losses:
            self._losses += 1
            self._losses_in_a_row += 1
        excused = loss.with_host or len(member.in_flight) > 1
        attempt = Attempt(Outcome.INFRA_LOST, None, detail=f"actor lost: {loss.reason}"[:1000], excused=excused)
        ended += [(spec, attempt) for spec in member.in_flight.values()]
        self._remove(member)  # kills an actor that was only unreachable, so that no episode is played twice
        if self._only_losses() and self._losses_in_a_row > self._limits.max_deaths and not self._has_survivor():
            deaths = f"actors died {self._losses_in_a_row} times in a row"
            self._broken = f"{deaths} without one episode coming back: {loss.reason[:1000]}"

    def _remove(self, member: Member) -> None:
        member.actor.end()
        self._membership.remove(member)
        self._update_pressure(Pressure(), member.pressure)

    def _update_pressure(self, now: Pressure, before: Pressure) -> None:
        changes = (now.limit - before.limit, now.waiting - before.waiting, now.refused - before.refused)
        self._pressure += Pressure(*changes)

    def _end_surplus(self) -> None:
        """End surplus actors after ``IDLE_S``: those that have not started, then those that are idle on other nodes."""
        now, membership = self._clock(), self._membership
        self._enough_since = min(self._enough_since, now) if membership.num_open >= self._wanted else math.inf
        if now - self._enough_since >= IDLE_S:
            for member in membership.pending:
                self._remove(member)
        while membership.num_open > self._wanted and (idle := membership.longest_idle_elsewhere()) is not None:
            if now - idle.idle_since < IDLE_S:
                break
            self._remove(idle)

    def _check_pending(self) -> None:
        """Print once that actors wait long for a node. Raises PoolBroken if none gets one in ``start_timeout_s``."""
        number, now = self._membership.num_pending, self._clock()
        if not number:
            self._waits_since = now
        waited_s = now - self._waits_since
        if waited_s > self._limits.start_timeout_s and number == len(self._membership):
            raise PoolBroken(self._backend.shortage(number))
        if waited_s > SAY_AFTER_S and not self._shortage_printed:
            self._shortage_printed = True
            shortage = self._backend.shortage(len(self._membership))
            print(f"{number} of {shortage}; the others play on", file=sys.stderr, flush=True)
