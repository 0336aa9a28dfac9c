"""Which tokens lie in which blocks of the cache: one slot per sequence, longest common prefix kept.

A finished sequence stays in its slot until the slot is needed, least recently used first, so that the next turn of the
same conversation finds its own history and computes only what is new. A header that another slot holds is copied. Knows
nothing of jax: it hands out block ids, and ``attention.py`` reads and writes the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Admission:
    """A place for a sequence."""

    slot: int
    cached: int
    """Leading tokens of the prompt whose keys and values are there (after the copy); below len(prompt)"""
    copy_from: int | None = None
    """Slot whose first ``cached`` tokens must be copied before the slot is used"""


class PrefixCache(Protocol):
    """What the scheduler asks of a cache; a tree of shared blocks can take the place of slots."""

    def admit(self, prompt: np.ndarray) -> Admission | None:
        """Reserve room for a sequence that begins with these tokens; None: everything is in use."""
        ...

    def record(self, slot: int, tokens: np.ndarray) -> None:
        """These tokens follow in the slot, and their keys and values may be reused."""
        ...

    def release(self, slot: int) -> None:
        """The sequence is over; what was recorded stays until the room is needed."""
        ...

    def table(self, slot: int) -> np.ndarray:
        """(blocks of a sequence,) int32 block ids."""
        ...


class SlotCache:
    """Slots of equal size with contiguous blocks; block 0 belongs to nobody."""

    def __init__(self, num_slots: int, context: int, block: int, align: int = 1, min_copy: int = 32):
        """align: reuse whole multiples of this many tokens; min_copy: shorter prefixes are not worth a copy."""
        self.num_slots, self._align, self._min_copy = num_slots, align, min_copy
        per_slot = -(-context // block)
        self.num_blocks = 1 + num_slots * per_slot
        self._tables = 1 + np.arange(num_slots * per_slot, dtype=np.int32).reshape(num_slots, per_slot)
        self._tokens = np.full((num_slots, context), -1, np.int32)
        self._lengths = np.zeros(num_slots, np.int64)
        self._used_at = np.arange(num_slots, dtype=np.int64)
        self._clock = num_slots
        self._idle = np.ones(num_slots, bool)

    def admit(self, prompt: np.ndarray) -> Admission | None:
        if not self._idle.any():
            return None
        shared = self._shared(prompt)
        source = int(np.argmax(shared))
        slot, copied = self._choose(shared, source)
        cached = int(shared[slot]) if not copied else int(shared[source])
        self._idle[slot] = False
        self._touch(slot)
        self._touch(source)
        self._tokens[slot, :cached] = prompt[:cached]
        self._tokens[slot, cached:] = -1
        self._lengths[slot] = cached
        return Admission(slot, cached, source if copied else None)

    def record(self, slot: int, tokens: np.ndarray) -> None:
        begin = int(self._lengths[slot])
        self._tokens[slot, begin : begin + len(tokens)] = tokens
        self._lengths[slot] = begin + len(tokens)

    def release(self, slot: int) -> None:
        self._idle[slot] = True
        self._touch(slot)

    def table(self, slot: int) -> np.ndarray:
        return self._tables[slot]

    def forget(self) -> None:
        """Drop every prefix that may be reused, for example because the weights changed."""
        self._lengths[self._idle] = 0
        self._tokens[self._idle] = -1

    def _shared(self, prompt: np.ndarray) -> np.ndarray:
        """Tokens that each slot has in common with the prompt; the last one is always left to compute."""
        length = min(len(prompt) - 1, self._tokens.shape[1])
        differs = self._tokens[:, :length] != prompt[:length]
        shared = np.where(differs.any(axis=1), differs.argmax(axis=1), length) if length else np.zeros(self.num_slots)
        return np.minimum(shared, self._lengths).astype(np.int64) // self._align * self._align

    def _choose(self, shared: np.ndarray, source: int) -> tuple[int, bool]:
        """The slot to use, and whether the prefix has to be copied into it from ``source``."""
        idle_shared = np.where(self._idle, shared, -1)
        own = int(np.argmax(idle_shared))
        lost = self._lengths[own] - shared[own]
        # In place, unless that would throw away another conversation's history for the sake of a common header.
        if shared[own] >= self._min_copy and shared[own] >= shared[source] and lost <= max(shared[own] // 4, 64):
            return own, False
        oldest = int(np.argmin(np.where(self._idle, self._used_at, np.iinfo(np.int64).max)))
        if oldest == source or shared[source] < self._min_copy or shared[source] <= shared[oldest]:
            return oldest, False
        return oldest, True

    def _touch(self, slot: int) -> None:
        self._clock += 1
        self._used_at[slot] = self._clock
