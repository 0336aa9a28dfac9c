"""Candidates for near duplicates: MinHash bands of texts, pairs that share a band, connected components of pairs.

14 bands of 8 minima, as datatrove: two texts whose sets of word 5-grams have Jaccard similarity s share a band with
probability 1 - (1 - s^8)^14, 0.92 at 0.8. Candidates are verified in ``near_duplicates``."""

import importlib.metadata
from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from lemur_ray.corpus.cleaning.shingles import mixed, ngram_hashes

N, BANDS, ROWS = 5, 14, 8
_SEED = 1
_CHUNK = 1 << 14
"""Hashes whose minima are taken at a time, so that they stay in the processor's cache."""
_LARGEST_STAR = 1000
"""Texts with one band key are linked to the first of them; beyond this number, to the first of each such run."""


def minhash_name() -> str:
    """Name of the library that computes the minima, for keys and messages: "rensa VERSION" if installed, else "numpy".
    Signatures of different libraries are not comparable."""
    try:
        return f"rensa {importlib.metadata.version('rensa')}"
    except importlib.metadata.PackageNotFoundError:
        return "numpy"


def band_keys(texts: Sequence[str]) -> np.ndarray:
    """(BANDS, texts) uint64: a key for each band of each text; 0 for a text of fewer than N words."""
    hashes, counts = ngram_hashes(texts, N)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)
    minima = (_rensa_minima if minhash_name() != "numpy" else numpy_minima)(hashes, offsets)
    keys = np.zeros((BANDS, len(texts)), np.uint64)
    for band in range(BANDS):
        key = keys[band]
        for row in range(ROWS):
            key *= np.uint64(0x9E3779B97F4A7C15)
            key += minima[:, band * ROWS + row]
            mixed(key)
    keys[:, counts == 0] = 0
    return keys


def _rensa_minima(hashes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    from rensa import RMinHash

    rows = RMinHash.digest_matrix_from_flat_token_hashes(hashes, offsets, BANDS * ROWS, _SEED).to_rows()
    return np.array(rows, np.uint64).reshape(len(offsets) - 1, BANDS * ROWS)


def numpy_minima(hashes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """MinHash signatures of texts: (texts, BANDS * ROWS) uint64, the minima over a text's hashes of BANDS * ROWS random
    affine maps of their upper 32 bits, modulo 2^32; 2^32 - 1 for a text without hashes. hashes: (n,) uint64, those of
    all texts one after the other; offsets: (texts + 1,), index of each text's first hash, then n."""
    draw = np.random.default_rng(_SEED).integers(0, 1 << 32, (2, BANDS * ROWS), dtype=np.uint32)
    factors, terms = draw[0] | np.uint32(1), draw[1]
    high = (hashes >> np.uint64(32)).astype(np.uint32)
    ends, num_texts = offsets.astype(np.int64), len(offsets) - 1
    out = np.full((BANDS * ROWS, num_texts), 0xFFFFFFFF, np.uint32)
    filled = np.flatnonzero(np.diff(ends))  # reduceat has no empty segments
    begin = 0
    while begin < len(filled):
        end = max(begin + 1, int(np.searchsorted(ends[filled], ends[filled[begin]] + _CHUNK)))
        texts = filled[begin:end]
        part = high[ends[texts[0]] : ends[texts[-1] + 1]]
        for k in range(BANDS * ROWS):
            out[k, texts] = np.minimum.reduceat(part * factors[k] + terms[k], ends[texts] - ends[texts[0]])
        begin = end
    return out.T.astype(np.uint64)


def candidate_pairs(keys: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """(pairs, 2) int64: pairs of texts with an equal key, enough to connect all of them.
    keys: (texts,) uint64 of one band, 0 for none. texts: their numbers in corpus order, ascending."""
    texts, keys = texts[keys != 0], keys[keys != 0]
    order = np.argsort(keys, kind="stable")
    keys, texts = keys[order], texts[order]
    at = np.arange(len(keys))
    new = np.ones(len(keys), bool)
    new[1:] = keys[1:] != keys[:-1]
    first = np.maximum.accumulate(np.where(new, at, 0))
    within = at - first
    centre = first + np.maximum(within - 1, 0) // _LARGEST_STAR * _LARGEST_STAR
    return np.stack([texts[centre[within > 0]], texts[within > 0]], axis=1)


def components(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Connected components of the graph whose edges are ``pairs`` (pairs, 2): (ascending numbers of the texts in it,
    component number of each, in order of their first texts)."""
    texts, ends = np.unique(pairs, return_inverse=True)
    ends = ends.reshape(-1, 2).astype(np.int32)
    graph = coo_array((np.ones(len(ends), bool), (ends[:, 0], ends[:, 1])), shape=(len(texts), len(texts)))
    _, labels = connected_components(graph, directed=False)
    _, first = np.unique(labels, return_index=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return texts, rank[labels]
