"""One step of the engine: admit waiting sequences, prefill tiles of prompts, decode one token of each reply.

A step is at most two calls of the programs, one for tiles of prompts and one for a token each, or where programs mix
them a single one. If programs run ahead, a step that decodes is sent before the tokens of the step before have arrived;
it starts from them on the devices, and rows of replies that end meanwhile are dropped. Runs in the engine's thread."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lemur_ray.serve.engine.block_cache import BlockCache
from lemur_ray.serve.engine.compute_protocol import Compute, Row, Step, WarmPrograms
from lemur_ray.serve.engine.events import Stats, Update
from lemur_ray.serve.engine.live_sequence import LiveSequence, Tile
from lemur_ray.serve.engine.scheduler import Scheduler

Drawn = list[tuple[LiveSequence, int | None]]
"""Sequences and their next tokens; None: the sequence failed, or generates no tokens."""


class Sent(NamedTuple):
    """A step that was sent to the devices and whose tokens have not arrived."""

    step: Step
    rows: tuple[tuple[int, LiveSequence, int], ...]
    """Row of the step, its sequence, and the sequence's number of admissions when it was sent"""
    num_decoding: int
    """Rows from here on are tiles"""

    @property
    def running(self) -> list[tuple[int, LiveSequence]]:
        """Rows whose sequences have not ended or been preempted since."""
        return [(r, s) for r, s, admissions in self.rows if s.handle >= 0 and s.admissions == admissions]


