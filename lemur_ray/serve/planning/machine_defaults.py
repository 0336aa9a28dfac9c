"""Sizes of a served model and defaults for the machine that serves it, as formulas of the model's and chips' figures.

Imports neither jax nor a compiler. Sizes are bytes of one device. Knows nothing of engines.

Legend: L layers, D model, H heads, K kv heads, h head width, F feed-forward, V vocabulary, N devices."""

import math
from dataclasses import dataclass, replace

from lemur_ray.config import ModelConfig
from lemur_ray.serve.config import EngineOptions

BLOCK = 128
"""Tokens of a block of the cache (``attention.BLOCK``)."""
TILE = 32
"""Tokens of a prompt in one row of a prefill (``invariant.TILE``)."""
STEP_BYTES = 96 * 2**20
"""Bound on a step's temporaries and code."""
USABLE = {"tpu": 0.90, "gpu": 0.92}
"""Platform -> share of a device's memory that a plan may use; the rest is for the runtime, on GPUs for NCCL, too."""
ESTIMATED_CONTEXT = 1024
"""Tokens of every row in an estimate of speed."""
_ON_CPU = EngineOptions()
_BANDWIDTH, _PEAK = 0.85, 0.6
"""Shares of the memory's bandwidth and of the peak of products that estimates assume; nothing was measured."""
_COLLECTIVE_S = 5e-6
"""Assumed time of a collective without data."""


@dataclass(frozen=True)
class Machine:
    """The devices that share a model; memory, bandwidths and FLOP/s are those of one device."""

    platform: str
    """tpu, gpu or cpu"""
    num_devices: int
    memory_bytes: int
    memory_bytes_per_s: float
    peak_flops: float
    link_bytes_per_s: float
    """Bytes per second that a device sends in one direction to all devices of a ring together."""


