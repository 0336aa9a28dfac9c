"""Small packed batches for tests of the model and of the step."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np


def packed_batch(
    documents: Sequence[Sequence[int]], vocab: int, *, length: int, seed: int = 0
) -> dict[str, jnp.ndarray]:
    """Rows of random documents of the given lengths, padded to ``length``, as a trainer's batch."""
    rng = np.random.default_rng(seed)
    rows = len(documents)
    shape = (rows, length)
    tokens, targets, segments, positions = (np.zeros(shape, np.int32) for _ in range(4))
    weights = np.zeros(shape, np.float32)
    for row, lengths in enumerate(documents):
        at = 0
        for number, size in enumerate(lengths, 1):
            ids = rng.integers(1, vocab, size)
            tokens[row, at : at + size] = ids
            targets[row, at : at + size - 1] = ids[1:]
            segments[row, at : at + size] = number
            positions[row, at : at + size] = np.arange(size)
            weights[row, at : at + size - 1] = 1.0
            at += size
    arrays = {
        "tokens": tokens, "targets": targets, "segment_ids": segments, "positions": positions, "loss_weights": weights,
        "source": (np.arange(rows) % 2).astype(np.int32),
    }  # fmt: skip
    return {name: jnp.asarray(array) for name, array in arrays.items()}
