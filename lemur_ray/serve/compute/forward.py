"""The forward pass over cached keys and values: one function for decoding and for prefilling.

A call takes R rows of M new tokens each, every row with its own table of cache blocks. Decoding is M = 1, prefilling is
M = ``TILE``; both can give the same bits (see ``invariant.py``). If several devices share a model, each runs this on
its own part of every matrix and its own heads, and what is whole again after attention and after the feed-forward is
combined as ``devices.Sums`` says. Stacked layers are scanned. A call may be of several groups of rows, each with its
own M, whose tokens lie behind each other, so that every weight is read once. Knows nothing of requests or queues.

Legend: R rows, M new tokens of a row, T tokens of all rows, D model, H heads, K kv heads, G = H / K, h head width,
F feed-forward, V vocabulary; of H, K, F and V a device may have a part."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.model.attention.oracle import capped
from lemur_ray.model.llama import ACTIVATIONS
from lemur_ray.model.rope import Table, apply_rope, rope_tables
from lemur_ray.serve.compute.attention import Cache, Place
from lemur_ray.serve.compute.cache_layout import CacheLayout
from lemur_ray.serve.compute.cut_logits import cut_of, own_logits
from lemur_ray.serve.compute.devices import gather_columns, part_of, total
from lemur_ray.serve.compute.invariant import Arithmetic, Matrix, product, rms_norm
from lemur_ray.serve.compute.sampling import compute_logprobs
from lemur_ray.serve.compute.weights import LayerWeights, Weights

Places = tuple[Place, ...]
"""Of each group of rows with equally many new tokens: one group, or in a mixed step decoding rows, then tiles."""


class Model(NamedTuple):
    """Arguments of a layer's forward pass that are the same for all layers."""

    config: ModelConfig
    """Configuration with the number of heads of one device"""
    how: Arithmetic
    layout: CacheLayout
    lengths: tuple[int, ...]
    """New tokens of a row, for each group of rows"""

    def by_group(self, x_T: jax.Array, places: Places) -> list[jax.Array]:
        """Values of all tokens, divided into those of each group of rows."""
        if len(places) == 1:
            return [x_T]
        sizes = [len(place.starts) * length for place, length in zip(places, self.lengths, strict=True)]
        return jnp.split(x_T, np.cumsum(sizes)[:-1])


def _combined(x_TI: jax.Array, w: Matrix, how: Arithmetic, real: jax.Array | None) -> jax.Array:
    """x @ w, where every device has some columns of x: (T, O) on each of them; real: as in ``product``."""
    if how.axis is None or how.sums == "gather":
        return gather_columns(product(gather_columns(x_TI, how.axis), w, how.tile, real), how.axis)
    return total(product(x_TI, w, how.tile, real).astype(x_TI.dtype), how.axis, how.sums)


def _layer(
    w: LayerWeights, cache: Any, x_TD: jax.Array, rope: Table, places: Places, model: Model, window: int
) -> tuple[jax.Array, Any]:
    (c, how, layout, lengths), tokens, dtype = model, x_TD.shape[0], x_TD.dtype
    kv_heads, groups = c.num_kv_heads, c.num_heads // c.num_kv_heads
    # Padding behind the rows is not multiplied; in a mixed step there is some between them.
    real = places[0].num_rows * lengths[0] if len(places) == 1 else None
    times = partial(product, tile=how.tile, real=real)
    qkv = times(rms_norm(x_TD, w.attn_norm, c.norm_eps), w.wqkv)
    qkv = (qkv if w.qkv_bias is None else qkv + w.qkv_bias).reshape(tokens, -1, c.head_dim)
    q, k, v = jnp.split(qkv, (kv_heads * groups, kv_heads * (groups + 1)), axis=1)
    if w.q_norm is not None and w.k_norm is not None:
        q, k = rms_norm(q, w.q_norm, c.norm_eps), rms_norm(k, w.k_norm, c.norm_eps)
    k = apply_rope(k, rope)
    for new_k, new_v, place in zip(model.by_group(k, places), model.by_group(v, places), places, strict=True):
        cache = layout.write(cache, new_k, new_v, place)
    q = apply_rope(q, rope) if c.query_gain == 1.0 else apply_rope(q, rope) * c.query_gain
    attended = []
    for q_Thd, place, length in zip(model.by_group(q, places), places, lengths, strict=True):
        q_RMKGh = q_Thd.reshape(-1, length, kv_heads, groups, c.head_dim)
        mixed = layout.attend(cache, q_RMKGh.transpose(0, 2, 3, 1, 4), place, how, window, c.attention_cap)
        attended.append(mixed.transpose(0, 3, 1, 2, 4).reshape(len(q_Thd), -1).astype(dtype))
    mixed_TD = _combined(_joined(attended), w.wo, how, real)
    if w.post_attn_norm is not None:
        mixed_TD = rms_norm(mixed_TD, w.post_attn_norm, c.norm_eps)
    x_TD = (x_TD + mixed_TD).astype(dtype)
    gate, up = jnp.split(times(rms_norm(x_TD, w.mlp_norm, c.norm_eps), w.gate_up), 2, axis=-1)
    out_TD = _combined((ACTIVATIONS[c.activation](gate) * up).astype(dtype), w.down, how, real)
    if w.post_mlp_norm is not None:
        out_TD = rms_norm(out_TD, w.post_mlp_norm, c.norm_eps)
    return (x_TD + out_TD).astype(dtype), cache


