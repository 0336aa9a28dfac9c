"""Truncates long output to its head and tail, with a line between them that states the number of dropped bytes."""

import codecs
from collections import deque

CONTINUATION = range(0x80, 0xC0)


class HeadTail:
    """The first and last half of a byte stream of any length, at most ``budget`` bytes together. ``add`` appends bytes;
    ``produced`` is the number added so far."""

    def __init__(self, budget: int) -> None:
        self._head_budget = budget - budget // 2
        self._tail_budget = budget // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.produced = 0

    def add(self, data: bytes) -> None:
        self.produced += len(data)
        room = self._head_budget - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_budget:
            self._tail_size -= len(self._tail.popleft())

    def result(self) -> tuple[bytes, int]:
        """(kept bytes, number of dropped bytes). If bytes were dropped, a line "[... N bytes dropped ...]" stands in
        their place; no UTF-8 character is split."""
        tail = b"".join(self._tail)
        if self.produced <= self._head_budget + self._tail_budget:
            return bytes(self._head) + tail, 0
        head = _whole_characters(bytes(self._head))
        tail = tail[len(tail) - self._tail_budget :]
        start = 0
        while start < min(3, len(tail)) and tail[start] in CONTINUATION:
            start += 1
        tail = tail[start:]
        dropped = self.produced - len(head) - len(tail)
        return b"%s\n[... %d bytes dropped ...]\n%s" % (head, dropped, tail), dropped


def _whole_characters(data: bytes) -> bytes:
    """``data`` without an incomplete UTF-8 character at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    return data.removesuffix(decoder.getstate()[0])
