"""Text embeddings for near-duplicate search: functions from texts to a float32 array (texts, dim)."""

from __future__ import annotations

import functools
import itertools
import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np

Encoder = Callable[[Sequence[str]], np.ndarray]

_BATCH = 64


@functools.lru_cache(maxsize=2)
def encoder(spec: str, prompt: str = "") -> Encoder:
    """Embedding function of ``sentence-transformers:MODEL``, as in the paper, or ``hashing:DIM``, without a model.

    prompt: what a model is given before every text. Cached per process. Raises ModuleNotFoundError if
    sentence-transformers is needed and not installed.
    """
    kind, _, what = spec.partition(":")
    if kind == "hashing":
        return functools.partial(hash_vectors, dim=int(what))
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the search for near-duplicates needs sentence-transformers: pip install 'lemur-ray[instruct]', or pass "
            "--encoder hashing:1024 (same words, not same meaning) or --near-duplicate 0 (no such filter)"
        ) from error
    model = SentenceTransformer(what)

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
