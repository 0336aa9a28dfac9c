"""Compiles the serving engine's steps for a TPU chip that is not attached, to learn whether they fit its memory.

The compiled program is the one that the chip would run, so its bytes are exact; its speed is not measured.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.attention import block_bytes
from lemur_ray.serve.compute.cache_layout import layout_for, pool_size
from lemur_ray.serve.compute.forward import forward
from lemur_ray.serve.compute.invariant import ACCELERATOR, TILE
from lemur_ray.serve.compute.programs import decode_buckets, empty_step, prefill_buckets
from lemur_ray.serve.compute.quantized import Quantized
from lemur_ray.serve.compute.weights import LayerWeights, Weights
from lemur_ray.serve.config import EngineOptions


class EngineDoesNotFit(ValueError):
    """Raised when XLA cannot fit a step into the chip; the message is XLA's, up to 400 characters."""


@dataclass(frozen=True)
class Step:
    """Memory in bytes that a step, compiled for a number of rows and new tokens per row, takes on the chip."""

    rows: int
    length: int
    """New tokens of a row: 1 is a decode step"""
    weights: int
    cache: int
    temporaries: int
    """Everything else: logits, code and intermediate results"""
    kernel: bool
    """Whether attention uses the TPU kernel"""
    compile_s: float

    @property
    def total(self) -> int:
        """Weights, cache and temporaries together, in bytes."""
        return self.weights + self.cache + self.temporaries

    def __str__(self) -> str:
        kind = "decode" if self.length == 1 else f"prefill by {self.length}"
        parts = (f"{name} {getattr(self, name) / 2**30:.3f}" for name in ("weights", "cache", "temporaries"))
        kernel = "the kernel" if self.kernel else "no kernel"
        return f"{kind}, {self.rows} rows: {self.total / 2**30:.2f} GiB ({', '.join(parts)}), {kernel}"

    def to_json(self) -> dict[str, Any]:
        """All fields by name, and ``total``."""
        return {**asdict(self), "total": self.total}


def abstract_weights(config: ModelConfig, dtype: Any, *, int8: bool = False) -> Weights:
    """Shapes and dtypes of the weights that ``weights.prepare`` returns for this model."""
    c = config
    heads = (c.num_heads + 2 * c.num_kv_heads) * c.head_dim

    def vector(size: int, there: bool = True) -> Any:
        return jax.ShapeDtypeStruct((size,), jnp.float32) if there else None

    def matrix(inputs: int, outputs: int) -> Any:
        if int8:
            return Quantized(
                jax.ShapeDtypeStruct((outputs, inputs), jnp.int8), jax.ShapeDtypeStruct((outputs,), jnp.float32)
            )
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
    layers = (layer,) * c.num_layers
    embed: Any = jax.ShapeDtypeStruct((c.vocab_size, c.dim), dtype)
    return Weights(embed, layers, vector(c.dim), matrix(c.dim, c.vocab_size))


def compile_step(config: ModelConfig, options: EngineOptions, device: Any, rows: int, length: int) -> Step:
    """Compile a step of ``rows`` x ``length`` tokens for a TPU, attached or described. Raises EngineDoesNotFit."""
    dtype = jnp.dtype(options.dtype)
    layout, (table_width, num_blocks) = layout_for(config, dtype, "tpu"), pool_size(config, options)
    mesh = Mesh(np.array([device]), ("chip",))
    whole = NamedSharding(mesh, PartitionSpec())

    def placed(tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), tree)

    weights = placed(abstract_weights(config, dtype, int8=options.quantization == "int8"))
    cache = placed(jax.eval_shape(lambda: layout.allocate(config, num_blocks, dtype)))
    tokens, place = placed(empty_step(rows, length, table_width))
    began = time.monotonic()
    # The kernel's lowering asks the mesh in context for the kind of chip.
    step = jax.jit(forward, static_argnames=("config", "how", "layout"), donate_argnames=("cache",))
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        lowered = step.lower(weights, cache, tokens, place, config=config, how=ACCELERATOR, layout=layout)
        try:
            compiled: Any = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise EngineDoesNotFit(" ".join(str(error).removeprefix("RESOURCE_EXHAUSTED: ").split())[:400]) from error
    memory = compiled.memory_analysis()
    weight_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(weights))
    cache_bytes = num_blocks * block_bytes(config, dtype)
    used = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    used += memory.temp_size_in_bytes + memory.generated_code_size_in_bytes
    return Step(
        rows, length, weight_bytes, cache_bytes, int(used - weight_bytes - cache_bytes),
        "ragged_paged_attention" in compiled.as_text(), time.monotonic() - began,
    )  # fmt: skip


def plan(config: ModelConfig, options: EngineOptions, device: Any, *, every_shape: bool = False) -> list[Step]:
    """Compile an engine's largest decode and prefill step; every_shape: all steps. Raises EngineDoesNotFit."""
    decode, prefill = decode_buckets(options.max_slots, lone=False), prefill_buckets(options.prefill_tiles)
    shapes = [(rows, 1) for rows in (decode if every_shape else decode[-1:])]
    shapes += [(rows, TILE) for rows in (prefill if every_shape else prefill[-1:])]
    return [compile_step(config, options, device, rows, length) for rows, length in shapes]
