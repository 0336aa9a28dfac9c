"""What the next step computes: a few tiles of prompts, and one token for everybody who is decoding.

Requests are taken in order of arrival, but one whose beginning another is just computing waits for that. Prompts are
cut into tiles; at most ``prefill_tiles`` of them go beside a decode step: a long prompt never stops the others. Where
the cache is full, the youngest gives its place up and is computed again later. Pure bookkeeping: knows nothing of jax,
clocks, threads or text.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from lemur_ray.serve.engine.block_cache import Admission, BlockCache
from lemur_ray.serve.engine.live_sequence import LiveSequence, Tile
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs


class Scheduler:
    """Waiting and running sequences."""

    def __init__(self, cache: BlockCache, max_running: int, tile: int, prefill_tiles: int, reuse_decoded: bool = True):
        """reuse_decoded: keys and values are the same computed token by token and as part of a prompt.

        Then those that were computed while decoding serve later prompts too, and who lost its place is computed again
        as one prompt. Where they are not, a reply is played again: decoded as it was before, without a new choice.
        """
        self.cache, self.max_running, self.tile, self.prefill_tiles = cache, max_running, tile, prefill_tiles
        self.reuse_decoded = reuse_decoded
        self.paused = False
        """Only sequences that have begun go on"""
        self.waiting: deque[LiveSequence] = deque()
        self.running: list[LiveSequence] = []

    def add(self, sequence: LiveSequence) -> None:
        self.waiting.append(sequence)

    def admit(self) -> list[tuple[LiveSequence, Admission]]:
        """Give places to those who wait, in order, as long as there are any."""
        admitted = []
        for sequence in list(self.waiting):
            if len(self.running) == self.max_running:
                break
            if self.paused and not sequence.admissions:
                continue
            ids = sequence.known if self.reuse_decoded else sequence.prompt
            if self._waits(sequence, ids):
                continue
            again = self.cache.blocks(sequence.length + 1) - self.cache.blocks(len(ids) + 1)
            place = self.cache.admit(
                ids, self._spare() + again, sequence.needs_prompt_logprobs, sequence.request.session_id
            )
            if place is None:
                break
            self.waiting.remove(sequence)
            sequence.handle, sequence.computed, sequence.prefill = place.handle, place.cached, ids
            if not sequence.admissions:
                sequence.cached = place.cached
            sequence.admissions += 1
            if place.logprobs is not None and sequence.prompt_logprobs is not None:
                sequence.prompt_logprobs.put(0, place.logprobs)
            self.running.append(sequence)
            admitted.append((sequence, place))
        return admitted

    def _waits(self, sequence: LiveSequence, ids: np.ndarray) -> bool:
        """Whether a running sequence is about to compute what this one needs; it is cheaper to wait for that."""
        if sequence.after is not None:
            other, until = sequence.after
            if other.handle >= 0 and other.computed < until:
                return True
            sequence.after = None
        with_logprobs = sequence.needs_prompt_logprobs
        prefilling = [s for s in self.running if s.is_prefilling and s.needs_prompt_logprobs >= with_logprobs]
        if not prefilling:
            return False
        found = self.cache.found(ids, with_logprobs)
        for other in prefilling:
            length = min(len(other.prefill), len(ids) - 1)
            differs = other.prefill[:length] != ids[:length]
            common = int(differs.argmax()) if differs.any() else length
            if common >= max(found, other.computed) + self.tile:
                sequence.after = (other, common)
                return True
        return False

    def _spare(self) -> int:
        """Blocks that the running ones will want next; one that is admitted must not push them out at once."""
        return sum(
            self.cache.blocks(len(s.prompt) + s.request.max_tokens) > self.cache.blocks(len(s.prefill) + 1)
            for s in self.running
        )

    @property
    def has_begun(self) -> bool:
        """Whether there is a sequence whose reply has begun."""
        return bool(self.running) or any(sequence.admissions for sequence in self.waiting)

    def tiles(self) -> list[Tile]:
        """The next pieces of prompts, oldest first; pieces of one prompt follow each other."""
        tiles: list[Tile] = []
        for sequence in self.running:
            start = sequence.computed
            while start < len(sequence.prefill):
                if len(tiles) == self.prefill_tiles:
                    return tiles
                tokens = sequence.prefill[start : start + self.tile]
                tiles.append(Tile(sequence, start, tokens))
                start += len(tokens)
        return tiles

    def decoding(self) -> list[LiveSequence]:
        """Everybody who gets a token; before, the youngest ones lose their places where there is no room for it."""
        for sequence in [s for s in self.running if not s.is_prefilling]:
            while sequence.handle >= 0 and not self.cache.reserve(sequence.handle, sequence.computed + 1):
                self._preempt(self.running[-1])
        return [s for s in self.running if not s.is_prefilling]

    def _preempt(self, sequence: LiveSequence) -> None:
        """Back to the head of the queue. What it has computed may be found again."""
        self.running.remove(sequence)
        self.cache.release(sequence.handle)
        sequence.handle, sequence.computed = -1, 0
        self.waiting.appendleft(sequence)

    def prefilled(self, tile: Tile, logprobs: TokenLogprobs | None = None) -> None:
        """A tile has been computed. logprobs: of the tokens behind those of the tile, where the sequence needs them."""
        sequence, end = tile.sequence, tile.start + len(tile.tokens)
        known = None
        if logprobs is not None and sequence.prompt_logprobs is not None:
            sequence.prompt_logprobs.put(
                tile.start + 1, logprobs.part(0, min(end, len(sequence.prompt) - 1) - tile.start)
            )
            known = sequence.prompt_logprobs.part(tile.start, end)
        sequence.computed = end
        self.cache.record(sequence.handle, tile.tokens, known)

    def decoded(self, sequence: LiveSequence) -> None:
        """The next generated token went through the model."""
        if self.reuse_decoded:
            self.cache.record(sequence.handle, sequence.next_decoded)
        sequence.computed += 1

    def remove(self, sequence: LiveSequence) -> None:
        """Take a sequence out, wherever it is."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.cache.release(sequence.handle)
            sequence.handle = -1
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
