"""The actors of a pool, indexed by load: least busy, total capacity, idle the longest.

Every query takes constant time, however many actors there are. Knows nothing of processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import EpisodeKey
from lemur_ray.rollout.actors.actor import Actor
from lemur_ray.rollout.attempt import EpisodeSpec


class Member:
    """An actor and its state. After a change of ``pid`` to ``in_flight``, call ``Membership.changed``."""

    def __init__(self, losses_before: int) -> None:
        """``losses_before``: how many losses the pool had counted when this actor was requested."""
        self.actor: Actor
        self.losses_before = losses_before
        self.pid = 0
        """Process id, 0 until the actor has started."""
        self.stuck = 0
        """Calls in the process that will never return."""
        self.lost: set[EpisodeKey] = set()
        """At most two of the episodes that the living actor lost one after another."""
        self.num_lost = 0
        self.rests_until = -math.inf
        self.rests = False
        """Whether it gets no episodes for a while, because it loses every one."""
        self.elsewhere = False
        """Whether it runs on another node than the pool."""
        self.queried_at = math.inf
        """Time of a question that it has not answered yet."""
        self.in_flight: dict[int, EpisodeSpec] = {}
        """Episodes by ticket."""
        self.pressure = Pressure()
        self.idle_since = math.inf
        self.share, self.is_open = 0, False
        """Its part of the capacity, and whether it accepts episodes, now or once there is room."""
        self.load: int | None = None
        """Number of episodes under which it is indexed. None: it accepts no more."""


class Membership:
    """All actors of a pool.

    ``episodes_per_actor``: maximum in flight in one actor. ``max_stuck``: an actor with so many stuck calls accepts no
    more episodes.
    """

    def __init__(self, episodes_per_actor: int, max_stuck: int, clock: Callable[[], float]) -> None:
        self._episodes_per_actor, self._max_stuck, self._clock = episodes_per_actor, max_stuck, clock
        self._members: dict[Member, None] = {}
        self._pending: dict[Member, None] = {}
        self._by_load: list[dict[Member, None]] = [{} for _ in range(episodes_per_actor)]
        """Actors that accept more, by number of episodes in flight; in each, the one that is there longest first."""
        self.capacity = 0
        """Maximum episodes in flight: of open actors their places, of all others what they still play."""
        self.num_open = 0
        """Actors that run, do not rest and have few stuck calls."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def __contains__(self, member: object) -> bool:
        return member in self._members

    @property
    def pending(self) -> list[Member]:
        return list(self._pending)

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    def add(self, member: Member) -> None:
        self._members[member] = self._pending[member] = None

    def remove(self, member: Member) -> None:
        """Drop an actor together with its episodes in flight."""
        del self._members[member]
        member.in_flight = {}
        self.changed(member)

    def is_worn(self, member: Member) -> bool:
        """Whether it has so many stuck calls that it accepts no more episodes."""
        return member.stuck >= self._max_stuck

    def changed(self, member: Member) -> None:
        """Index an actor again. One that lost several episodes and completed none gets one at a time."""
        is_member, load_now = member in self._members, len(member.in_flight)
        is_open = is_member and member.pid > 0 and not member.rests and not self.is_worn(member)
        if member.pid or not is_member:
            self._pending.pop(member, None)
        places = 1 if len(member.lost) > 1 else self._episodes_per_actor
        share = max(places, load_now) if is_open else load_now
        self.capacity += share - member.share
        self.num_open += is_open - member.is_open
        member.share, member.is_open = share, is_open
        load = load_now if is_open and load_now < places else None
        if load == member.load:
            return
        if member.load is not None:
            del self._by_load[member.load][member]
        if load is not None:
            self._by_load[load][member] = None
        member.load, member.idle_since = load, self._clock() if load == 0 else math.inf

    def least_busy(self) -> Member | None:
        """An actor with the fewest episodes among those that accept more; of idle ones the longest idle."""
        for members in self._by_load:
            if members:
                return next(iter(members))
        return None

    def longest_idle_elsewhere(self) -> Member | None:
        """The longest idle actor on another node; those on the pool's own node are few and stay."""
        return next((member for member in self._by_load[0] if member.elsewhere), None)
