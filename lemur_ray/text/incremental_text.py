"""Streaming detokenisation: the text that each id adds, without split characters; the parts join to the whole text.

Two implementations: concatenated bytes if the tokenizer's decoder works token by token, else the change of the decoded
text of the last few ids."""

import codecs
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from lemur_ray.text.token_pieces import TokenPieces

_BEFORE = 6
"""Number of preceding ids to decode with; more than any decoder looks back."""
_HELD = 8
"""Maximum number of ids that wait for the rest of a character, which has at most four bytes."""


class IncrementalText(Protocol):
    """Streaming decoder of one sequence of token ids."""

    def push(self, token: int) -> str:
        """Add a token id; returns the text that it completes, possibly empty."""

    def end(self) -> str:
        """Finish the sequence; returns the rest of its text. Bytes of an incomplete character become U+FFFD."""


class BytesText:
    """Streaming decoder for tokenizers whose text is the concatenation of the bytes of the tokens."""

    def __init__(self, pieces: TokenPieces, hidden: Collection[int] = (), *, begins: bool = True):
        """pieces: bytes of every token. hidden: ids without text. begins: whether the first id is the start of a text,
        where some tokenizers drop a blank, not a continuation."""
        self._pieces, self._hidden = pieces, hidden
        self._is_first, self._cuts = begins, pieces.times if begins else 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._utf8.decode(self.bytes_of(token))

    def end(self) -> str:
        return self._utf8.decode(b"", final=True)

    def bytes_of(self, token: int) -> bytes:
        """Bytes that ``token``, as the next id, adds to the text; b"" for hidden or unknown ids. Changes the state."""
        if token in self._hidden or not 0 <= token < len(self._pieces.spelled):
            return b""
        piece = self._pieces.spelled[token]
        if self._is_first:
            self._is_first, piece = False, self._pieces.first.get(token, piece)
        if self._cuts and piece:
            cut = self._pieces.cut
            while self._cuts and piece.startswith(cut):
                self._cuts, piece = self._cuts - 1, piece[len(cut) :]
            if piece:
                self._cuts = 0
        return piece


class WindowText:
    """Streaming decoder for any tokenizer: decodes the last few ids again and returns what is new in the text."""

    def __init__(
        self, decode: Callable[[Sequence[int]], str], hidden: Collection[int] = (), before: Sequence[int] = ()
    ):
        """decode: function from the ids of a whole text to text. hidden: ids without text. before: preceding ids,
        whose text is not returned."""
        self._decode, self._hidden = decode, hidden
        visible = (token for token in reversed(before) if token not in hidden)
        self._ids = list(itertools.islice(visible, _BEFORE))[::-1]
        self._emitted = decode(self._ids) if self._ids else ""
        self._old = len(self._ids)
        """Number of ids of the window whose text was returned."""

    def push(self, token: int) -> str:
        if token in self._hidden:
            return ""
        self._ids.append(token)
        text = self._decode(self._ids)
        waits = text.endswith("\ufffd") and len(self._ids) - self._old < _HELD
        return "" if waits else self._emit(text)

    def end(self) -> str:
        return self._emit(self._decode(self._ids)) if len(self._ids) > self._old else ""

    def _emit(self, text: str) -> str:
        if not text.startswith(self._emitted) or len(text) == len(self._emitted):
            return ""
        new = text[len(self._emitted) :]
        self._ids = self._ids[max(0, self._old - 1) :]
        self._emitted, self._old = self._decode(self._ids), len(self._ids)
        return new
