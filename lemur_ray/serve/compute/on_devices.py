"""The engine's ``Compute`` in jax: weights on devices, steps of fixed shapes, and other hosts that compute a part."""

import logging
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from lemur_ray.serve.compute.attention import BLOCK, block_bytes
from lemur_ray.serve.compute.cache_layout import pool_size
from lemur_ray.serve.compute.devices import Devices
from lemur_ray.serve.compute.drawing.row_options import RowOptionsWriter
from lemur_ray.serve.compute.drawing.step import StepResults
from lemur_ray.serve.compute.drawing.token_choice import next_tokens
from lemur_ray.serve.compute.forward import empty_step
from lemur_ray.serve.compute.invariant import TILE
from lemur_ray.serve.compute.lockstep import Group, LeadingPrograms
from lemur_ray.serve.compute.programs import Programs, device_bytes, load_weights, singles_of, stage
from lemur_ray.serve.compute.weights import Weights
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.compute_protocol import CacheSizes, Row
from lemur_ray.serve.engine.drawn_tokens import accepted, record_logprobs
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs
from lemur_ray.weights.param_slices import Source

log = logging.getLogger(__name__)


class OnDevices:
    """The engine's ``Compute`` in jax: reads the weights of ``source`` onto this process's devices when it is made.
    group: followers with the other devices of the model."""

    def __init__(self, source: Source, options: EngineOptions | None = None, group: Group | None = None):
        """source: the weights, which are read at once. group: other processes that compute a part of every step.
        Raises ValueError if the devices cannot share the model, and what reading the source raises."""
        self.config, self.options, self._group = source.config, options or EngineOptions(), group
        config = self.config
        context = min(self.options.context or self.config.max_seq_len, self.config.max_seq_len)
        self._devices = Devices.take(self.options.tensor_parallel)
        self.num_devices = self._devices.parts
        table_width, num_blocks = pool_size(self.config, self.options, self.num_devices)
        self.sizes = CacheSizes(context, num_blocks, table_width, BLOCK, TILE)
        if self.options.cache_bytes < table_width * block_bytes(config, self.options.cache_dtype, self.num_devices):
            log.warning("cache_bytes %d cannot hold one sequence: it gets more than that", self.options.cache_bytes)
        self._weights: Weights | None = load_weights(source, self.options, self._devices)
        self._weight_bytes = device_bytes(self._weights)

    def stage(self, source: Source, spec: str, version: str) -> Weights | Source:
        own = partial(stage, source, self.options, self._devices, self._weight_bytes)
        return own() if self._group is None else self._group.stage(spec, version, own)

    def drop(self) -> None:
        if self._group is not None:
            self._group.drop()

    def warm_up(self, on_loss: Callable[[BaseException], None]) -> "WarmOnDevices":
        if self._group is not None:
            self._group.on_loss = on_loss
        make = Programs if self._group is None else partial(LeadingPrograms, self._group)
        weights, self._weights = self._weights, None  # the programs own them, so that an update frees them
        assert weights is not None, "warm_up is called once"
        programs = make(weights, self.config, self.options, self._devices)
        programs.warm_up(self.options.compile_threads)
        wanted = self.options.batch_invariant
        is_exact = wanted and is_batch_invariant(programs, self.sizes.table_width)
        if wanted and not is_exact:
            log.warning("logits depend on the shape of a step on this machine: every step is padded to one shape")
            programs.pad()
        mixes = programs.draws and is_exact == wanted
        if mixes and wanted and not is_batch_invariant(programs, self.sizes.table_width, mixed=True):
            log.warning("logits of a mixed step differ on this machine: prompts and decoding rows are two programs")
            mixes = False
        programs.synchronise()
        return WarmOnDevices(programs, self.sizes.table_width, is_exact, wanted and not is_exact, mixes)

    def close(self) -> None:
        if self._group is not None:
            self._group.close()


class WarmOnDevices:
    """The engine's ``WarmPrograms`` in jax: compiled programs with weights and cache on devices."""

    def __init__(self, programs: Programs, table_width: int, is_exact: bool, is_padded: bool, mixes: bool):
        self.programs, self._table_width = programs, table_width
        self.is_exact, self.is_padded, self.mixes = is_exact, is_padded, mixes
        self.copy, self.replace, self.runs_ahead = programs.copy, programs.replace, programs.draws
        self._options = RowOptionsWriter(programs)

    @property
    def compiled_after_warmup(self) -> int:
        return self.programs.compiled_after_warmup

    def step(self, rows: Sequence[Row], length: int, decoding: Sequence[Row] = ()) -> "StepOnDevices":
        singles, tiles = self.programs.mixed_rows if decoding else (0, self.programs.bucket(len(rows), length))
        num_rows, numbered = singles + tiles, [*enumerate(decoding), *enumerate(rows, singles)]
        tokens, place = empty_step(num_rows, length, self._table_width)
        for r, row in numbered:
            tokens[r, : len(row.tokens)], place.tables[r] = row.tokens, row.table
            place.starts[r], place.counts[r] = row.start, len(row.tokens)
        of_group = np.repeat(np.array([len(decoding), len(rows)], np.int32), [singles, tiles])
        place = place._replace(num_rows=of_group if decoding else np.int32(len(rows)))
        if not self.runs_ahead:
            return StepOnDevices(self.programs, self.programs.forward(tokens, place))
        for r, row in numbered:
            place.counts[r] = max(place.counts[r], row.source >= 0)
        options, failed = self._options.write(num_rows, numbered)
        results = self.programs.forward(tokens, place, options)
        if not options.edits.logprobs.any():
            results = results._replace(logprobs=())
        return DrawnStep(self.programs, results, singles, failed)


