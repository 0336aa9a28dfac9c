"""Text embeddings and near-duplicate removal: a vector is dropped if its cosine to an earlier kept one is too high.

Float32 products decide clear cases, and pairs within rounding error of the threshold are computed exactly. So the
result depends on the vectors alone, not on block sizes or the number of machines."""

import functools
import itertools
import math
import re
import zlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

BLOCK = 4096
"""Rows per block: the product of two blocks takes 64 MiB."""

AnySimilar = Callable[[np.ndarray, Sequence[Any], float], Sequence[np.ndarray]]
"""Function of (rows, blocks of kept rows, threshold): list with the ``any_similar`` mask of the rows for each block."""
Put = Callable[[np.ndarray], Any]


def keep_first(
    vectors: np.ndarray,
    threshold: float,
    *,
    block: int = BLOCK,
    compare: AnySimilar | None = None,
    put: Put = lambda rows: rows,
) -> np.ndarray:
    """Mask (n,) bool of the rows to keep, in input order: their cosine to every earlier kept row is <= ``threshold``.
    vectors: (n, dim) float32 of any norm; a zero vector is similar to nothing. block: rows compared at a time; it
    changes no result. compare: compares a block with earlier ones, default `any_similar` in this process. put: makes of
    a block what ``compare`` takes, as a Ray reference. Raises ValueError if a vector is not finite."""
    if not np.isfinite(vectors).all():
        bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise ValueError(f"the vector of row {bad} is not finite: the encoder is broken on that text")
    compare = compare or (lambda rows, blocks, limit: [any_similar(rows, kept, limit) for kept in blocks])
    keep = np.zeros(len(vectors), bool)
    kept_blocks: list[Any] = []
    for begin in range(0, len(vectors), block):
        rows = np.ascontiguousarray(vectors[begin : begin + block], np.float32)
        open_rows = np.ones(len(rows), bool)
        for like in compare(rows, kept_blocks, threshold):
            open_rows &= ~like
        left = np.flatnonzero(open_rows)
        left = left[_first_within(rows[left], threshold)]
        keep[begin + left] = True
        if len(left):
            kept_blocks.append(put(rows[left]))
    return keep


def any_similar(rows: np.ndarray, kept: np.ndarray, threshold: float) -> np.ndarray:
    """For each row (n, dim), whether its cosine to any row of ``kept`` (m, dim) is above the threshold: (n,) bool."""
    sure, unsure = _compared(rows, kept, threshold)
    out: np.ndarray = np.any(sure, axis=1)
    for row in np.flatnonzero(~out & unsure.any(axis=1)):
        out[row] = any(exceeds(rows[row], kept[other], threshold) for other in np.flatnonzero(unsure[row]))
    return out


def _first_within(rows: np.ndarray, threshold: float) -> np.ndarray:
    """Mask (n,) bool of the rows of one block whose cosine to every earlier kept row of it is <= ``threshold``."""
    sure, unsure = _compared(rows, rows, threshold)
    keep = np.zeros(len(rows), bool)
    for row in range(len(rows)):
        if (sure[row, :row] & keep[:row]).any():
            continue
        doubtful = np.flatnonzero(unsure[row, :row] & keep[:row])
        keep[row] = not any(exceeds(rows[row], rows[other], threshold) for other in doubtful)
    return keep


def _compared(a: np.ndarray, b: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Masks (pairs surely above the threshold, pairs too close to it for float32), each (len(a), len(b)) bool."""
    products = _unit(a) @ _unit(b).T
    margin = 1e-5 + 4e-7 * a.shape[1]  # above the worst rounding of a product of two unit vectors
    return products > threshold + margin, np.abs(products - threshold) <= margin


def _unit(rows: np.ndarray) -> np.ndarray:
    norms = np.sqrt(np.sum(rows.astype(np.float64) ** 2, axis=1, keepdims=True))
    return (rows / np.where(norms > 0, norms, 1.0)).astype(np.float32)


def exceeds(a: np.ndarray, b: np.ndarray, threshold: float) -> bool:
    """Whether the cosine of two vectors (dim,) is strictly above the threshold, computed exactly; False for a zero
    vector and a threshold of at least 0."""
    x, y = a.astype(np.float64), b.astype(np.float64)  # products of float32 are exact in float64
    norms = math.sqrt(math.fsum(x * x) * math.fsum(y * y))
    difference = math.fsum(x * y) - threshold * norms
    if abs(difference) > 1e-12 * norms:
        return difference > 0
    u, v = ([Fraction(number) for number in vector.tolist()] for vector in (x, y))
    dot, xx, yy = (sum(p * q for p, q in zip(*pair, strict=True)) for pair in ((u, v), (u, u), (v, v)))
    return dot > 0 and dot**2 > Fraction(str(threshold)) ** 2 * xx * yy


Encoder = Callable[[Sequence[str]], np.ndarray]

_BATCH = 64
_OTHERS = "pass --encoder hashing:1024 (same words, not same meaning) or --near-duplicate 0 (no such filter)"


@functools.lru_cache(maxsize=2)
def encoder(spec: str, prompt: str = "") -> Encoder:
    """Function from texts to their vectors (texts, dim) float32. spec: ``sentence-transformers:MODEL``, as in the
    paper, which may download the model, or ``hashing:DIM``, without a model. prompt: text put before every input of a
    model. The last two are kept in the process. Raises ModuleNotFoundError if sentence-transformers is needed and not
    installed, OSError if the model cannot be loaded."""
    kind, _, what = spec.partition(":")
    if kind == "hashing":
        return functools.partial(hash_vectors, dim=int(what))
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the search for near-duplicates needs sentence-transformers: pip install 'lemur-ray[instruct]', or "
            + _OTHERS
        ) from error
    try:
        model = SentenceTransformer(what)
    except (OSError, ValueError) as error:  # ValueError: a folder without a model
        reason = str(error).partition("\n")[0]
        raise OSError(
            f"--encoder {spec} cannot be loaded ({reason}): name a folder with the model, or {_OTHERS}"
        ) from error

    def encode(texts: Sequence[str]) -> np.ndarray:
        vectors = model.encode(
            list(texts), prompt=prompt or None, batch_size=_BATCH, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(vectors, np.float32)

    return encode


def hash_vectors(texts: Sequence[str], dim: int) -> np.ndarray:
    """Bag-of-words vectors (texts, dim) float32: signed counts of words and word pairs, hashed into ``dim`` columns."""
    out = np.zeros((len(texts), dim), np.float32)
    for row, text in enumerate(texts):
        words = re.findall(r"\w+|[^\w\s]", text.lower())
        for feature in (*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))):
            code = zlib.crc32(feature.encode())
            out[row, (code >> 1) % dim] += 1.0 if code & 1 else -1.0
    return out
