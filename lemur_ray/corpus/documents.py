"""Identity of a document: its kind, and an id that is the hash of its normalised text.

Knows nothing of files, filters or tokens.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Literal

Kind = Literal["code", "text", "chat"]

ID_BYTES = 16
"""Length of an id. Texts that differ only in case, white space or Unicode form have the same id."""


def content_id(text: str) -> bytes:
    """blake2b-128 of the normalised text."""
    return hashlib.blake2b(normalise(text).encode("utf-8", "surrogatepass"), digest_size=ID_BYTES).digest()


def normalise(text: str) -> str:
    """Text as deduplication compares it: NFC, case folded, every run of white space one blank."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.casefold().split())
