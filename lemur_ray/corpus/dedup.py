"""Exact deduplication over all sources: the first document of each id in corpus order stays.

Knows ids and order, nothing of texts. Needs 24 bytes of memory per document.
"""

from __future__ import annotations

import hashlib

import numpy as np

from lemur_ray.corpus.documents import ID_BYTES


def first_occurrences(ids: bytes) -> np.ndarray:
    """Mask of the documents to keep: (n,) bool for ``n`` ids of 16 bytes, concatenated in corpus order."""
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