class Batch:
    """Runs the steps of one engine; owns its cache and scheduler. Used by the engine's thread only."""

    def __init__(self, compute: Compute, programs: WarmPrograms, stats: Stats):
        sizes, options = compute.sizes, compute.options
        self.programs, self._stats, self._tile = programs, stats, sizes.tile
        self._sent: Sent | None = None
        # With one shape for decoding, one for prefilling and reuse of whole prefilled tiles only, every token is
        # computed in the same way at any load.
        align = sizes.tile if programs.is_padded else 1
        self.cache = BlockCache(
            sizes.num_blocks, sizes.block, sizes.table_width, align, pinned_share=options.pinned_share
        )
        self.scheduler = Scheduler(
            self.cache, options.max_slots, sizes.tile, options.prefill_tiles, reuse_decoded=not programs.is_padded
        )

    def admit(self) -> Iterator[LiveSequence]:
        """Give waiting sequences cache blocks and slots as far as there are any; yields those admitted for the first
        time. Must be iterated to its end."""
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
        """Compute one step; yields the first tokens after completed prompts, then those of decoding sequences.
        The caller appends the yielded tokens to their sequences before it takes more. Yields nothing without work."""
        if (before := self._sent) is not None:
            self._sent = self._send_ahead(before)
            yield self._draw(before.step, before.running)
            if self._sent is not None:
                for r, sequence in self._sent.running:
                    if r < self._sent.num_decoding:
                        self.scheduler.decoded(sequence)
                return
        decoding = self.scheduler.decoding()
        runs_ahead = self.programs.runs_ahead and all(s.can_run_ahead for s in decoding)
        mixed = self._tiles_to_mix() if decoding and runs_ahead else None
        if mixed is None and (tiles := self.scheduler.tiles()):
            yield self._prefill(tiles)
        if decoding:
            yield self._decode(decoding, mixed or [], runs_ahead=runs_ahead)

    def settle(self) -> Drawn:
        """The tokens of a step that was sent ahead, if there is one; the devices have nothing to do afterwards."""
        sent, self._sent = self._sent, None
        return self._draw(sent.step, sent.running) if sent is not None else []

    def replace(self, update: Update) -> None:
        """Switch to other weights once the batch is settled. Raises WeightsNotReplaced if they cannot be read (the old
        ones stay), EngineClosed if no whole weights are left."""
        self.programs.replace(update.staged)
        if update.in_flight == "recompute":
            self.scheduler.restart()
        self.cache.forget()
        for sequence in self.scheduler.in_progress:
            sequence.take_over(update.version)

    def count(self) -> None:
        """Update gauges of ``Stats``: running sequences, blocks held and pinned, programs compiled after warm-up."""
        self._stats.active, self._stats.blocks_held = len(self.scheduler.running), self.cache.held
        self._stats.blocks_pinned = self.cache.pinned
        self._stats.recompiles_after_warmup = self.programs.compiled_after_warmup

    def _prefill(self, tiles: list[Tile]) -> Drawn:
        step = self.programs.step(self._rows_of(tiles), self._tile)
        for r, tile in enumerate(tiles):
            logprobs = None
            if tile.sequence.needs_prompt_logprobs:
                logprobs = step.prompt_logprobs(r, tile.following(self._tile))
            self.scheduler.prefilled(tile, logprobs)
            self._stats.prefill_tokens += len(tile.tokens)
        ends = [(r, tile.sequence) for r, tile in enumerate(tiles) if tile.is_last]
        return self._draw(step, [end for end in ends if end[1].is_complete])

    def _rows_of(self, tiles: Sequence[Tile]) -> list[Row]:
        return [Row(tile.tokens, self.cache.table(tile.sequence.handle), tile.start, tile.sequence) for tile in tiles]

    def _tiles_to_mix(self) -> list[Tile] | None:
        """The next tiles of prompts, if they can be computed in one program with decoding rows and without waiting; []
        if there are none, None if they need a program of their own."""
        tiles = self.scheduler.tiles()
        if not tiles or (self.programs.mixes and all(tile.can_be_mixed for tile in tiles)):
            return tiles
        return None

    def _decode(self, sequences: list[LiveSequence], tiles: list[Tile], *, runs_ahead: bool) -> Drawn:
        rows = [Row(s.next_decoded, self.cache.table(s.handle), s.computed, s) for s in sequences]
        step = self._send(rows, tiles)
        for sequence in sequences:
            self.scheduler.decoded(sequence)
        if runs_ahead:
            self._sent = self._record(step, sequences, tiles)
            return []
        return self._draw(step, [(r, s) for r, s in enumerate(sequences) if s.is_complete])

    def _send(self, rows: list[Row], tiles: Sequence[Tile]) -> Step:
        step = self.programs.step(self._rows_of(tiles), self._tile, rows) if tiles else self.programs.step(rows, 1)
        self._stats.decode_steps += 1
        self._stats.decode_rows += len(rows)
        self._stats.padding_rows += (step.first_tile or step.num_rows) - len(rows)
        return step

    def _record(self, step: Step, decoding: list[LiveSequence], tiles: Sequence[Tile]) -> Sent:
        """Record the tiles of a step that was sent and is not waited for."""
        step.keep_ids()
        drawn = [*enumerate(decoding)]
        for row, tile in enumerate(tiles, step.first_tile):
            self.scheduler.prefilled(tile)
            self._stats.prefill_tokens += len(tile.tokens)
            if tile.is_last:
                drawn.append((row, tile.sequence))
        return Sent(step, tuple((r, s, s.admissions) for r, s in drawn), len(decoding))

    def _send_ahead(self, before: Sent) -> Sent | None:
        """Send the step after ``before``; None if other work comes first or all its sequences are about to end."""
        drawn = before.running
        going_on = [(r, s) for r, s in drawn if len(s.generated) + 1 < s.request.max_tokens]
        tiles, all_decoding = self._tiles_to_mix(), [s for s in self.scheduler.running if not s.is_prefilling]
        if tiles is None or len(drawn) < len(all_decoding) or not going_on:
            return None
        if not all(self.cache.reserve(s.handle, s.computed + 1) for _, s in going_on):
            return None
        nothing = np.zeros(0, np.int32)
        rows = [Row(nothing, self.cache.table(s.handle), s.computed, s, r) for r, s in going_on]
        return self._record(self._send(rows, tiles), [s for _, s in going_on], tiles)

    @staticmethod
    def _draw(step: Step, rows: list[tuple[int, LiveSequence]]) -> Drawn:
        """The next token of the sequences of these rows; first those with max_tokens 0, whose token is None."""
        nothing: Drawn = [(sequence, None) for _, sequence in rows if not sequence.request.max_tokens]
        rows = [row for row in rows if row[1].request.max_tokens]
        tokens = step.next_tokens(rows) if rows else []
        return nothing + [(sequence, token) for (_, sequence), token in zip(rows, tokens, strict=True)]
