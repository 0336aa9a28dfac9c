"""Near duplicates among texts that share a MinHash band, verified by the Jaccard similarity of their word 5-grams."""

from collections.abc import Sequence

import numpy as np

from lemur_ray.corpus.cleaning.minhash import N
from lemur_ray.corpus.cleaning.shingles import ngram_hashes

_ALL_PAIRS = 2000
"""Members of a component up to which all its pairs may be compared; beyond it only pairs that share a band."""


def text_sets(texts: Sequence[str]) -> list[np.ndarray]:
    """The set of word 5-grams of each text as ascending uint32 hashes; empty for fewer words, [] for no texts. Two
    n-grams collide with probability 2^-32."""
    hashes, counts = ngram_hashes(texts, N)
    return [np.unique(part.astype(np.uint32)) for part in np.split(hashes, np.cumsum(counts)[:-1])] if texts else []


def later_copies(sets: Sequence[np.ndarray], threshold: float, pairs: np.ndarray | None = None) -> np.ndarray:
    """Mask (texts,) bool: texts connected to an earlier one by pairs of Jaccard similarity ``threshold`` or more.
    sets: those of the texts of one component of candidates in corpus order (``text_sets``). pairs: (pairs, 2)
    candidates as indices into ``sets``, used if there are too many texts to compare all pairs."""
    sizes = np.array([len(one) for one in sets], np.int64)
    flat, ids = np.unique(np.concatenate(sets), return_inverse=True)
    begins = np.cumsum(sizes) - sizes
    if pairs is not None and len(sets) > _ALL_PAIRS:
        return _connected_by(pairs, ids, begins, sizes, threshold, len(flat))
    later = np.zeros(len(sets), bool)
    left = np.arange(len(sets))
    marks = np.zeros(len(flat), bool)
    while len(left):
        group, left = [int(left[0])], left[1:]
        while group and len(left):  # breadth first: each new member is compared with the texts that have no group yet
            member = group.pop()
            near = _similarities(member, left, ids, begins, sizes, marks) >= threshold
            later[left[near]] = True
            group += left[near].tolist()
            left = left[~near]
    return later


def _similarities(
    one: int, others: np.ndarray, ids: np.ndarray, begins: np.ndarray, sizes: np.ndarray, marks: np.ndarray
) -> np.ndarray:
    """Jaccard similarity of one set with each of ``others``. marks: all False before and after."""
    mine = ids[begins[one] : begins[one] + sizes[one]]
    marks[mine] = True
    lengths = sizes[others]
    starts = np.cumsum(lengths) - lengths
    members = np.arange(int(lengths.sum())) + np.repeat(begins[others] - starts, lengths)
    common = np.add.reduceat(marks[ids[members]], starts, dtype=np.int64)
    marks[mine] = False
    return np.asarray(common / (sizes[one] + lengths - common))


def _connected_by(
    pairs: np.ndarray, ids: np.ndarray, begins: np.ndarray, sizes: np.ndarray, threshold: float, num_ids: int
) -> np.ndarray:
    marks = np.zeros(num_ids, bool)
    order = np.argsort(pairs[:, 0], kind="stable")
    ordered = pairs[order]
    first, begin = np.unique(ordered[:, 0], return_index=True)
    root = np.arange(len(sizes))
    for one, others in zip(first.tolist(), np.split(ordered[:, 1], begin[1:]), strict=True):
        others = np.unique(others)
        for other in others[_similarities(one, others, ids, begins, sizes, marks) >= threshold].tolist():
            a, b = sorted((_find(root, one), _find(root, other)))
            root[b] = a
    return np.array([_find(root, i) != i for i in range(len(sizes))], bool)


def _find(root: np.ndarray, one: int) -> int:
    while root[one] != one:
        root[one] = root[root[one]]
        one = int(root[one])
    return one
