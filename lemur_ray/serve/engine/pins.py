"""Pinned sessions: blocks of the cache held for a while after each reply, for the conversation's next turn.

Between two turns an environment works, and meanwhile other requests would evict the conversation. At the limit, the
oldest pins end first. Knows nothing of clocks, tokens or block contents."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from lemur_ray.serve.engine.prefix_tree import Node


class Pin(NamedTuple):
    """Nodes of one session, in order from the root of the tree; ``until``: when the pin ends, as in ``Pins.expire``."""

    nodes: list[Node]
    until: float


class Pins:
    """Pins by session name, of at most ``limit`` blocks together. hold, release: called with the nodes of a pin when it
    begins and when it ends."""

    def __init__(self, limit: int, hold: Callable[[list[Node]], None], release: Callable[[list[Node]], None]) -> None:
        self._limit, self._hold, self._release = limit, hold, release
        self._pins: OrderedDict[str, Pin] = OrderedDict()
        self._times: Counter[int] = Counter()  # how many pins a node is in

    @property
    def blocks(self) -> int:
        """Number of distinct pinned blocks."""
        return len(self._times)

    def put(self, session: str, pin: Pin) -> None:
        """Set the session's pin, in place of an earlier one; the oldest end while over ``limit`` blocks are pinned."""
        self._hold(pin.nodes)
        self.take(session)
        self._pins[session] = pin
        self._times.update(map(id, pin.nodes))
        if pin.until < next(iter(self._pins.values())).until:  # a pin that is put back
            self._pins.move_to_end(session, last=False)
        while self._pins and self.blocks > self._limit:
            self.take(next(iter(self._pins)))

    def take(self, session: str) -> Pin | None:
        """End a session's pin and return it; None if there is none."""
        pin = self._pins.pop(session, None)
        if pin is not None:
            self._release(pin.nodes)
            self._times -= Counter(map(id, pin.nodes))  # drops nodes whose count is 0
        return pin

    def expire(self, now: float) -> None:
        """End the pins whose ``until`` is at most ``now``; one put back behind a later one ends with that one."""
        while self._pins and next(iter(self._pins.values())).until <= now:
            self.take(next(iter(self._pins)))

    def clear(self) -> None:
        """End all pins."""
        while self._pins:
            self.take(next(iter(self._pins)))
