"""Hashes of runs of consecutive words (n-grams) of many texts at once, in numpy without work per word.

A word is a run of letters, digits, ``_`` and bytes above 0x7f of the UTF-8 text; ASCII letters are made lower case. The
hash of a word is a polynomial of its bytes modulo 2^64, computed for all words at once from prefix sums."""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

VERSION = 1
"""Version of the hashes; part of the keys of everything computed from them."""
_BATCH_BYTES = 1 << 19
"""Bytes hashed at a time, so that all arrays stay in the processor's cache."""
_BASE, _STEP = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
"""Odd multipliers of the polynomial over bytes and of that over words."""
_WORD = np.zeros(256, np.uint64)
for _byte in range(256):
    if _byte > 127 or chr(_byte).isalnum() or _byte == ord("_"):
        _WORD[_byte] = ord(chr(_byte).lower()) if _byte < 128 else _byte


def ngram_hashes(texts: Sequence[str], n: int) -> tuple[np.ndarray, np.ndarray]:
    """(uint64 hashes of all n-grams of all texts in order, number of n-grams of each text as int64).
    A text of fewer than ``n`` words has none."""
    hashes, counts = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for batch in _batches(texts):
        words, number = _words(batch)
        of_batch, count = _ngrams(words, number, n)
        hashes.append(of_batch)
        counts.append(count)
    return np.concatenate(hashes), np.concatenate(counts)


def _batches(texts: Sequence[str]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        if batch and size + len(data) > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(data)
        size += len(data) + 1
    if batch:
        yield batch


def _words(items: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """(hashes of all words, number of words of each item). One item longer than a batch is hashed in pieces."""
    if len(items) == 1 and len(items[0]) > 2 * _BATCH_BYTES:
        pieces = [_words([piece])[0] for piece in _pieces(items[0])]
        words = np.concatenate(pieces)
        return words, np.array([len(words)])
    data = np.frombuffer(b"\0".join([*items, b""]), np.uint8)
    folded = _WORD[data]
    inside = np.zeros(len(data) + 1, bool)
    inside[1:] = folded != 0
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    begins, ends = edges[::2], edges[1::2]
    powers, inverses = _table(max(4 * _BATCH_BYTES, len(data)))
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(folded * powers[: len(data)], out=sums[1:])
    words = mixed((sums[ends] - sums[begins]) * inverses[begins])
    item_ends = np.cumsum([len(item) + 1 for item in items])
    return words, np.diff(np.searchsorted(begins, item_ends), prepend=0)


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield pieces of at most _BATCH_BYTES bytes, cut after white space where possible, else inside a word."""
    begin = 0
    while begin < len(data):
        end = min(begin + _BATCH_BYTES, len(data))
        if end < len(data):
            cut = max(data.rfind(b" ", begin, end), data.rfind(b"\n", begin, end))
            end = cut + 1 if cut > begin else end
        yield data[begin:end]
        begin = end


def _ngrams(words: np.ndarray, number: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    if len(words) < n:
        return np.zeros(0, np.uint64), np.zeros(len(number), np.int64)
    grams = words[: len(words) - n + 1].copy()
    for k in range(1, n):
        grams *= np.uint64(_STEP)
        grams += words[k : len(words) - n + 1 + k]
    ends = np.cumsum(number)
    # An n-gram that begins within the last n - 1 words of an item would reach into the next one.
    left = np.repeat(ends, number)[: len(grams)] - np.arange(len(grams))
    return mixed(grams[left >= n]), np.maximum(number - n + 1, 0)


def mixed(hashes: np.ndarray) -> np.ndarray:
    """The finaliser of MurmurHash3, in place: every bit of the result depends on every bit of the hash."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        hashes ^= hashes >> np.uint64(33)
        hashes *= np.uint64(factor)
    hashes ^= hashes >> np.uint64(33)
    return hashes


@functools.lru_cache(maxsize=1)
def _table(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers of the base and of its inverse modulo 2^64, from 0 to ``size`` - 1."""
    tables = []
    for factor in (_BASE, pow(_BASE, -1, 1 << 64)):
        powers = np.full(size, factor, np.uint64)
        powers[0] = 1
        tables.append(np.multiply.accumulate(powers))
    return tables[0], tables[1]
