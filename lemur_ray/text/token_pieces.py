"""The bytes of every token of a vocabulary, derived from the decoder that its file declares.

Each decoder step is applied to the tokens; nothing is guessed from their spelling. If all steps work token by token,
the text of ids is the concatenation of their bytes (``exact``). Otherwise the bytes are those of each token decoded
alone, and texts must be decoded by the library."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Regex, decoders
from tokenizers import Tokenizer as Backend


class DecoderRefused(ValueError):
    """Raised for a tokenizer with a decoder of speech (CTC), with which tokens have no fixed bytes."""


@dataclass(frozen=True)
class TokenPieces:
    """The bytes of text that every token of a vocabulary stands for."""

    spelled: list[bytes]
    """Bytes of every token id, as an index, in the middle of a text."""
    first: dict[int, bytes] = field(default_factory=dict)
    """Bytes at the start of a text, by id, for ids for which they differ from ``spelled``."""
    cut: bytes = b""
    """Bytes that are removed at the start of a text, at most ``times`` times: SentencePiece adds a blank there."""
    times: int = 0
    exact: bool = True
    """Whether the text of ids is the concatenation of these bytes. False: ``spelled`` is each token decoded alone."""


_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def read_pieces(backend: Backend, tokens: Sequence[str]) -> TokenPieces:
    """Bytes of all tokens by the decoder of ``backend``. tokens: their spelling by id. Raises DecoderRefused for a
    decoder of speech (CTC)."""
    declared: dict[str, Any] = {"type": "Blanks"}
    if backend.decoder is not None:
        declared = json.loads(backend.decoder.__getstate__())
    steps = declared["decoders"] if declared["type"] == "Sequence" else [declared]
    reading = _Reading(list(tokens))
    none = [i for i, token in enumerate(tokens) if not token]
    if all(reading.take(step) for step in steps):
        pieces = reading.pieces()
        for i in none:  # unused ids
            pieces.spelled[i] = b""
            pieces.first.pop(i, None)
        return pieces
    if (suffix := declared.get("suffix")) is not None:  # BPEDecoder: the suffix is a blank, except at the end of a text
        return TokenPieces([token.replace(suffix, " ").encode() for token in tokens], exact=False)
    return TokenPieces([backend.decoder.decode([token]).encode() for token in tokens], exact=False)


class _Reading:
    """The pieces of all tokens while the steps of a decoder are applied to them one after the other."""

    def __init__(self, tokens: list[str]):
        self._texts: list[str] = tokens
        self._bytes: dict[int, bytes] = {}
        """Ids whose piece is bytes instead of text."""
        self._first: dict[int, str] = {}
        self._joined = False
        self._cut, self._times = "", 0

    def take(self, step: dict[str, Any]) -> bool:
        """Apply a decoder step; returns False if it does not work token by token. Raises DecoderRefused for CTC."""
        kind = step["type"]
        if kind == "Fuse":
            self._joined = True
            return True
        if kind == "Strip" and self._joined:
            if step["stop"] or self._cut:
                return False
            self._cut, self._times = step["content"], step["start"]
            return True
        if kind == "CTC":
            raise DecoderRefused(
                "the tokenizer's decoder is CTC, which drops repeated tokens: it is one of speech, expected one of text"
            )
        if self._joined or self._bytes or self._first or kind not in _STEPS:
            return False
        _STEPS[kind](self, step)
        return True

    def pieces(self) -> TokenPieces:
        spelled = [text.encode() for text in self._texts]
        for i, piece in self._bytes.items():
            spelled[i] = piece
        first = {i: text.encode() for i, text in self._first.items() if text.encode() != spelled[i]}
        return TokenPieces(spelled, first, self._cut.encode(), self._times)

    def replace(self, step: dict[str, Any]) -> None:
        if "String" in step["pattern"]:
            self._texts = [text.replace(step["pattern"]["String"], step["content"]) for text in self._texts]
        else:
            self._each(decoders.Replace(Regex(step["pattern"]["Regex"]), step["content"]))

    def strip(self, step: dict[str, Any]) -> None:
        self._each(decoders.Strip(step["content"], step["start"], step["stop"]))

    def byte_fallback(self, step: dict[str, Any]) -> None:
        for i, text in enumerate(self._texts):
            if match := _BYTE.fullmatch(text):
                self._bytes[i] = bytes([int(match[1], 16)])

    def byte_level(self, step: dict[str, Any]) -> None:
        """Map byte-level tokens to bytes; one with characters outside the byte alphabet (an added one) stays text."""
        for i, text in enumerate(self._texts):
            if all(c in _BYTE_OF for c in text):
                self._bytes[i] = bytes(_BYTE_OF[c] for c in text)
        self._joined = True

    def metaspace(self, step: dict[str, Any]) -> None:
        mark = step["replacement"]
        if step["prepend_scheme"] != "never":
            self._first = {i: text.replace(mark, "") for i, text in enumerate(self._texts) if mark in text}
        self._texts = [text.replace(mark, " ") for text in self._texts]

    def word_piece(self, step: dict[str, Any]) -> None:
        prefix = step["prefix"]
        inner = [text.removeprefix(prefix) if text.startswith(prefix) else f" {text}" for text in self._texts]
        self._first = dict(enumerate(self._texts))
        if step["cleanup"]:
            tidy = decoders.WordPiece(prefix="\0", cleanup=True)  # cleans up its first token unchanged
            self._first = {i: tidy.decode([text]) for i, text in self._first.items()}
            inner = [tidy.decode([text]) for text in inner]
        self._texts = inner

    def blanks(self, step: dict[str, Any]) -> None:
        """Put a blank before every token except at the start of a text, as the library does without a decoder."""
        self._first = dict(enumerate(self._texts))
        self._texts = [f" {text}" for text in self._texts]

    def _each(self, decoder: Any) -> None:
        self._texts = [decoder.decode([text]) for text in self._texts]


_STEPS = {
    "Replace": _Reading.replace,
    "Strip": _Reading.strip,
    "ByteFallback": _Reading.byte_fallback,
    "ByteLevel": _Reading.byte_level,
    "Metaspace": _Reading.metaspace,
    "WordPiece": _Reading.word_piece,
    "Blanks": _Reading.blanks,
}


def _byte_alphabet() -> dict[str, int]:
    """Byte of each printable character that represents it in byte-level vocabularies (the GPT-2 table)."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in visible}
    hidden = [b for b in range(256) if b not in visible]
    return table | {chr(256 + n): b for n, b in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()
