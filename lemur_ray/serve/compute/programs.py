"""The compiled programs of an engine, one per shape, compiled at warm-up; later compilations are counted.

Shapes are few: a decode step for each bucket of rows, a prefill step for each number of tiles, and on CPUs for each of
these the greedy choice and the selection of ``ROWS`` rows, on which all sampling runs. On accelerators a step draws the
next token of every row itself (``drawing/``), and one more step, the mixed one, has all decoding rows and all tiles.
Compiling releases the interpreter lock, so threads compile in parallel. Knows nothing of requests."""

import bisect
import math
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.model.matmul import allowing
from lemur_ray.serve.compute import sampling
from lemur_ray.serve.compute.attention import Cache, Place, copy_block
from lemur_ray.serve.compute.cache_layout import allocate, layout_for, pool_size
from lemur_ray.serve.compute.cpu.kernels import available
from lemur_ray.serve.compute.cut_logits import cut_of, logits_spec, padded_vocab
from lemur_ray.serve.compute.devices import ONE, WHOLE, Devices, Sums, part_of
from lemur_ray.serve.compute.drawing import step
from lemur_ray.serve.compute.drawing.slot_edits import CHANGES, Slots, empty_slots, write_slot
from lemur_ray.serve.compute.drawing.step import RowOptions, StepInputs, StepResults, StepShape
from lemur_ray.serve.compute.forward import empty_step, forward, prompt_logprobs
from lemur_ray.serve.compute.invariant import ACCELERATOR, EXACT_CPU, FAST_CPU, TILE
from lemur_ray.serve.compute.weights import Form, Weights, check, prepare, weight_specs
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.errors import EngineClosed, WeightsNotReplaced
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs
from lemur_ray.weights.param_slices import Source


def prefill_buckets(most: int) -> tuple[int, ...]:
    """Sizes of prefill steps in tiles, ascending: the powers of two below ``most``, and ``most`` itself."""
    return (*(2**i for i in range(most.bit_length()) if 2**i < most), most)


def decode_buckets(num_slots: int, *, lone: bool) -> tuple[int, ...]:
    """Sizes of decode steps in rows, ascending up to ``num_slots`` (at least 2). lone: include a step of one row, which
    may sum in another order."""
    sizes = [n for n in (1, 2, 8, 32, 64, 128, 256, 512) if n < num_slots and (n > 1 or lone)]
    return (*sizes, max(num_slots, 2))


def singles_of(rows: int, length: int, prefill_tiles: int) -> int:
    """Rows of one new token at the beginning of a step of ``rows`` rows of ``length``: all but the tiles of a mixed
    step, 0 in any other."""
    return max(0, rows - prefill_tiles) if length > 1 else 0


def step_shape(rows: int, length: int, prefill_tiles: int) -> StepShape:
    """Shape of a step of ``rows`` rows of ``length`` that draws. prefill_tiles: rows of the largest prefill step."""
    return StepShape(length, singles_of(rows, length, prefill_tiles), prefill_tiles if length > 1 else 0)


MAX_SECOND_COPY_BYTES = 2**29
"""Limit of a device's memory for a second copy of the weights during an update; larger models are overwritten."""


def load_weights(source: Source, options: EngineOptions, devices: Devices, old: Weights | None = None) -> Weights:
    """Read the weights onto the devices, in the storage form for these options. Raises what ``prepare`` raises.
    old: the weights of an engine with these options, which are overwritten."""
    sums, scanned = sums_for(options, jax.default_backend()), is_scanned(source.config, devices.parts)
    dtype, form = jnp.dtype(options.dtype), _form(options, scanned)
    return prepare(source, dtype, devices, form, sums, scanned=scanned, old=old)


def stage(source: Source, options: EngineOptions, devices: Devices, size: int) -> Weights | Source:
    """Prepare new weights for ``Programs.replace``, and return its argument: the weights on the devices, or, if a
    second copy would be too large, their source after reading it once as a check. size: bytes of the present weights on
    a device. Raises what ``prepare`` raises."""
    if size <= MAX_SECOND_COPY_BYTES:
        return load_weights(source, options, devices)
    scanned = is_scanned(source.config, devices.parts)
    sums = sums_for(options, jax.default_backend())
    check(source, jnp.dtype(options.dtype), devices, _form(options, scanned), sums)
    return source


def device_bytes(weights: Weights) -> int:
    """Bytes of the weights on one device of this process."""
    parts = ((array.sharding.shard_shape(array.shape), array.dtype) for array in jax.tree.leaves(weights))
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in parts)


