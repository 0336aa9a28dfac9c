"""Scheduler: the next step computes a few tiles of prompts, and one token for every decoding sequence.

Requests are admitted in order of arrival, except that a request waits for a common prefix which another is computing.
Prompts are cut into tiles, at most ``prefill_tiles`` of them per step, so a long prompt does not stop the others. When
the cache is full, the youngest sequence is preempted and computed again later. Knows nothing of jax, clocks, threads or
text."""

from collections import deque

import numpy as np

from lemur_ray.serve.engine.block_cache import Admission, BlockCache
from lemur_ray.serve.engine.live_sequence import LiveSequence, Tile
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs


class Scheduler:
    """Decides which waiting sequences start, and which tokens each step computes. Used by the engine's thread only."""

    def __init__(self, cache: BlockCache, max_running: int, tile: int, prefill_tiles: int, reuse_decoded: bool = True):
        """max_running: sequences at the same time; tile: tokens of a tile; prefill_tiles: tiles of prompts in a step.
        reuse_decoded: whether a decoded token has the same keys and values, to the last bit, as a prefilled one. Then
        later prompts reuse decoded tokens, and a preempted sequence is computed again as one prompt. Otherwise the
        reply of a preempted sequence is decoded again with the same tokens."""
        self.cache, self.max_running, self.tile, self.prefill_tiles = cache, max_running, tile, prefill_tiles
        self.reuse_decoded = reuse_decoded
        self.paused = False
        """Whether only preempted sequences are admitted"""
        self.waiting: deque[LiveSequence] = deque()
        self.running: list[LiveSequence] = []

    def add(self, sequence: LiveSequence) -> None:
        self.waiting.append(sequence)

    def admit(self) -> list[tuple[LiveSequence, Admission]]:
        """Start waiting sequences in order while there are slots and blocks; returns them with their blocks, or []."""
        admitted = []
        for sequence in list(self.waiting):
            if len(self.running) == self.max_running:
                break
            if self.paused and not sequence.admissions:
                continue
            ids = sequence.known if self.reuse_decoded else sequence.prompt
            if self._waits_for_prefix(sequence, ids):
                continue
            spare = self._spare() + self.cache.blocks(sequence.length + 1) - self.cache.blocks(len(ids) + 1)
            place = self.cache.admit(ids, spare, sequence.needs_prompt_logprobs, sequence.request.session_id)
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

    def _waits_for_prefix(self, sequence: LiveSequence, ids: np.ndarray) -> bool:
        """Whether a running sequence is about to compute a prefix of this one, which is then reused."""
        if sequence.after is not None:
            other, until = sequence.after
            if other.handle >= 0 and other.computed < until:
                return True
            sequence.after = None
        with_logprobs = sequence.needs_prompt_logprobs
        prefilling = [s for s in self.running if s.is_prefilling and s.needs_prompt_logprobs >= with_logprobs]
        if not prefilling:
            return False
        num_cached = self.cache.num_cached(ids, with_logprobs)
        for other in prefilling:
            length = min(len(other.prefill), len(ids) - 1)
            differs = other.prefill[:length] != ids[:length]
            common = int(differs.argmax()) if differs.any() else length
            if common >= max(num_cached, other.computed) + self.tile:
                sequence.after = (other, common)
                return True
        return False

    def _spare(self) -> int:
        """Blocks that an admission must leave: one for each running sequence whose longest reply needs more blocks than
        it was admitted with, also if it has them by now."""
        return sum(
            self.cache.blocks(len(s.prompt) + s.request.max_tokens) > self.cache.blocks(len(s.prefill) + 1)
            for s in self.running
        )

    @property
    def in_progress(self) -> list[LiveSequence]:
        """Sequences that were admitted and have not ended; preempted ones last."""
        return self.running + [sequence for sequence in self.waiting if sequence.admissions]

    def restart(self) -> None:
        """Preempt every running sequence."""
        while self.running:
            self._preempt(self.running[-1])

    def tiles(self) -> list[Tile]:
        """The next tiles of prompts, at most ``prefill_tiles``: the oldest sequence first, tiles of one prompt in
        order; [] if nothing is to be prefilled."""
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
        """Sequences that decode a token in this step, after preempting the youngest ones if blocks are short."""
        for sequence in [s for s in self.running if not s.is_prefilling]:
            while sequence.handle >= 0 and not self.cache.reserve(sequence.handle, sequence.computed + 1):
                self._preempt(self.running[-1])
        return [s for s in self.running if not s.is_prefilling]

    def _preempt(self, sequence: LiveSequence) -> None:
        """Return a sequence to the head of the queue; its cached blocks may be reused later."""
        self.running.remove(sequence)
        self.cache.release(sequence.handle)
        sequence.handle, sequence.computed = -1, 0
        self.waiting.appendleft(sequence)

    def prefilled(self, tile: Tile, logprobs: TokenLogprobs | None = None) -> None:
        """Record a computed tile. logprobs: of the tokens that follow those of the tile, if the sequence needs them."""
        sequence, end = tile.sequence, tile.start + len(tile.tokens)
        known = None
        if logprobs is not None and sequence.prompt_logprobs is not None:
            count = min(end, len(sequence.prompt) - 1) - tile.start
            sequence.prompt_logprobs.put(tile.start + 1, logprobs.part(0, count))
            known = sequence.prompt_logprobs.part(tile.start, end)
        sequence.computed = end
        self.cache.record(sequence.handle, tile.tokens, known)

    def decoded(self, sequence: LiveSequence) -> None:
        """Count the sequence's ``next_decoded`` as computed once a step with it as input was sent; with
        ``reuse_decoded`` other sequences may use it from the cache."""
        if self.reuse_decoded:
            self.cache.record(sequence.handle, sequence.next_decoded)
        sequence.computed += 1

    def remove(self, sequence: LiveSequence) -> None:
        """Remove a sequence and release its blocks; nothing happens if it is neither running nor waiting."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.cache.release(sequence.handle)
            sequence.handle = -1
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
