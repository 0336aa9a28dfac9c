"""Operations on logits whose vocabulary is divided over several devices: maximum, sum, top candidates, the logit of a
token.
Each device reduces its own part and only these results are exchanged, never the logits. Sums over devices are added in
a fixed order, so they do not depend on the load. All functions run inside a program; with ``cut`` None, one device has
all logits. Knows nothing of sampling options.
Legend: R rows, V tokens of a device, P candidates."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import PartitionSpec as P

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.devices import AXIS, WHOLE, gather_columns
from lemur_ray.serve.compute.invariant import Arithmetic, row_sum

_LOWEST = 0x007FFFFF
"""``_ordered`` of -inf."""


class Cut(NamedTuple):
    """Division of logits over devices: equal ranges of token ids in device order, padded at the end with -inf."""

    axis: str
    vocab_size: int
    """Without padding"""


def cut_of(config: ModelConfig, how: Arithmetic) -> Cut | None:
    """The division of a model's logits over devices; None if every device holds all of them, as on one device or if
    ``how.sums`` is "gather"."""
    return Cut(how.axis, config.vocab_size) if how.axis and how.sums != "gather" else None


def logits_spec(cut: Cut | None) -> P:
    """PartitionSpec of logits (R, V): whole on every device (None), or cut along V."""
    return WHOLE if cut is None else P(None, AXIS)


def padded_vocab(vocab_size: int, parts: int) -> int:
    """``vocab_size`` rounded up to a multiple of ``parts`` devices."""
    return -(-vocab_size // parts) * parts


def own_logits(x_RV: jax.Array, cut: Cut | None) -> jax.Array:
    """A device's logits (rows, columns), with -inf in columns that only pad the vocabulary. cut None: no padding."""
    if cut is None:
        return x_RV
    return jnp.where(_first(x_RV, cut) + jnp.arange(x_RV.shape[1]) < cut.vocab_size, x_RV, -jnp.inf)


def own_columns(whole_RV: jax.Array, like_RV: jax.Array, cut: Cut | None) -> jax.Array:
    """This device's columns of ``whole_RV``, of the whole vocabulary; as many as ``like_RV`` has, padded with 0."""
    width = like_RV.shape[1]
    if cut is None:
        return whole_RV[:, :width]
    padded = jnp.pad(whole_RV, ((0, 0), (0, max(0, width * lax.axis_size(cut.axis) - whole_RV.shape[1]))))
    return lax.dynamic_slice_in_dim(padded, _first(like_RV, cut), width, 1)


def _first(x_RV: jax.Array, cut: Cut) -> jax.Array:
    """The first token id of a device."""
    return lax.axis_index(cut.axis) * x_RV.shape[1]


def own_ids(ids: jax.Array, x_RV: jax.Array, cut: Cut | None) -> tuple[jax.Array, jax.Array]:
    """(column of each token id in this device's ``x_RV``, whether this device has that id). Of an id that it does not
    have, the column is a valid but arbitrary one."""
    if cut is None:
        return ids, jnp.ones(ids.shape, bool)
    at, width = ids - _first(x_RV, cut), x_RV.shape[1]
    return jnp.clip(at, 0, width - 1), (at >= 0) & (at < width)


def argmax(x_RV: jax.Array, cut: Cut | None) -> jax.Array:
    """(R,) int32: the id of the highest logit of each row, the lowest id on ties. x: a device's logits."""
    best = jnp.argmax(x_RV, axis=-1).astype(jnp.int32)
    if cut is None:
        return best
    values = gather_columns(jnp.take_along_axis(x_RV, best[:, None], axis=-1), cut.axis)
    ids = gather_columns((best + _first(x_RV, cut))[:, None].astype(jnp.int32), cut.axis)
    return jnp.take_along_axis(ids, jnp.argmax(values, axis=-1)[:, None], axis=-1)[:, 0]


def highest(x_RV: jax.Array, cut: Cut | None) -> jax.Array:
    """(R, 1): the highest logit of each row. x: a device's logits."""
    own = x_RV.max(axis=-1, keepdims=True)
    return own if cut is None else gather_columns(own, cut.axis).max(axis=-1, keepdims=True)