class StepOnDevices:
    """The engine's ``Step`` in jax: the results of a step on devices, from whose logits tokens are drawn afterwards."""

    first_tile = 0

    def __init__(self, programs: Programs, results: StepResults):
        self._programs, self._results, self.num_rows = programs, results, len(results.logits)

    def keep_ids(self) -> None:
        self._results = self._results._replace(logits=None, hidden=None)

    def next_tokens(self, rows: Sequence[tuple[int, LiveSequence]]) -> list[int | None]:
        return next_tokens(self._programs, self._results.logits, rows)

    def prompt_logprobs(self, row: int, next_ids: np.ndarray) -> TokenLogprobs:
        return self._programs.prompt_logprobs(self._results.hidden, row, next_ids)


class DrawnStep(StepOnDevices):
    """A step that has drawn its tokens itself; they travel to the host as soon as they are there."""

    def __init__(self, programs: Programs, results: StepResults, first_tile: int, failed: set[int]):
        """failed: rows without a token, because their constraint raised an error."""
        super().__init__(programs, results)
        self.first_tile, self._failed = first_tile, failed
        for array in (results.ids, *results.logprobs):
            array.copy_to_host_async()

    def next_tokens(self, rows: Sequence[tuple[int, LiveSequence]]) -> list[int | None]:
        tokens = accepted(np.asarray(self._results.ids), rows, self._failed)
        record_logprobs(rows, tokens, lambda: self._results.logprobs)
        return tokens


_LENGTH = 45
_NUM_PREFIX = 40


def is_batch_invariant(programs: Programs, width: int, *, mixed: bool = False) -> bool:
    """Measure whether the logits after a test prompt are bit-equal in programs of all shapes, of which a mixed step
    counts only with ``mixed``. Runs these programs, and overwrites cache block 1. width: blocks of a table."""
    table, scrap = np.zeros(width, np.int32), np.zeros(width, np.int32)
    table[0] = 1
    vocab = programs.config.vocab_size
    tokens = (np.arange(_LENGTH, dtype=np.int32) * 7919 + 11) % vocab

    def run(rows: int, length: int, start: int, row: int) -> np.ndarray:
        """Logits of the prompt computed from ``start`` on in row ``row``, with other work in the rows before it."""
        out = np.zeros(0)
        while start < _LENGTH:
            singles = singles_of(rows, length, programs.prefill_rows[-1])
            piece = tokens[start : start + (1 if row < singles else length)]
            ids, place = empty_step(rows, length, len(table))
            of_group = np.repeat(np.array(programs.mixed_rows, np.int32), programs.mixed_rows)
            place = place._replace(num_rows=of_group if singles else np.int32(row + 1))
            ids[row, : len(piece)], place.tables[row] = piece, table
            place.starts[row], place.counts[row] = start, len(piece)
            for other in range(row):
                # The other rows compute the first token of the scrap block: real work without effect here.
                ids[other, 0], place.tables[other], place.counts[other] = 1, scrap, 1
            # Of logits that are cut, this process compares those of its own devices.
            logits = programs.forward(ids, place).logits
            out = np.concatenate([np.asarray(shard.data)[row] for shard in logits.addressable_shards])
            start += len(piece)
        return out

    prefill, decode = programs.prefill_rows, programs.decode_rows
    reference = run(prefill[-1], 32, 0, 0)
    if mixed:
        singles, rows = programs.mixed_rows[0], sum(programs.mixed_rows)
        begins = [(_NUM_PREFIX, 0), (_NUM_PREFIX, singles - 1), (0, singles), (17, rows - 1)]
        return all(np.array_equal(reference, run(rows, 32, *begin)) for begin in begins)
    others = [run(rows, 32, start, rows - 1) for rows in prefill for start in (0, 17)]
    others += [run(rows, 1, _NUM_PREFIX, row) for rows in decode for row in {0, rows - 1}]
    others.append(run(prefill[0], 32, _LENGTH - 1, 0))
    return all(np.array_equal(reference, other) for other in others)
