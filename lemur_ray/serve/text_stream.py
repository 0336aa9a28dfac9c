"""Streaming text from token ids: no split code points, and no text that may belong to a stop string.

The joined text does not depend on token boundaries: bytes are decoded as one stream, which is cut at the stop string
that is complete first (of several that end at the same character, the one that begins first). Knows nothing of engines
or HTTP."""

from collections.abc import Sequence

from lemur_ray.text.incremental_text import IncrementalText


class TextStream:
    """Decodes the tokens of one reply to text, piece by piece, up to a stop string."""

    def __init__(self, text: IncrementalText, stop: Sequence[str] = ()):
        """text: decoder of the tokens; stop: strings that end the reply."""
        self._text, self._stop = text, tuple(stop)
        self._pending = ""
        self.stopped = False
        """A stop string ended the text; later tokens are ignored."""

    def push(self, token: int) -> str:
        """Add a token; returns the text that is certain now: "" while it may begin a stop string, and after one."""
        return "" if self.stopped else self._take(self._text.push(token))

    def end(self) -> str:
        """End the reply; returns the held-back text. Bytes of an unfinished character become U+FFFD."""
        if self.stopped:
            return ""
        text = self._take(self._text.end())
        pending, self._pending = self._pending, ""
        return text if self.stopped else text + pending

    def _take(self, text: str) -> str:
        if not self._stop:
            return text
        self._pending += text
        ends = [(at + len(s), at) for s in self._stop if (at := self._pending.find(s)) >= 0]
        if ends:
            self.stopped = True
            text = self._pending[: min(ends)[1]]
            self._pending = ""
            return text
        cut = len(self._pending) - max(map(self._overlap, self._stop))
        text, self._pending = self._pending[:cut], self._pending[cut:]
        return text

    def _overlap(self, stop: str) -> int:
        """Length of the longest suffix of the pending text that is a prefix of this stop string."""
        longest = min(len(stop) - 1, len(self._pending))
        return next((n for n in range(longest, 0, -1) if self._pending.endswith(stop[:n])), 0)
