"""Compiles the serving engine's steps for TPUs or GPUs that are not attached, to learn whether they fit their memory.

The compiled program is the one that the devices would run, so its bytes are exact; its speed is not measured."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.attention import block_bytes
from lemur_ray.serve.compute.cache_layout import allocate, layout_for, pool_size
from lemur_ray.serve.compute.cut_logits import cut_of, logits_spec, padded_vocab
from lemur_ray.serve.compute.devices import AXIS, Devices, check_split, part_of
from lemur_ray.serve.compute.drawing.slot_edits import empty_slots
from lemur_ray.serve.compute.drawing.step import StepInputs, empty_inputs, step_and_draw, step_specs
from lemur_ray.serve.compute.invariant import ACCELERATOR, TILE, Transposed
from lemur_ray.serve.compute.programs import decode_buckets, is_scanned, prefill_buckets, step_shape, sums_for
from lemur_ray.serve.compute.quantized import Quantized
from lemur_ray.serve.compute.weights import Form, LayerWeights, Weights, weight_specs
from lemur_ray.serve.config import EngineOptions


class EngineDoesNotFit(ValueError):
    """Raised when XLA cannot fit a step into a device; the message is XLA's, up to 400 characters."""


@dataclass(frozen=True)
class Step:
    """Memory in bytes per device of a compiled step of the engine: ``rows`` sequences of ``length`` new tokens."""

    rows: int
    length: int
    """New tokens of a row: 1 is a decode step"""
    weights: int
    cache: int
    slots: int
    """Biases and counted tokens of sequences that ask for biases or penalties"""
    temporaries: int
    """Everything else: logits, code and intermediate results"""
    code: int
    """Machine code, a part of ``temporaries``; 0 on GPUs, where XLA does not count it"""
    kernel: bool
    """Whether attention uses the TPU kernel"""
    host_bytes: int
    """The one array that a step takes from the host; the tokens that it draws come back"""
    compile_s: float
    hlo: str
    """Text of the compiled program; no part of ``to_json``"""
    singles: int = 0
    """Decoding rows beside these rows, in a mixed step"""

    @property
    def total(self) -> int:
        """Bytes of weights, cache, slots and temporaries together on one device."""
        return self.weights + self.cache + self.slots + self.temporaries

    def __str__(self) -> str:
        kind = "decode" if self.length == 1 else f"prefill by {self.length}"
        kind = f"{self.singles} decoding beside {kind}" if self.singles else kind
        parts = (f"{name} {getattr(self, name) / 2**30:.3f}" for name in ("weights", "cache", "slots", "temporaries"))
        kernel = "the kernel" if self.kernel else "no kernel"
        return f"{kind}, {self.rows} rows: {self.total / 2**30:.2f} GiB ({', '.join(parts)}), {kernel}"

    def to_json(self) -> dict[str, Any]:
        """All fields except ``hlo``, by name, and ``total``; sizes in bytes, compile_s in seconds."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "hlo"} | {"total": self.total}


def abstract_weights(
    config: ModelConfig, dtype: Any, form: Form = "columns", *, parts: int = 1, scanned: bool = False
) -> Weights:
    """Shapes and dtypes (ShapeDtypeStruct) of the weights that ``weights.prepare`` would return; nothing is read or
    allocated. The arrays are whole, not one device's part; KV heads and vocabulary are padded for ``parts`` devices.
    form: storage of the matrices, "columns", "rows" or "int8" (see ``weights.Form``). scanned: one stacked array for
    all layers. dtype: of the embedding, and of matrices that are not int8."""
    c = config
    heads = (c.num_heads + 2 * max(c.num_kv_heads, parts)) * c.head_dim

    def vector(size: int, there: bool = True) -> Any:
        return jax.ShapeDtypeStruct((size,), jnp.float32) if there else None

    def matrix(inputs: int, outputs: int) -> Any:
        if form == "int8":
            return Quantized(
                jax.ShapeDtypeStruct((outputs, inputs), jnp.int8), jax.ShapeDtypeStruct((outputs,), jnp.float32)
            )
        if form == "rows":
            return Transposed(jax.ShapeDtypeStruct((outputs, inputs), dtype))
        return jax.ShapeDtypeStruct((inputs, outputs), dtype)

    layer = LayerWeights(
        attn_norm=vector(c.dim),
        wqkv=matrix(c.dim, heads),
        wo=matrix(c.num_heads * c.head_dim, c.dim),
        mlp_norm=vector(c.dim),
        gate_up=matrix(c.dim, 2 * c.ffn_dim),
        down=matrix(c.ffn_dim, c.dim),
        qkv_bias=vector(heads, c.qkv_bias),
        q_norm=vector(c.head_dim, c.qk_norm),
        k_norm=vector(c.head_dim, c.qk_norm),
        post_attn_norm=vector(c.dim, c.post_norms),
        post_mlp_norm=vector(c.dim, c.post_norms),
    )
    stack = jax.tree.map(lambda x: jax.ShapeDtypeStruct((c.num_layers, *x.shape), x.dtype), layer)
    layers = stack if scanned else (layer,) * c.num_layers
    embed: Any = jax.ShapeDtypeStruct((c.vocab_size, c.dim), dtype)
    return Weights(embed, layers, vector(c.dim), matrix(c.dim, -(-c.vocab_size // parts) * parts))


def weight_bytes(config: ModelConfig, options: EngineOptions, parts: int, platform: str) -> int:
    """Bytes of the model's weights on one of ``parts`` devices. platform: "cpu", "gpu" or "tpu", on which the partition
    of the matrices depends."""
    form: Form = "int8" if options.quantization == "int8" else "columns"
    weights = abstract_weights(config, jnp.dtype(options.dtype), form, parts=parts)
    where = weight_specs(config, form, sums_for(options, platform))
    specs = jax.tree.broadcast(where, weights, is_leaf=lambda x: isinstance(x, PartitionSpec))
    sizes = jax.tree.map(lambda x, spec: x.size * x.dtype.itemsize // (parts if any(spec) else 1), weights, specs)
    return sum(jax.tree.leaves(sizes))


def compile_step(
    config: ModelConfig, options: EngineOptions, devices: Sequence[Any], rows: int, length: int, platform: str = "tpu"
) -> Step:
    """Compile a step for ``rows`` sequences of ``length`` new tokens each (1: decoding; more rows than tiles of
    prompts: a mixed step, whose first rows have one token), and measure its memory. devices: jax's, attached or
    described by a topology; together they hold one model. platform: "tpu" or "gpu". Raises EngineDoesNotFit if a
    device's memory does not suffice, and ValueError if the model does not divide over the devices."""
    group = Devices(Mesh(np.asarray(devices), (AXIS,), axis_types=(AxisType.Auto,)))
    check_split(config, group.parts)
    dtype, part = jnp.dtype(options.dtype), part_of(config, group.parts)
    layout, (table_width, num_blocks) = layout_for(part, dtype, platform), pool_size(config, options, group.parts)
    axis, scanned = AXIS if group.parts > 1 else None, is_scanned(config, group.parts, platform)
    form: Form = "int8" if options.quantization == "int8" else "rows" if scanned else "columns"
    how = ACCELERATOR._replace(axis=axis, sums=sums_for(options, platform))
    where = weight_specs(config, form, how.sums, scanned=scanned)
    weights = abstract_weights(config, dtype, form, parts=group.parts, scanned=scanned)
    cache = group.abstract(partial(allocate, layout, part, num_blocks, dtype, scanned=scanned), layout.cut)
    cut, vocab, most_rows = cut_of(config, how), config.vocab_size, _mixed_rows(options)
    width = padded_vocab(vocab, group.parts) // group.parts if cut else vocab
    slots = group.abstract(partial(empty_slots, most_rows - options.prefill_tiles, width), logits_spec(cut))
    inputs = StepInputs(
        empty_inputs(rows, length, table_width), np.zeros((most_rows, -(-vocab // 32)), np.uint32),
        np.zeros(most_rows, np.int32),
    )  # fmt: skip
    shape = step_shape(rows, length, options.prefill_tiles)
    step = partial(step_and_draw, shape=shape, config=config, how=how, layout=layout)
    program = group.program(step, *step_specs(where, layout.cut, cut), donate=(1, 2))
    began = time.monotonic()
    try:
        compiled: Any = program.lower(weights, cache, slots, inputs).compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise EngineDoesNotFit(" ".join(str(error).removeprefix("RESOURCE_EXHAUSTED: ").split())[:400]) from error
    memory, hlo = compiled.memory_analysis(), compiled.as_text()
    held = weight_bytes(config, options, group.parts, platform)
    cache_bytes = num_blocks * block_bytes(config, dtype, group.parts) // group.parts
    slot_bytes = sum(x.size * x.dtype.itemsize for x in slots) // (group.parts if cut else 1)
    used = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    used += memory.temp_size_in_bytes + memory.generated_code_size_in_bytes
    return Step(
        rows - shape.singles, length, held, cache_bytes, slot_bytes, int(used - held - cache_bytes - slot_bytes),
        int(memory.generated_code_size_in_bytes), "ragged_paged_attention" in hlo, inputs.packed.nbytes,
        time.monotonic() - began, hlo, shape.singles,
    )  # fmt: skip


def shapes(options: EngineOptions, *, every_shape: bool = False) -> list[tuple[int, int]]:
    """(rows, new tokens per row) of the engine's largest decode step, then of its mixed step, which is larger than any
    prefill step; with ``every_shape`` all decode steps and all prefill steps before it, each in ascending order."""
    decode, prefill = decode_buckets(options.max_slots, lone=False), prefill_buckets(options.prefill_tiles)
    sizes = [(rows, 1) for rows in (decode if every_shape else decode[-1:])]
    sizes += [(rows, TILE) for rows in prefill if every_shape]
    return [*sizes, (_mixed_rows(options), TILE)]


def _mixed_rows(options: EngineOptions) -> int:
    return decode_buckets(options.max_slots, lone=False)[-1] + options.prefill_tiles
