"""The actors of a pool, indexed by load: finds the least busy and the longest idle one, and the total capacity.

Every query takes constant time, however many actors there are."""

import math
from collections.abc import Callable, Iterator

from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import EpisodeKey
from lemur_ray.rollout.actors.actor import Actor
from lemur_ray.rollout.attempt import EpisodeSpec


class Member:
    """An actor of a pool and its state. After changing ``pid``, ``in_flight`` or a field defined between them, call
    ``Membership.changed``."""

    def __init__(self, losses_before: int) -> None:
        """``losses_before``: number of lost actors that the pool had counted when it requested this one."""
        self.actor: Actor
        self.losses_before = losses_before
        self.pid = 0
        """Process id, 0 until the actor has started."""
        self.started_at = math.inf
        self.stuck = 0
        """Number of calls in the process that will never return."""
        self.lost: set[EpisodeKey] = set()
        """Keys of episodes that the living actor lost since it last completed one; at most two are kept."""
        self.num_lost = 0
        self.rests_until = -math.inf
        self.rests = False
        """Whether the actor gets no episodes for a while, because it lost several in a row."""
        self.elsewhere = False
        """Whether the actor runs on another node than the pool."""
        self.queried_at = math.inf
        """Time of a request for its pressure that it has not answered yet; infinite: there is none."""
        self.in_flight: dict[int, EpisodeSpec] = {}
        """Episodes that the actor plays, by ticket."""
        self.pressure = Pressure()
        self.idle_since = math.inf
        self.share, self.is_open = 0, False
        """Its part of the pool's capacity, and whether it accepts episodes, now or when others have ended."""
        self.load: int | None = None
        """Number of its episodes, by which ``Membership`` indexes it. None: it accepts no more."""


class Membership:
    """All actors of a pool. ``episodes_per_actor``: maximum in flight in one actor. ``max_stuck``: number of calls that
    never returned from which on an actor accepts no more episodes. ``clock``: monotonic seconds."""

    def __init__(self, episodes_per_actor: int, max_stuck: int, clock: Callable[[], float]) -> None:
        self._episodes_per_actor, self._max_stuck, self._clock = episodes_per_actor, max_stuck, clock
        self._members: dict[Member, None] = {}
        self._pending: dict[Member, None] = {}
        self._by_load: list[dict[Member, None]] = [{} for _ in range(episodes_per_actor)]
        """Index: number of episodes in flight -> actors with that many that accept more, longest unchanged first."""
        self.capacity = 0
        """Maximum number of episodes in flight: room in open actors, plus what all others still play."""
        self.num_open = 0
        """Number of actors that run, may get episodes and have few stuck calls."""

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
        """Drop an actor from the pool and forget its episodes in flight. Raises KeyError if it is not in the pool."""
        del self._members[member]
        member.in_flight = {}
        self.changed(member)

    def is_worn(self, member: Member) -> bool:
        """Whether ``max_stuck`` of the actor's calls have never returned, so that it accepts no more episodes."""
        return member.stuck >= self._max_stuck

    def changed(self, member: Member) -> None:
        """Update index and capacity after a change of an actor's state. An actor that lost more than one episode since
        it last completed one gets a single episode at a time."""
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
        """An actor with the fewest episodes that accepts more, of idle ones the longest idle; None if there is none."""
        for members in self._by_load:
            if members:
                return next(iter(members))
        return None

    def longest_idle_elsewhere(self) -> Member | None:
        """The longest idle actor on another node than the pool's; None if there is none."""
        return next((member for member in self._by_load[0] if member.elsewhere), None)
