"""Choice of the source of each row of a mixture, as a pure function of the sources' weights and the row number.

At every block boundary the counts are the largest-remainder rounding of the exact shares; inside a block rows go to the
source with the earliest deadline. A source deviates by less than one row at a boundary, and less than two anywhere."""

import math
from collections.abc import Sequence

import numpy as np

MIN_BLOCK = 256
"""Minimum number of rows of a block."""
SMALLEST_SHARE = 1e-5
"""Smallest share of a source; a rarer one would need blocks of more than 2^17 rows."""
_CHUNK = 4096
"""Number of blocks whose rows are assigned in one vectorised pass."""


def largest_remainder(total: int | np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Integer counts that sum to ``total`` and are nearest to ``total * shares`` (Hamilton's method).
    total: int or (n,) int64; shares: (sources,) float64. Returns (sources,) or (n, sources) int64."""
    totals = np.atleast_1d(np.asarray(total, np.int64))
    exact = totals[:, None] * shares
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - counts), axis=1, kind="stable")
    missing = totals - counts.sum(axis=1)
    bonus = np.arange(len(shares)) < missing[:, None]
    np.put_along_axis(counts, order, np.take_along_axis(counts, order, axis=1) + bonus, axis=1)
    return counts[0] if np.ndim(total) == 0 else counts


class Mixture:
    """Assignment of rows 0, 1, 2, ... to sources, numbered from 0, in fixed proportions. weights: one per source,
    finite, non-negative, not all zero. Raises ValueError otherwise, or for a share between 0 and 1e-5."""

    def __init__(self, weights: Sequence[float]) -> None:
        if not weights or any(not math.isfinite(w) or w < 0 for w in weights) or not sum(weights) > 0:
            raise ValueError(f"weights {list(weights)}: expected finite numbers of at least 0 with a positive sum")
        self.shares = np.array(weights, np.float64) / math.fsum(weights)
        smallest = float(self.shares[self.shares > 0].min())
        if smallest < SMALLEST_SHARE:
            raise ValueError(f"smallest share {smallest:.2g}: expected at least {SMALLEST_SHARE:g}; merge rare sources")
        # With a row of the rarest source in every block, largest-remainder counts never decrease between boundaries.
        self.block = max(MIN_BLOCK, 1 << math.ceil(math.log2(1.01 / smallest)))

    def counts(self, num_rows: int) -> np.ndarray:
        """Number of rows of each source among the first ``num_rows`` rows, (sources,) int64."""
        block, inside = divmod(num_rows, self.block)
        before = largest_remainder(block * self.block, self.shares)
        if inside:
            dealt, _ = self._deal(np.array([block]))
            before = before + np.bincount(dealt[0, :inside], minlength=len(self.shares))
        return before

    def rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(source of each row, number of its earlier rows), int64 of the shape of ``rows``, the row numbers."""
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
        """(source of every row of the blocks, number of earlier rows of that source), each (blocks, block) int64.
        Each slot goes to the source whose next row is due first, among those that would not exceed their share by a row
        and have rows left in this block (earliest deadline first; by itself it keeps every prefix within one row of its
        share: Tijdeman 1980). Largest-remainder counts can require several rows right after a boundary: with many
        sources lags of up to 1.2 rows were measured there."""
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
