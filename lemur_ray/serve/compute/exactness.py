"""Measures at warm-up whether logits depend on the shape of the step that computes them, on this machine.

The same short prompt goes through every program in different ways; if all logits are bit-equal, then the greedy output
of a request is the same alone and in any batch, with and without the cache. Knows nothing of requests.
"""

from __future__ import annotations

import numpy as np

from lemur_ray.serve.compute.programs import Programs, empty_step

_LENGTH = 45
_NUM_PREFIX = 40


def is_batch_invariant(programs: Programs, width: int) -> bool:
    """Whether logits after a test prompt are bit-equal in all programs. Overwrites block 1; width: of a table."""
    table, scrap = np.zeros(width, np.int32), np.zeros(width, np.int32)
    table[0] = 1
    vocab = programs.config.vocab_size
    tokens = (np.arange(_LENGTH, dtype=np.int32) * 7919 + 11) % vocab

    def run(rows: int, length: int, start: int, row: int) -> np.ndarray:
        """Logits of the prompt computed from ``start`` on in row ``row``, with other work in the rows before it."""
        out = np.zeros(0)
        while start < _LENGTH:
            piece = tokens[start : start + length]
            ids, place = empty_step(rows, length, len(table))
            place = place._replace(num_rows=np.int32(row + 1))
            ids[row, : len(piece)], place.tables[row] = piece, table
            place.starts[row], place.counts[row] = start, len(piece)
            for other in range(row):
                # The other rows compute the first token of the scrap block: real work without effect here.
                ids[other, 0], place.tables[other], place.counts[other] = 1, scrap, 1
            out = np.asarray(programs.forward(ids, place)[0])[row]
            start += len(piece)
        return out

    prefill, decode = programs.prefill_rows, programs.decode_rows
    reference = run(prefill[-1], 32, 0, 0)
    others = [run(rows, 32, start, rows - 1) for rows in prefill for start in (0, 17)]
    others += [run(rows, 1, _NUM_PREFIX, row) for rows in decode for row in {0, rows - 1}]
    others.append(run(prefill[0], 32, _LENGTH - 1, 0))
    return all(np.array_equal(reference, other) for other in others)
