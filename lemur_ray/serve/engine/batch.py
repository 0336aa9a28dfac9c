"""One step of the engine: admit waiting sequences, prefill tiles of prompts, decode one token of each reply.

A step is at most two calls of the programs, one for tiles of prompts and one for a token each. Runs in the engine's
thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from lemur_ray.serve.engine.block_cache import BlockCache
from lemur_ray.serve.engine.compute_protocol import Compute, Row, Step, WarmPrograms
from lemur_ray.serve.engine.events import Stats
from lemur_ray.serve.engine.live_sequence import LiveSequence, Tile
from lemur_ray.serve.engine.scheduler import Scheduler

Drawn = list[tuple[LiveSequence, int | None]]
"""Sequences and their next tokens; None: the sequence failed, or generates no tokens."""


class Batch:
    """Runs the steps of one engine, with its cache, scheduler and compiled programs."""

    def __init__(self, compute: Compute, programs: WarmPrograms, stats: Stats):
        sizes, options = compute.sizes, compute.options
        self.programs, self._stats, self._tile = programs, stats, sizes.tile
        # With one shape for decoding, one for prefilling and reuse of whole prefilled tiles only, every token is
        # computed in the same way at any load.
        align = sizes.tile if programs.is_padded else 1
        self.cache = BlockCache(
            sizes.num_blocks, sizes.block, sizes.table_width, align, pinned_share=options.pinned_share
        )
        self.scheduler = Scheduler(
            self.cache, options.max_slots, sizes.tile, options.prefill_tiles, reuse_decoded=not programs.is_padded
        )

    @property
    def is_idle(self) -> bool:
        return not (self.scheduler.running or self.scheduler.waiting)

    def admit(self) -> Iterator[LiveSequence]:
        """Give waiting sequences their cache blocks; yields those admitted for the first time."""
        for sequence, place in self.scheduler.admit():
            if place.copy is not None:
                self.programs.copy(*place.copy)
            if sequence.admissions > 1:
                self._stats.preemptions += 1
                self._stats.recomputed_tokens += sequence.length - place.cached
                continue
            self._stats.prompt_tokens += len(sequence.prompt)
            self._stats.cached_tokens += place.cached
            yield sequence

    def step(self) -> Iterator[Drawn]:
        """Compute one step; yields the first tokens after completed prompts, then those of decoding sequences."""
        decoding = self.scheduler.decoding()
        if tiles := self.scheduler.tiles():
            yield self._prefill(tiles)
        if decoding:
            yield self._decode(decoding)

    def count(self) -> None:
        """Update the gauges of ``Stats``."""
        self._stats.active, self._stats.blocks_held = len(self.scheduler.running), self.cache.held
        self._stats.blocks_pinned = self.cache.pinned
        self._stats.recompiles_after_warmup = self.programs.compiled_after_warmup

    def _prefill(self, tiles: list[Tile]) -> Drawn:
        rows = [Row(tile.tokens, self.cache.table(tile.sequence.handle), tile.start) for tile in tiles]
        step = self.programs.step(rows, self._tile)
        for r, tile in enumerate(tiles):
            logprobs = None
            if tile.sequence.needs_prompt_logprobs:
                logprobs = step.prompt_logprobs(r, tile.following(self._tile))
            self.scheduler.prefilled(tile, logprobs)
            self._stats.prefill_tokens += len(tile.tokens)
        ends = [(r, tile.sequence) for r, tile in enumerate(tiles) if tile.is_last]
        return self._draw(step, [end for end in ends if end[1].is_complete])

    def _decode(self, sequences: list[LiveSequence]) -> Drawn:
        rows = [Row(s.next_decoded, self.cache.table(s.handle), s.computed) for s in sequences]
        step = self.programs.step(rows, 1)
        for sequence in sequences:
            self.scheduler.decoded(sequence)
        self._stats.decode_steps += 1
        self._stats.decode_rows += len(sequences)
        self._stats.padding_rows += step.num_rows - len(sequences)
        return self._draw(step, [(r, s) for r, s in enumerate(sequences) if s.is_complete])

    @staticmethod
    def _draw(step: Step, rows: list[tuple[int, LiveSequence]]) -> Drawn:
        """The next token of the sequences of these rows; first those with max_tokens 0, whose token is None."""
        nothing: Drawn = [(sequence, None) for _, sequence in rows if not sequence.request.max_tokens]
        rows = [row for row in rows if row[1].request.max_tokens]
        tokens = step.next_tokens(rows) if rows else []
        return nothing + [(sequence, token) for (_, sequence), token in zip(rows, tokens, strict=True)]
