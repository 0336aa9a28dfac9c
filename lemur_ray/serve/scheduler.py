"""What the next step computes: a few tiles of prompts, and one token for everybody who is decoding.

Requests are taken in order of arrival. Prompts are cut into tiles; at most ``prefill_tiles`` of them go beside a decode
step, so a long prompt never stops the others. Pure bookkeeping: knows nothing of jax, clocks, threads or text.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from lemur_ray.serve.cache import Admission, PrefixCache


@dataclass(frozen=True)
class Generation:
    """What to generate: the engine's request, ids only."""

    prompt: tuple[int, ...]
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    """Ids that end the generation; the one that did is the last token given out"""
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    choice: int = 0
    """Number among several answers to one request; each draws its own noise from the same seed"""


@dataclass(eq=False)
class Sequence:
    """A request on its way."""

    number: int
    request: Generation
    prompt: np.ndarray
    slot: int = -1
    cached: int = 0
    """Prompt tokens that were found in the cache"""
    computed: int = 0
    """Tokens whose keys and values are in the cache"""
    generated: list[int] = field(default_factory=list)

    @property
    def is_prefilling(self) -> bool:
        return self.computed < len(self.prompt)


@dataclass(frozen=True)
class Tile:
    """A piece of one prompt."""

    sequence: Sequence
    start: int
    tokens: np.ndarray

    @property
    def is_last(self) -> bool:
        return self.start + len(self.tokens) == len(self.sequence.prompt)


class Scheduler:
    """Waiting and running sequences."""

    def __init__(self, cache: PrefixCache, tile: int, prefill_tiles: int, reuse_decoded: bool = True):
        """reuse_decoded: keys and values that were computed while decoding serve later prompts too."""
        self.cache, self.tile, self.prefill_tiles, self.reuse_decoded = cache, tile, prefill_tiles, reuse_decoded
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def admit(self) -> list[tuple[Sequence, Admission]]:
        """Give slots to those who wait, in order, as long as there are any."""
        admitted = []
        while self.waiting:
            sequence = self.waiting[0]
            place = self.cache.admit(sequence.prompt)
            if place is None:
                break
            self.waiting.popleft()
            sequence.slot, sequence.cached, sequence.computed = place.slot, place.cached, place.cached
            self.running.append(sequence)
            admitted.append((sequence, place))
        return admitted

    def tiles(self) -> list[Tile]:
        """The next pieces of prompts, oldest first; pieces of one prompt follow each other."""
        tiles: list[Tile] = []
        for sequence in self.running:
            start = sequence.computed
            while start < len(sequence.prompt):
                if len(tiles) == self.prefill_tiles:
                    return tiles
                tokens = sequence.prompt[start : start + self.tile]
                tiles.append(Tile(sequence, start, tokens))
                start += len(tokens)
        return tiles

    def decoding(self) -> list[Sequence]:
        return [s for s in self.running if not s.is_prefilling]

    def prefilled(self, tile: Tile) -> None:
        """A tile has been computed."""
        tile.sequence.computed += len(tile.tokens)
        self.cache.record(tile.sequence.slot, tile.tokens)

    def decoded(self, sequence: Sequence) -> None:
        """The last generated token went through the model."""
        sequence.computed += 1
        if self.reuse_decoded:
            self.cache.record(sequence.slot, np.array(sequence.generated[-1:], np.int32))

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out, wherever it is. False: it is not here any more."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.cache.release(sequence.slot)
            return True
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return True
        return False
