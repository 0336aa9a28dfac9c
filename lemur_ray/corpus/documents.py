"""Document ids (hashes of the normalised text), exact deduplication by id, and a pseudo-random order by id.

Deduplication needs 4 bytes of memory per document beside the ids."""

import hashlib
import unicodedata
from typing import Literal

import numpy as np

Kind = Literal["code", "text", "chat"]

ID_BYTES = 16
"""Length of an id. Texts that differ only in case, white space or Unicode form have the same id."""


def content_id(text: str) -> bytes:
    """Id of a document: 16 bytes, BLAKE2b-128 of the text as ``normalise`` returns it."""
    return hashlib.blake2b(normalise(text).encode("utf-8", "surrogatepass"), digest_size=ID_BYTES).digest()


def normalise(text: str) -> str:
    """Text in the form that deduplication compares: NFC, case folded, each run of white space replaced by one blank."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.casefold().split())


def first_occurrences(ids: bytes | bytearray) -> np.ndarray:
    """Mask (n,) bool that is True for the first document with each id. ids: ``n`` ids of 16 bytes, concatenated.
    Ids are compared a range at a time, which takes a sixteenth of the memory."""
    words = _words(ids)
    keep, ranges = np.zeros(len(words), bool), (words[:, 0] >> np.uint64(60)).astype(np.uint8)
    for number in range(16):
        at = np.flatnonzero(ranges == number)
        of_range = words[at]
        order = np.lexsort((of_range[:, 1], of_range[:, 0]))  # stable: equal ids stay in corpus order
        ordered = of_range[order]
        first = np.ones(len(at), bool)
        first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        keep[at[order[first]]] = True
    return keep


def shuffled_order(ids: bytes, seed: int, purpose: str) -> np.ndarray:
    """Indices (n,) int64 of the documents in a pseudo-random order that depends on ids, seed and purpose alone."""
    words = _words(ids)
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    odd = np.uint64(int.from_bytes(digest, "little") | 1)
    return np.argsort((words[:, 0] * odd) ^ words[:, 1], kind="stable")


def _words(ids: bytes | bytearray) -> np.ndarray:
    return np.frombuffer(ids, np.dtype("<u8")).reshape(-1, ID_BYTES // 8)
