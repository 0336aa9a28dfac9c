"""The actors of a pool by how much they play: who plays least, how much all take, who is idle for how long.

Every answer takes the same time however many actors there are. Knows nothing of processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import EpisodeKey
from lemur_ray.rollout.actors.actor import Actor
from lemur_ray.rollout.attempt import EpisodeSpec


class Member:
    """An actor and what is known of it. Whoever changes anything from ``pid`` to ``in_flight`` tells the roster."""

    def __init__(self, after: int) -> None:
        """``after``: losses before it was asked for."""
        self.actor: Actor
        self.after = after
        self.pid = 0
        """Its process, 0 while it does not run."""
        self.stuck = 0
        """Calls in it that never came back."""
        self.lost: set[EpisodeKey] = set()
        """One or two of the episodes that it lost, one after another, while it lives."""
        self.num_lost = 0
        self.rests_until = -math.inf
        self.rests = False
        """Whether it loses whatever it is given, and is left alone for a while."""
        self.elsewhere = False
        self.asked_at = math.inf
        """When it was asked something that it has not answered."""
        self.in_flight: dict[int, EpisodeSpec] = {}
        """By ticket."""
        self.pressure = Pressure()
        self.idle_since = math.inf
        self.share, self.is_open = 0, False
        """Its part of the capacity, and whether it takes more or will."""
        self.load: int | None = None
        """Among which it is found: those that play so many. None: it takes no more."""


class Membership:
    """``episodes_per_actor``: as many as each takes; one with ``max_stuck`` stuck calls takes no more."""

    def __init__(self, episodes_per_actor: int, max_stuck: int, clock: Callable[[], float]) -> None:
        self._episodes_per_actor, self._max_stuck, self._clock = episodes_per_actor, max_stuck, clock
        self._members: dict[Member, None] = {}
        self._pending: dict[Member, None] = {}
        self._by_load: list[dict[Member, None]] = [{} for _ in range(episodes_per_actor)]
        """Those that take more, the longest there first."""
        self.capacity = 0
        """Episodes for which there are actors that run and take more; and those that the others still play."""
        self.num_open = 0
        """Actors that run, do not rest and are not full of stuck calls."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def __contains__(self, member: object) -> bool:
        return member in self._members

    @property
    def pending(self) -> list[Member]:
        """Those that do not run yet."""
        return list(self._pending)

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    def add(self, member: Member) -> None:
        self._members[member] = self._pending[member] = None

    def remove(self, member: Member) -> None:
        """It is none of the pool's any more, and neither is what it played."""
        del self._members[member]
        member.in_flight = {}
        self.changed(member)

    def is_worn(self, member: Member) -> bool:
        """Whether it is full of stuck calls."""
        return member.stuck >= self._max_stuck

    def changed(self, member: Member) -> None:
        """Find its place anew. One that lost several episodes and nothing else gets one at a time."""
        there, plays = member in self._members, len(member.in_flight)
        is_open = there and member.pid > 0 and not member.rests and not self.is_worn(member)
        if member.pid or not there:
            self._pending.pop(member, None)
        places = 1 if len(member.lost) > 1 else self._episodes_per_actor
        share = max(places, plays) if is_open else plays
        self.capacity += share - member.share
        self.num_open += is_open - member.is_open
        member.share, member.is_open = share, is_open
        load = plays if is_open and plays < places else None
        if load == member.load:
            return
        if member.load is not None:
            del self._by_load[member.load][member]
        if load is not None:
            self._by_load[load][member] = None
        member.load, member.idle_since = load, self._clock() if load == 0 else math.inf

    def least_busy(self) -> Member | None:
        """Of those that take more, one of those that play least; the longest idle of idle ones."""
        for members in self._by_load:
            if members:
                return next(iter(members))
        return None

    def longest_idle_elsewhere(self) -> Member | None:
        """Passes over the idle ones of the pool's own node, which are few and stay."""
        return next((member for member in self._by_load[0] if member.elsewhere), None)