def _joined(groups: list[jax.Array]) -> jax.Array:
    return groups[0] if len(groups) == 1 else jnp.concatenate(groups)


def _scan(
    layers: LayerWeights, pool: Any, x_TD: jax.Array, rope: Table, places: Places, model: Model, window: int
) -> tuple[jax.Array, Any]:
    """All stacked layers as one loop over a single pool, in which a layer's blocks follow those of the one before."""
    num_layers = len(layers.attn_norm)
    blocks = len(jax.tree.leaves(pool)[0]) // num_layers

    def layer(carry: tuple[jax.Array, Any], inputs: tuple[LayerWeights, jax.Array]) -> tuple[Any, None]:
        (x, pool), (w, i) = carry, inputs
        shifted = tuple(place._replace(tables=place.tables + i * blocks) for place in places)
        return _layer(w, pool, x, rope, shifted, model, window), None

    return jax.lax.scan(layer, (x_TD, pool), (layers, jnp.arange(num_layers)))[0]


def forward(
    weights: Weights,
    cache: Cache,
    tokens_RM: jax.Array,
    place: Place,
    *,
    config: ModelConfig,
    how: Arithmetic,
    layout: CacheLayout,
) -> tuple[jax.Array, jax.Array, Cache]:
    """Append new tokens to their sequences and predict what follows.
    tokens (R, M) int32, of which ``place.counts`` are no padding. All positions below ``place.starts`` are in the row's
    blocks already or in another row of this call. how: arithmetic of products and attention. layout: the one that
    allocated the cache. Returns the logits (R, V) float32 after the last token of each row (of devices that add, each
    has its own: ``cut_logits``), the last layer's hidden states of every token (T, D), and the cache."""
    return forward_groups(weights, cache, [tokens_RM], (place,), config, how, layout)


def forward_groups(
    weights: Weights,
    cache: Cache,
    tokens: list[jax.Array],
    places: Places,
    config: ModelConfig,
    how: Arithmetic,
    layout: CacheLayout,
) -> tuple[jax.Array, jax.Array, Cache]:
    """``forward`` for groups of rows, as decoding rows before tiles of prompts. tokens, places: of each group; results
    are in the order of the groups."""
    lengths = tuple(ids.shape[1] for ids in tokens)
    starts = [(place.starts[:, None] + jnp.arange(m)).reshape(-1) for place, m in zip(places, lengths, strict=True)]
    ropes = rope_tables(_joined(starts), config)
    x = how.widened(gather_columns(weights.embed[_joined([ids.reshape(-1) for ids in tokens])], how.axis))
    x = x * jnp.asarray(config.dim**0.5, x.dtype) if config.embed_scale else x
    model = Model(part_of(config, jax.lax.axis_size(how.axis) if how.axis else 1), how, layout, lengths)
    pools = []
    if isinstance(weights.layers, LayerWeights):
        x, pool = _scan(weights.layers, cache[0], x, ropes[config.window > 0], places, model, config.window)
        pools.append(pool)
    else:
        for i, (w, pool) in enumerate(zip(weights.layers, cache, strict=True)):
            window = config.window_of(i)
            x, pool = _layer(w, pool, x, ropes[window > 0], places, model, window)
            pools.append(pool)
    x = x.astype(weights.embed.dtype)
    last = []
    for x_TD, place, length in zip(model.by_group(x, places), places, lengths, strict=True):
        rows = len(place.starts)
        last.append(x_TD.reshape(rows, length, -1)[jnp.arange(rows), jnp.maximum(place.counts - 1, 0)])
    real = places[0].num_rows if len(places) == 1 else None
    return _logits(weights, _joined(last), config, how, real), x, tuple(pools)


def _logits(
    weights: Weights, x_TD: jax.Array, config: ModelConfig, how: Arithmetic, real: jax.Array | None = None
) -> jax.Array:
    x_TD = rms_norm(how.widened(x_TD), weights.final_norm, config.norm_eps)
    logits = product(x_TD, weights.head, how.tile, real).astype(jnp.float32)
    if (cut := cut_of(config, how)) is not None:
        return own_logits(capped(logits, config.logit_cap), cut)
    return capped(gather_columns(logits, how.axis)[:, : config.vocab_size], config.logit_cap)


def prompt_logprobs(
    weights: Weights, x_TD: jax.Array, row: jax.Array, next_ids_M: jax.Array, *, config: ModelConfig, how: Arithmetic
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Log-probabilities of ``next_ids_M``, the tokens that follow those of row ``row`` of a prefill, as the three
    arrays of ``TokenLogprobs``. x_TD: hidden states that ``forward`` returned for all rows; row: scalar index of a row
    of M tokens. how: arithmetic of products."""
    length = len(next_ids_M)
    x_MD = jax.lax.dynamic_slice_in_dim(x_TD, row * length, length)
    logits = _logits(weights, x_MD, config, how)
    return compute_logprobs(logits, next_ids_M, cut=cut_of(config, how), by_lanes=not how.one_by_one)


def empty_step(rows: int, length: int, table_width: int) -> tuple[np.ndarray, Place]:
    """Tokens (rows, length) and ``Place`` of an empty step, in zeroed arrays to be filled in; its rows point to the
    scrap block. table_width: blocks in a table."""
    tables, zeros = np.zeros((rows, table_width), np.int32), np.zeros(rows, np.int32)
    return np.zeros((rows, length), np.int32), Place(tables, zeros, zeros.copy(), np.zeros((), np.int32))