def summed(x_RV: jax.Array, cut: Cut | None, *, by_lanes: bool = False) -> jax.Array:
    """(R, 1): the sum of each row over the whole vocabulary, as a tree of additions on each device and then over the
    devices. x: a device's values. by_lanes: another tree, whose halves are of whole lanes of a TPU, where those of few
    rows would take sixteen times the memory."""
    own = row_sum(_sum_of_lanes(x_RV) if by_lanes else x_RV)
    return own if cut is None else row_sum(gather_columns(own, cut.axis))


def _sum_of_lanes(x_RV: jax.Array) -> jax.Array:
    """(R, 128): sums of every 128th value of each row, as a tree."""
    x = jnp.pad(x_RV, ((0, 0), (0, -x_RV.shape[1] % 128))).reshape(len(x_RV), -1, 128)
    # Else the rows are chosen as the lanes, of which there are 128.
    x = with_layout_constraint(x, Layout((0, 1, 2)))
    while x.shape[1] > 1:
        x = jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0)))
        half = x.shape[1] // 2
        x = x[:, :half] + x[:, half:]
    return x[:, 0]


def weighed(x_RV: jax.Array, cut: Cut | None) -> jax.Array:
    """As ``summed``, but on one device in XLA's own order: for the halves of a tree the TPU compiler would copy x into
    a layout in which 16 rows take the memory of 128."""
    return x_RV.sum(axis=-1, keepdims=True) if cut is None else summed(x_RV, cut)


def top(x_RV: jax.Array, count: int, cut: Cut | None) -> tuple[jax.Array, jax.Array]:
    """(highest logits of each row in descending order, their token ids in the whole vocabulary), both (R, count); the
    lower id first on ties. x: a device's logits (``own_logits``), divided by ``cut``."""
    values, ids = lax.top_k(x_RV, min(count, x_RV.shape[-1]))
    if cut is None:
        return values, ids.astype(jnp.int32)
    all_values = gather_columns(values, cut.axis)
    all_ids = gather_columns((ids + _first(x_RV, cut)).astype(jnp.int32), cut.axis)
    values, places = lax.top_k(all_values, count)
    return values, jnp.take_along_axis(all_ids, places, axis=-1)


def logits_at(x_RV: jax.Array, ids_R: jax.Array, cut: Cut | None, *, by_lanes: bool = False) -> jax.Array:
    """(R, 1): the logit of one token of each row. ids_R: id of that token. by_lanes: found by comparison, because to
    gather it a TPU would turn all logits into a layout in which 8 rows take the memory of 128."""
    columns, has = own_ids(ids_R[:, None], x_RV, cut)
    if by_lanes:
        own = jnp.where(jnp.arange(x_RV.shape[1]) == columns, x_RV, -jnp.inf).max(axis=-1, keepdims=True)
    else:
        own = jnp.take_along_axis(x_RV, columns, axis=-1)
    return own if cut is None else gather_columns(jnp.where(has, own, -jnp.inf), cut.axis).max(axis=-1, keepdims=True)


def lowest_within(x_RV: jax.Array, weight_RV: jax.Array, limit_R1: jax.Array, cut: Cut | None) -> jax.Array:
    """(R, 1): the lowest logit above which the weights sum to less than ``limit_R1``, found by bisection, without a
    sort. The cutoff of top-k (weights 1) and top-p (weights: probabilities). weight_RV: weight of each token."""
    order_RV = _ordered(x_RV)

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = low + (high - low) // 2
        enough = weighed(jnp.where(order_RV > middle, weight_RV, 0.0), cut) < limit_R1
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    above = _ordered(highest(x_RV, cut))
    bits = lax.fori_loop(0, 32, halve, (jnp.full_like(above, _LOWEST), above))[1]
    bits = jnp.where(bits >> 31 == 1, bits ^ jnp.uint32(1 << 31), ~bits)
    return lax.bitcast_convert_type(bits, jnp.float32)


def _ordered(x: jax.Array) -> jax.Array:
    """uint32 in the order of float32 numbers."""
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))
