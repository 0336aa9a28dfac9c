"""What sessions will come back for: their blocks are kept for a while after each reply, up to a share of the cache.

Between two turns an environment works, and meanwhile other requests would push a conversation out of the cache. The
oldest pins give way where there are too many. Knows nothing of clocks, tokens or what a block holds.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Node = TypeVar("Node")


@dataclass(eq=False)
class Pin(Generic[Node]):
    """One session's blocks, from the root of the tree on."""

    nodes: list[Node]
    until: float


class Pins(Generic[Node]):
    """At most ``limit`` blocks; every pin holds its nodes as a running sequence would."""

    def __init__(self, limit: int, hold: Callable[[list[Node]], None], let_go: Callable[[list[Node]], None]) -> None:
        self._limit, self._hold, self._let_go = limit, hold, let_go
        self._pins: OrderedDict[str, Pin[Node]] = OrderedDict()
        self._times: Counter[int] = Counter()  # how many pins a node is in

    @property
    def blocks(self) -> int:
        """Different blocks that are pinned."""
        return len(self._times)

    def put(self, session: str, pin: Pin[Node]) -> None:
        """Keep these instead of what the session had; older ones of others go where it is too much."""
        self._hold(pin.nodes)
        self.take(session)
        self._pins[session] = pin
        self._times.update(map(id, pin.nodes))
        if pin.until < next(iter(self._pins.values())).until:  # one that is put back
            self._pins.move_to_end(session, last=False)
        while self._pins and self.blocks > self._limit:
            self.take(next(iter(self._pins)))

    def take(self, session: str) -> Pin[Node] | None:
        """Let go of what is kept for a session, and return what it was."""
        pin = self._pins.pop(session, None)
        if pin is not None:
            self._let_go(pin.nodes)
            self._times -= Counter(map(id, pin.nodes))  # drops what is in none any more
        return pin

    def expire(self, now: float) -> None:
        """Let go of what nobody came back for. Times must be put in order, but for those put back."""
        while self._pins and next(iter(self._pins.values())).until <= now:
            self.take(next(iter(self._pins)))

    def clear(self) -> None:
        """Let go of everything."""
        while self._pins:
            self.take(next(iter(self._pins)))