def is_scanned(config: ModelConfig, parts: int, platform: str = "") -> bool:
    """Whether layers are stacked and scanned: on several TPU chips, if all layers are alike. platform: default jax's.
    Only the compiler for TPU fuses a slice of stacked weights into its product; elsewhere the slice would be copied.
    One chip that holds a whole model may lack the memory that the loop needs in addition. parts: devices."""
    return (platform or jax.default_backend()) == "tpu" and parts > 1 and not config.global_every


def sums_for(options: EngineOptions, platform: str) -> Sums:
    """How devices combine products: "gather" on "cpu"; elsewhere "ordered" with batch_invariant, else "all_reduce" (see
    ``devices.Sums``). platform: name by jax, as "cpu"."""
    if platform == "cpu":
        return "gather"
    return "ordered" if options.batch_invariant else "all_reduce"


def _native(options: EngineOptions) -> bool:
    """Whether the C++ kernels for CPUs are wanted and available."""
    return options.native and not options.float64 and available()


def _form(options: EngineOptions, scanned: bool) -> Form:
    if options.quantization == "int8":
        return "packed int8" if _native(options) else "int8"
    if _native(options):
        return "packed"
    # The compiler for TPU turns some slices of stacked columns before it multiplies by them, but not those of rows.
    return "rows" if scanned or (options.dtype == "bfloat16" and jax.default_backend() == "cpu") else "columns"


_compiled: dict[Hashable, Any] = {}
"""Every compiled program of this process by its shapes and settings; engines with equal ones share them."""


