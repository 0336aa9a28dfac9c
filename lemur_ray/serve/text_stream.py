"""Token ids to text while they arrive: no code point is split, nothing is shown that may belong to a stop string.

The text of all pieces together is the same however the tokens cut it: bytes are decoded as one stream, and the cut is
made at the stop string that is complete first (of several that end at the same character, the one that begins first).
Knows nothing of engines or HTTP.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Sequence


class TextStream:
    """Text of one reply."""

    def __init__(self, token_bytes: Callable[[int], bytes], hidden: Collection[int] = (), stop: Sequence[str] = ()):
        """token_bytes: the bytes of an id; hidden: ids without text (specials); stop: strings that end the text."""
        self._token_bytes, self._hidden, self._stop = token_bytes, hidden, tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self.stopped = False
        """A stop string was found: the text is over, and later tokens are ignored."""

    def push(self, token: int) -> str:
        """Add a token; returns the text that is certain now, perhaps none."""
        if self.stopped or token in self._hidden:
            return ""
        return self._take(self._decoder.decode(self._token_bytes(token)))

    def end(self) -> str:
        """No more tokens come: the text that was held back. Bytes of an unfinished character become U+FFFD."""
        if self.stopped:
            return ""
        text = self._take(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return text if self.stopped else text + held

    def _take(self, text: str) -> str:
        if not self._stop:
            return text
        if not text:
            return ""
        self._held += text
        ends = [(at + len(s), at) for s in self._stop if (at := self._held.find(s)) >= 0]
        if ends:
            self.stopped = True
            sure = self._held[: min(ends)[1]]
            self._held = ""
            return sure
        keep = max(self._overlap(s) for s in self._stop)
        cut = len(self._held) - keep
        sure, self._held = self._held[:cut], self._held[cut:]
        return sure

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of the held text that begins this stop string."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._held.endswith(stop[:n])), 0)
