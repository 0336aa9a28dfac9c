"""Which source row i of a mixture comes from, and how many rows of it came before: a pure function of the weights.

At every block boundary the counts are the largest-remainder rounding of the exact shares; inside a block rows are dealt
by earliest deadline. No source is ever a row ahead or behind at a boundary, nor two rows anywhere. Knows nothing of
examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

MIN_BLOCK = 256
SMALLEST_SHARE = 1e-5
"""A rarer source would need blocks of more than 2^17 rows."""
_CHUNK = 4096
"""Blocks dealt at once."""


def largest_remainder(total: int | np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Integer counts that sum to ``total`` and are nearest to ``total * shares`` (Hamilton's method).

    total: int or (n,) int64; shares: (sources,) float64 that sum to 1. Returns (sources,) or (n, sources) int64. Equal
    remainders go to the first source.
    """
    totals = np.atleast_1d(np.asarray(total, np.int64))
    exact = totals[:, None] * shares
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - counts), axis=1, kind="stable")
    missing = totals - counts.sum(axis=1)
    bonus = np.arange(len(shares)) < missing[:, None]
    np.put_along_axis(counts, order, np.take_along_axis(counts, order, axis=1) + bonus, axis=1)
    return counts[0] if np.ndim(total) == 0 else counts


class Mixture:
    """Deals rows to sources in fixed proportions.

    weights: non-negative, not all zero; they are normalised by their own sum. Raises ValueError otherwise, or where a
    share lies above 0 and below 1e-5.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        if not weights or any(not math.isfinite(w) or w < 0 for w in weights) or not sum(weights) > 0:
            raise ValueError(f"weights {list(weights)}: expected finite numbers of at least 0 with a positive sum")
        self.shares = np.array(weights, np.float64) / math.fsum(weights)
        smallest = float(self.shares[self.shares > 0].min())
        if smallest < SMALLEST_SHARE:
            raise ValueError(f"smallest share {smallest:.2g}: expected at least {SMALLEST_SHARE:g}; merge rare sources")
        # With a row of the rarest source in every block, largest-remainder counts never go down between boundaries.
        self.block = max(MIN_BLOCK, 1 << math.ceil(math.log2(1.01 / smallest)))

    def counts(self, num_rows: int) -> np.ndarray:
        """Rows of each source among rows [0, num_rows): (sources,) int64, in time that does not depend on num_rows."""
        block, inside = divmod(num_rows, self.block)
        before = largest_remainder(block * self.block, self.shares)
        if inside:
            dealt, _ = self._deal(np.array([block]))
            before = before + np.bincount(dealt[0, :inside], minlength=len(self.shares))
        return before

    def rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source of each row (int64) and how many earlier rows came from the same source (int64)."""
        rows = np.asarray(rows, np.int64)
        blocks, where = np.unique(rows // self.block, return_inverse=True)
        inside = rows % self.block
        source = np.empty(rows.shape, np.int64)
        occurrence = np.empty(rows.shape, np.int64)
        order = np.argsort(where, kind="stable")
        bounds = np.searchsorted(where[order], np.arange(0, len(blocks) + _CHUNK, _CHUNK))
        for chunk in range(-(-len(blocks) // _CHUNK)):
            at = order[bounds[chunk] : bounds[chunk + 1]]
            dealt, ranks = self._deal(blocks[chunk * _CHUNK : (chunk + 1) * _CHUNK])
            place = (where[at] - chunk * _CHUNK, inside[at])
            source[at], occurrence[at] = dealt[place], ranks[place]
        return source, occurrence

    def _deal(self, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source and occurrence number of every slot of some blocks, each (blocks, block) int64.

        Each slot goes to the source whose next row is due first, among those that would not run ahead of their share
        by a row and have rows left in this block (earliest deadline first, which alone keeps every prefix within one
        row of its share: Tijdeman 1980). Largest-remainder counts at a boundary may ask for more of the rows behind it
        than can be dealt at once: there, with many sources, a lag of 1.2 rows has been seen.
        """
        sources = np.flatnonzero(self.shares)
        shares = self.shares[sources]
        first = blocks * self.block
        taken = largest_remainder(first, self.shares)[:, sources]
        limit = largest_remainder(first + self.block, self.shares)[:, sources]
        dealt = np.empty((len(blocks), self.block), np.int64)
        ranks = np.empty((len(blocks), self.block), np.int64)
        lane = np.arange(len(blocks))
        for slot in range(self.block):
            ready = taken <= (first + slot + 1)[:, None] * shares
            due = (taken + 1) / shares + np.where(ready, 0.0, 4.0 * self.block)
            due[taken >= limit] = np.inf
            choice = np.argmin(due, axis=1)
            dealt[:, slot] = sources[choice]
            ranks[:, slot] = taken[lane, choice]
            taken[lane, choice] += 1
        return dealt, ranks