class Programs:
    """The weights, the cache and the compiled programs on them. For one thread at a time."""

    def __init__(self, weights: Weights, config: ModelConfig, options: EngineOptions, devices: Devices = ONE):
        """Allocate the cache on the devices; nothing is compiled yet. weights: as ``load_weights`` returns for
        these options.
        options.batch_invariant: use arithmetic whose bits do not depend on the shape of a step, if there is any."""
        self.config, self.compiled_after_warmup, self._options = config, 0, options
        self._table_width, num_blocks = pool_size(config, options, devices.parts)
        is_reduced = options.dtype != "float32" or options.quantization != "none"
        lone = _native(options) or not (options.batch_invariant or is_reduced)
        self.decode_rows = decode_buckets(options.max_slots, lone=lone)
        self.prefill_rows = prefill_buckets(options.prefill_tiles)
        self._weights, self._devices = weights, devices
        dtype, part = jnp.dtype(options.cache_dtype), part_of(config, devices.parts)
        self.draws = jax.default_backend() != "cpu"
        """A step draws the tokens of its rows; then ``run`` is not used"""
        self._layout = layout_for(part, dtype, jax.default_backend(), _native(options))
        self._scanned = is_scanned(config, devices.parts)
        pools = partial(allocate, self._layout, part, num_blocks, dtype, scanned=self._scanned)
        with allowing(options.float64):
            self._cache: Cache = devices.allocate(pools, self._layout.cut)
        # Products of bfloat16 and int8 give the same bits at any number of rows: only float32 needs tiles, as does
        # attention to a float32 cache with int8 weights.
        tiled = options.batch_invariant and options.dtype == "float32"
        on_cpu = EXACT_CPU if tiled else FAST_CPU
        how = on_cpu if jax.default_backend() == "cpu" else ACCELERATOR
        self._how = how._replace(
            axis=devices.axis, sums=sums_for(options, jax.default_backend()), float64=options.float64
        )
        self.form, self._cut = _form(options, self._scanned), cut_of(config, self._how)
        self.mixed_rows = self.decode_rows[-1], self.prefill_rows[-1]
        """Decoding rows and tiles of a mixed step"""
        most_rows, vocab = sum(self.mixed_rows) * self.draws, config.vocab_size
        self.num_slots = self.decode_rows[-1] * self.draws
        """Sequences whose biases and penalties are on the devices at the same time"""
        width = padded_vocab(vocab, devices.parts) // devices.parts if self._cut else vocab
        self._slots: Slots = devices.allocate(partial(empty_slots, self.num_slots, width), logits_spec(self._cut))
        self._nothing_forbidden, self._last_ids = devices.allocate(
            lambda: (jnp.zeros((most_rows, -(-vocab // 32)), jnp.uint32), jnp.zeros(most_rows, jnp.int32)), WHOLE
        )
        kinds = (self._how, self._layout, dtype, self.form, devices)
        # Rows of a step do not determine how a mixed one is divided, or how many ids it takes.
        self._shape = (config, num_blocks, self._table_width, kinds, self.mixed_rows * self.draws)
        self._programs: dict[tuple[str, int, int], Any] = {}
        self._warm = False

    def keys(self) -> list[tuple[str, int, int]]:
        """(name, rows, new tokens of a row) of every program that steps use, large ones first."""
        shapes = [(rows, 1) for rows in self.decode_rows] + [(rows, TILE) for rows in self.prefill_rows]
        keys = [("forward", *shape) for shape in shapes] + [("copy", 1, 1)]
        if self.draws:
            keys += [("forward", sum(self.mixed_rows), TILE), ("write_slot", 1, 1)]
            keys.append(("prompt_logprobs", self.prefill_rows[-1], TILE))
        else:
            sizes = sorted({rows for rows, _ in shapes})
            keys += [(name, sampling.ROWS, 1) for name in ("sample", "edit", "shift", "logprobs")]
            keys += [(name, rows, 1) for name in ("greedy", "pick") for rows in sizes]
            keys += [("greedy", sampling.ROWS, 1)] * (sampling.ROWS not in sizes)
            keys += [("prompt_logprobs", rows, TILE) for rows in self.prefill_rows]
        return sorted(keys, key=lambda key: key[0] not in ("forward", "sample"))

    def warm_up(self, threads: int = 2) -> None:
        """Compile every program, ``threads`` of them at a time."""
        keys = self.keys()  # large ones must not run alone at the end
        lowered = {key: self._lower(key) for key in keys if (self._shape, key) not in _compiled}
        with ThreadPoolExecutor(threads) as pool:
            for key, program in zip(lowered, pool.map(lambda item: item.compile(), lowered.values()), strict=True):
                _compiled[self._shape, key] = program
        self._programs = {key: _compiled[self._shape, key] for key in keys}
        self._warm = True

    def pad(self) -> None:
        """Use only two shapes from now on: one for decoding and one for prefilling."""
        self.decode_rows, self.prefill_rows = self.decode_rows[-1:], self.prefill_rows[-1:]

    def bucket(self, rows: int, length: int) -> int:
        """Rows of the smallest compiled step that holds ``rows`` rows of ``length`` (1 or TILE) new tokens each."""
        sizes = self.decode_rows if length == 1 else self.prefill_rows
        return sizes[bisect.bisect_left(sizes, rows)]

    def forward(self, tokens_RM: np.ndarray, place: Place, options: RowOptions | None = None) -> StepResults:
        """Run a step of a bucket's shape, or a mixed one, whose rows of one token come first; its results stay on the
        devices. If steps do not draw (on CPUs), ids and logprobs are None. options: of the rows; by default greedy.
        tokens_RM: ids of the new tokens, padded. place: where they go."""
        rows, length = tokens_RM.shape
        program = self._program("forward", rows, length)
        if not self.draws:
            logits, hidden, self._cache = program(self._weights, self._cache, tokens_RM, place)
            return StepResults(logits, hidden, None, None)
        options = options or step.empty_options(rows)
        forbidden = self._nothing_forbidden if options.forbidden is None else options.forbidden
        inputs = StepInputs(step.pack(tokens_RM, place, options), forbidden, self._last_ids)
        results, self._cache, self._slots = program(self._weights, self._cache, self._slots, inputs)
        self._last_ids = results.ids
        return results

    def forbid_nothing(self) -> np.ndarray:
        """Writable ``RowOptions.forbidden`` that allows every token."""
        return np.zeros(self._nothing_forbidden.shape, np.uint32)

    def write_slot(self, slot: int, is_new: bool, changes: np.ndarray) -> None:
        """Change the biases and counts of a slot, as ``slot_edits.write_slot`` does."""
        program = self._program("write_slot", 1, 1)
        self._slots = program(self._slots, np.int32(slot), np.bool_(is_new), changes)

    def run(self, name: str, rows: int, *arguments: Any) -> Any:
        """Run a program of CPUs that needs neither weights nor cache, compiled for ``rows`` rows: "sample", "edit",
        "shift", "logprobs", "greedy" or "pick", with the arguments of that function of ``sampling``. Compiles it if it
        was not warmed up."""
        return self._program(name, rows, 1)(*arguments)

    def prompt_logprobs(self, hidden: jax.Array, row: int, next_ids_M: np.ndarray) -> TokenLogprobs:
        """Log-probabilities of ``next_ids_M``, which follow the tokens of row ``row`` of a prefill. hidden: that
        ``forward`` returned."""
        program = self._program("prompt_logprobs", len(hidden) // TILE, TILE)
        return TokenLogprobs.on_host(program(self._weights, hidden, np.int32(row), next_ids_M))

    def replace(self, new: Weights | Source) -> None:
        """Use other weights of the same model from now on: a result of ``stage``.
        Those of a source are written over the present ones, piece by piece. Raises WeightsNotReplaced if the first of
        them cannot be read, EngineClosed for a later one: then there are no whole weights any more."""
        if isinstance(new, Weights):
            self._weights = new
            return
        self.synchronise()
        try:
            self._weights = load_weights(new, self._options, self._devices, self._weights)
        except Exception as error:
            if not any(array.is_deleted() for array in jax.tree.leaves(self._weights)):
                raise WeightsNotReplaced(f"the new weights cannot be read any more: {error!r}") from error
            raise EngineClosed(f"the old weights are partly overwritten by others, which failed: {error!r}") from error

    def copy(self, source: int, target: int) -> None:
        """Copy cache block ``source`` to ``target``."""
        self._cache = self._program("copy", 1, 1)(self._cache, np.int32(source), np.int32(target))

    def synchronise(self) -> None:
        """Wait until the devices are idle."""
        jax.block_until_ready(self._cache)

    def _program(self, name: str, rows: int, length: int) -> Any:
        key = (name, rows, length)
        if key not in self._programs:
            self._programs[key] = self._lower(key).compile()
            self.compiled_after_warmup += self._warm
        return self._programs[key]

    def _lower(self, key: tuple[str, int, int]) -> Any:
        with allowing(self._how.float64 and key[0] in ("forward", "prompt_logprobs", "copy")):
            return self._lowered(*key)

    def _lowered(self, name: str, rows: int, length: int) -> Any:
        if name == "forward":
            return self._lower_forward(rows, length)
        where = weight_specs(self.config, self.form, self._how.sums, scanned=self._scanned)
        program, cache_cut = self._devices.program, self._layout.cut
        ids = jax.ShapeDtypeStruct((rows,), jnp.int32)
        if name == "prompt_logprobs":
            hidden, row = jax.ShapeDtypeStruct((rows * length, self.config.dim), self._weights.embed.dtype), np.int32(0)
            next_ids = jax.ShapeDtypeStruct((length,), jnp.int32)
            model = partial(prompt_logprobs, config=self.config, how=self._how)
            logprobs = program(model, (where, WHOLE, WHOLE, WHOLE), WHOLE)
            return logprobs.lower(self._weights, hidden, row, next_ids)
        if name == "copy":
            layers = self.config.num_layers if self._scanned else 1
            copying = program(partial(copy_block, layers=layers), (cache_cut, WHOLE, WHOLE), cache_cut, donate=(0,))
            return copying.lower(self._cache, np.int32(0), np.int32(0))
        if name == "write_slot":
            of_logits, changes = logits_spec(self._cut), np.zeros((3, CHANGES), np.int32)
            writing = partial(write_slot, cut=self._cut)
            written = program(writing, (of_logits, WHOLE, WHOLE, WHOLE), of_logits, donate=(0,))
            return written.lower(self._slots, np.int32(0), np.bool_(True), changes)
        vocab = self.config.vocab_size
        functions: dict[str, tuple[Any, ...]] = {
            "pick": (sampling.pick, jax.ShapeDtypeStruct((sampling.ROWS,), jnp.int32)),
            "edit": (sampling.edit, sampling.empty_edits(sampling.allow_all(rows, vocab))),
            "shift": (sampling.shift, jax.ShapeDtypeStruct((rows, vocab), jnp.float32)),
            "logprobs": (sampling.compute_logprobs, ids),
            "sample": (sampling.sample, sampling.empty_draw(rows)),
            "greedy": (sampling.greedy,),
        }
        function, *arguments = functions[name]
        compiled = program(function, (WHOLE, *[WHOLE] * len(arguments)), WHOLE)
        return compiled.lower(jax.ShapeDtypeStruct((rows, vocab), jnp.float32), *arguments)

    def _lower_forward(self, rows: int, length: int) -> Any:
        where = weight_specs(self.config, self.form, self._how.sums, scanned=self._scanned)
        program, cut = self._devices.program, self._layout.cut
        model: dict[str, Any] = {"config": self.config, "how": self._how, "layout": self._layout}
        if self.draws:
            specs = step.step_specs(where, cut, self._cut)
            shape = step_shape(rows, length, self._options.prefill_tiles)
            drawing = program(partial(step.step_and_draw, shape=shape, **model), *specs, donate=(1, 2))
            packed = step.empty_inputs(rows, length, self._table_width)
            inputs = StepInputs(packed, self._nothing_forbidden, self._last_ids)
            return drawing.lower(self._weights, self._cache, self._slots, inputs)
        steps = program(partial(forward, **model), (where, cut, WHOLE, WHOLE), (WHOLE, WHOLE, cut), donate=(1,))
        return steps.lower(self._weights, self._cache, *empty_step(rows, length, self._table_width))
