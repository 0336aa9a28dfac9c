"""Document: one text with where it came from. Its id is the hash of its normalised text.

Knows nothing of files, filters or tokens.
"""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Kind = Literal["code", "text", "chat"]

ID_BYTES = 16


@dataclass(frozen=True)
class Document:
    """One text of a corpus."""

    text: str
    source: str
    """Name of the source in the mixture."""
    kind: Kind
    language: str = ""
    """Programming language of code, else ``en`` or empty where it is not known."""
    licence: str = ""
    """As the path or the package's own metadata tells it; empty where they do not."""
    path: str = ""
    """Where it was found, for people; not part of the identity."""

    @cached_property
    def id(self) -> bytes:
        """16 bytes that are equal for texts equal up to case, white space and Unicode form."""
        return content_id(self.text)


def content_id(text: str) -> bytes:
    """blake2b-128 of the normalised text."""
    return hashlib.blake2b(normalise(text).encode("utf-8", "surrogatepass"), digest_size=ID_BYTES).digest()


def normalise(text: str) -> str:
    """What exact deduplication compares: NFC, case folded, every run of white space one blank."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.casefold().split())
