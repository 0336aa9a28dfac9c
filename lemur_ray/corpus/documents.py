"""Document ids (hashes of the normalised text), exact deduplication by id, and a pseudo-random order by id.

Deduplication needs 24 bytes of memory per document.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Literal

import numpy as np

Kind = Literal["code", "text", "chat"]

ID_BYTES = 16
"""Length of an id. Texts that differ only in case, white space or Unicode form have the same id."""


def content_id(text: str) -> bytes:
    """Id of a document: 16 bytes, BLAKE2b-128 of the normalised text."""
    return hashlib.blake2b(normalise(text).encode("utf-8", "surrogatepass"), digest_size=ID_BYTES).digest()


def normalise(text: str) -> str:
    """Text in the form that deduplication compares: NFC, case folded, each run of white space replaced by one blank."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.casefold().split())


def first_occurrences(ids: bytes) -> np.ndarray:
    """Mask (n,) bool that is True for the first document with each id. ids: ``n`` ids of 16 bytes, concatenated."""
    words = _words(ids)
    order = np.lexsort((words[:, 1], words[:, 0]))  # stable: equal ids stay in corpus order
    ordered = words[order]
    first = np.ones(len(words), bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    keep = np.zeros(len(words), bool)
    keep[order[first]] = True
    return keep


def shuffled_order(ids: bytes, seed: int, purpose: str) -> np.ndarray:
    """Indices (n,) int64 of the documents in a pseudo-random order that depends on ids, seed and purpose alone."""
    words = _words(ids)
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    odd = np.uint64(int.from_bytes(digest, "little") | 1)
    return np.argsort((words[:, 0] * odd) ^ words[:, 1], kind="stable")


def _words(ids: bytes) -> np.ndarray:
    return np.frombuffer(ids, np.dtype("<u8")).reshape(-1, ID_BYTES // 8)