def chosen(options: EngineOptions, config: ModelConfig, machine: Machine) -> EngineOptions:
    """The options with devices, dtype, cache, prompt tokens of a step and context for the machine, where none is set.
    Raises ValueError, with sizes, if weights leave no room for a cache (of the set size); never for CPUs."""
    by_machine = "float32" if machine.platform == "cpu" else "bfloat16"
    dtype = by_machine if options.dtype == "auto" else options.dtype
    devices = options.tensor_parallel if options.tensor_parallel >= 0 else machine.num_devices
    options = replace(options, dtype=dtype, tensor_parallel=devices)  # type: ignore[arg-type]
    if machine.platform == "cpu":
        cache_bytes, tiles = options.cache_bytes or _ON_CPU.cache_bytes, options.prefill_tiles or _ON_CPU.prefill_tiles
        return replace(options, cache_bytes=cache_bytes, prefill_tiles=tiles)
    n, itemsize, int8 = machine.num_devices, itemsize_of(options), options.quantization == "int8"
    weights, room = weight_bytes(config, n, itemsize, int8=int8), cache_room(config, machine, itemsize, int8=int8)
    room -= slot_bytes(config, n, options.max_slots)
    block, usable = BLOCK * kv_bytes_per_token(config, n, itemsize), USABLE[machine.platform] * machine.memory_bytes
    if room < 2 * block:
        raise ValueError(
            f"{gib(weights)} of weights a device, {gib(usable)} usable: use {'' if int8 else 'int8 or '}more devices "
            f"than {n}"
        )
    if options.cache_bytes > n * (usable - weights):
        raise ValueError(
            f"--engine.cache-bytes {options.cache_bytes} is more than the {n} devices have beside the weights: at most "
            f"{n * room}"
        )
    cache_bytes = options.cache_bytes or n * room
    tokens = (cache_bytes // (n * block) - 1) * BLOCK
    at_once = prompt_tokens(config, machine, weights, options.max_slots, ESTIMATED_CONTEXT) // TILE
    return replace(
        options,
        cache_bytes=cache_bytes,
        context=options.context or min(config.max_seq_len, max(BLOCK, tokens)),
        prefill_tiles=options.prefill_tiles or at_once,
    )


def itemsize_of(options: EngineOptions) -> int:
    """Bytes of one number of weights and cache: 4 for float32, else 2."""
    return 4 if options.dtype == "float32" else 2


def gib(size: float) -> str:
    """A size in bytes as text in GiB: "1.50 GiB"."""
    return f"{size / 2**30:.2f} GiB"


def kv_bytes_per_token(config: ModelConfig, num_devices: int, itemsize: int = 2) -> int:
    """Bytes of the keys and values of one token on one device: 2 L max(1, K / N) h itemsize. itemsize: bytes of a
    number. num_devices: that share the model."""
    return 2 * config.num_layers * max(1, config.num_kv_heads // num_devices) * config.head_dim * itemsize


def layer_bytes(config: ModelConfig, num_devices: int, itemsize: int = 2, *, int8: bool = False) -> int:
    """Bytes of a layer's weights on one device, without biases and norms of heads. itemsize: bytes of a weight.
    int8: one byte a weight instead, and a float32 for each column. num_devices: that share the model."""
    c, n = config, num_devices
    qkv = (c.num_heads // n + 2 * max(1, c.num_kv_heads // n)) * c.head_dim
    gate_up = 2 * c.ffn_dim // n
    matrices = c.dim * (qkv + gate_up) + (c.num_heads * c.head_dim + c.ffn_dim) // n * c.dim
    scales = 4 * (qkv + gate_up + 2 * c.dim) if int8 else 0
    return matrices * (1 if int8 else itemsize) + scales + 4 * 2 * c.dim


def weight_bytes(config: ModelConfig, num_devices: int, itemsize: int = 2, *, int8: bool = False) -> int:
    """Bytes of all weights on one device: layers, embedding cut along D, head cut along V; see ``layer_bytes``.
    num_devices: that share the model; itemsize: bytes of a weight, or with ``int8`` one."""
    head = -(-config.vocab_size // num_devices) * (config.dim * (1 if int8 else itemsize) + 4 * int8)
    embed = config.vocab_size * config.dim // num_devices * itemsize
    return config.num_layers * layer_bytes(config, num_devices, itemsize, int8=int8) + head + embed + 4 * config.dim


def slot_bytes(config: ModelConfig, num_devices: int, slots: int) -> int:
    """Bytes of the biases and counted tokens of ``slots`` sequences on one device: 8 for each token of the vocabulary.
    num_devices: that share the model."""
    return 8 * slots * -(-config.vocab_size // num_devices)


def cache_room(config: ModelConfig, machine: Machine, itemsize: int = 2, *, int8: bool = False) -> int:
    """Bytes of one device left for the cache: the usable share of its memory, minus weights, a step, and two layers for
    an update of weights. Negative if weights do not fit. itemsize: bytes of a number; int8: one per weight."""
    used = weight_bytes(config, machine.num_devices, itemsize, int8=int8)
    used += STEP_BYTES + 2 * layer_bytes(config, machine.num_devices, itemsize, int8=int8)
    return int(USABLE[machine.platform] * machine.memory_bytes) - used


def step_tokens(config: ModelConfig, machine: Machine, weights: int, rows: int, context: int) -> int:
    """Number of tokens T* of a step at which its products take as long as reading the weights and the cache. weights:
    bytes on a device; rows: decoding sequences, each with ``context`` tokens in the cache."""
    read = weights + rows * context * kv_bytes_per_token(config, machine.num_devices)
    flops_per_s = _PEAK * machine.num_devices * machine.peak_flops
    return int(read / (_BANDWIDTH * machine.memory_bytes_per_s) * flops_per_s / (2 * config.num_params))


def prompt_tokens(config: ModelConfig, machine: Machine, weights: int, rows: int, context: int) -> int:
    """Prompt tokens that a decode step of ``rows`` can compute without taking longer: T* - rows (``step_tokens``),
    rounded down to whole tiles, at least one tile. weights: bytes on a device; context: cached tokens of a sequence."""
    return max(1, (step_tokens(config, machine, weights, rows, context) - rows) // TILE) * TILE


def decode_s(config: ModelConfig, machine: Machine, weights: int, rows: int, context: int) -> float:
    """Estimated seconds of a decode step of ``rows`` sequences with ``context`` tokens each: a roofline plus two
    all-reduces per layer, nothing overlapped. weights: bytes on a device."""
    n = machine.num_devices
    memory = (weights + rows * context * kv_bytes_per_token(config, n)) / (_BANDWIDTH * machine.memory_bytes_per_s)
    products = 2 * config.num_params * rows / (_PEAK * n * machine.peak_flops)
    sent = 2 * (n - 1) / n * rows * config.dim * 2
    links = 2 * config.num_layers * (_COLLECTIVE_S + sent / machine.link_bytes_per_s) if n > 1 else 0.0
    return max(memory, products) + links


def cache_tokens(config: ModelConfig, machine: Machine, itemsize: int = 2, *, int8: bool = False) -> int:
    """Tokens that fit into ``cache_room``, in whole blocks and without the scrap block; 0 if none do. itemsize: bytes
    of a weight and of a number in the cache; int8: one byte for each weight of layers and head instead."""
    block = BLOCK * kv_bytes_per_token(config, machine.num_devices, itemsize)
    return max(0, math.floor(cache_room(config, machine, itemsize, int8=int8) / block) - 1) * BLOCK
