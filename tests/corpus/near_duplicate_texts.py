"""Texts with known near duplicates: source files of Python and edited copies, and the similarity of all pairs."""

from __future__ import annotations

import random
import re
import sysconfig
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, triu
from scipy.sparse.csgraph import connected_components

from lemur_ray.corpus.cleaning.minhash import N, band_keys, candidate_pairs, components
from lemur_ray.corpus.cleaning.near_duplicates import later_copies, text_sets
from lemur_ray.corpus.cleaning.shingles import ngram_hashes

RATES = (0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.06, 0.1)
"""Fraction of the words of a copy that are replaced or removed."""


def edited_texts(num_originals: int, num_copies: int, seed: int) -> list[str]:
    """Modules of the standard library, then copies of some of them with edits at random places."""
    draw = random.Random(seed)
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-z]*/*.py"))
    files += sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    files = [file for file in files if 500 < file.stat().st_size < 40_000 and "site-packages" not in str(file)]
    texts = [file.read_text("utf-8", "replace") for file in draw.sample(files, min(num_originals, len(files)))]

    def copy(text: str, rate: float) -> str:
        parts = re.split(r"(\s+)", text)
        for i in range(0, len(parts), 2):
            if draw.random() < rate:
                parts[i] = draw.choice(["", f"edit{draw.randrange(10**6)}"])
        return "".join(parts)

    return texts + [copy(draw.choice(texts), draw.choice(RATES)) for _ in range(num_copies)]


def true_later_copies(texts: list[str], threshold: float) -> np.ndarray:
    """Mask of texts connected to an earlier one by exact similarities of all pairs."""
    hashes, counts = ngram_hashes(texts, N)
    _, columns = np.unique(hashes, return_inverse=True)
    sets = csr_array((np.ones(len(columns), np.int32), (np.repeat(np.arange(len(texts)), counts), columns)))
    sets.data[:] = 1
    sizes = sets.sum(1)
    common = triu(sets @ sets.T, 1).tocoo()
    near = common.data / (sizes[common.row] + sizes[common.col] - common.data) >= threshold
    ends = common.row[near], common.col[near]
    graph = csr_array((np.ones(near.sum()), ends), shape=(len(texts), len(texts)))
    _, labels = connected_components(graph, directed=False)
    later = np.ones(len(texts), bool)
    later[np.unique(labels, return_index=True)[1]] = False
    return later


def later_copies_by_bands(texts: list[str], threshold: float) -> np.ndarray:
    """The mask as the project's own steps compute it."""
    pairs = np.concatenate([candidate_pairs(band, np.arange(len(texts))) for band in band_keys(texts)])
    later = np.zeros(len(texts), bool)
    numbers, labels = components(np.unique(pairs, axis=0))
    for label in range(labels.max() + 1):
        members = numbers[labels == label]
        later[members] = later_copies(text_sets([texts[i] for i in members.tolist()]), threshold)
    return later


def macro_f1(truth: np.ndarray, answer: np.ndarray) -> float:
    """Mean F1 of the classes "later copy" and "first or only"."""

    def f1(a: np.ndarray, b: np.ndarray) -> float:
        return 2 * float((a & b).sum()) / max(1.0, float(a.sum() + b.sum()))

    return (f1(truth, answer) + f1(~truth, ~answer)) / 2
