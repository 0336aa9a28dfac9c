"""The step of accelerators: the forward pass, and a token drawn for each row in the same program.

It takes all that changes from step to step as one array from the host, and may start from the tokens of the step
before, which then need not have arrived there. A mixed step has decoding rows and tiles of prompts.

Legend: R rows, M new tokens of a row, V vocabulary, or a device's part of it."""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.attention import Cache, Place
from lemur_ray.serve.compute.cache_layout import CacheLayout
from lemur_ray.serve.compute.cut_logits import Cut, cut_of, logits_spec
from lemur_ray.serve.compute.devices import WHOLE
from lemur_ray.serve.compute.drawing.slot_edits import RowEdits, Slots, edit_rows, empty_row_edits
from lemur_ray.serve.compute.forward import empty_step, forward_groups
from lemur_ray.serve.compute.invariant import Arithmetic
from lemur_ray.serve.compute.sampling import ROWS, Draw, compute_logprobs, empty_draw, greedy, sample
from lemur_ray.serve.compute.weights import Weights


class StepShape(NamedTuple):
    """Numbers of tokens and rows of a step that draws."""

    length: int
    """New tokens of a row"""
    singles: int = 0
    """Rows at the beginning that have one token each, in the first column, in a mixed step"""
    tiles: int = 0
    """Rows of the largest prefill step, whose hidden states have room in the result; 0: of a decode step"""


class RowOptions(NamedTuple):
    """Sampling options of the rows of a step, and where their tokens come from."""

    draw: Draw
    edits: RowEdits
    source: np.ndarray
    """(R,) int32: row of the previous step whose drawn id is this row's only new token; -1: none"""
    forbidden: np.ndarray | None = None
    """As in ``slot_edits.edit_rows``, for all rows of the largest step; None: every token may be drawn"""


def empty_options(rows: int) -> RowOptions:
    """Options of greedy rows whose new tokens are known, in writable arrays on the host."""
    return RowOptions(empty_draw(rows), empty_row_edits(rows), np.full(rows, -1, np.int32))


class StepInputs(NamedTuple):
    """Arguments of a step that draws, beside weights and cache."""

    packed: Any
    """(R, columns) int32, of ``pack``"""
    forbidden: Any
    """As in ``slot_edits.edit_rows``"""
    last_ids: Any
    """Ids that the previous step drew"""


class StepResults(NamedTuple):
    """Results of a step that draws, beside cache and slots."""

    logits: Any
    """(R, V) float32, unedited"""
    hidden: Any
    """Hidden states of all tokens; of a step with tiles only theirs, padded to the tiles of the largest step"""
    ids: Any
    """The drawn ids, in an array of the size of ``last_ids``, zeros behind the last row"""
    logprobs: Any
    """The arrays of ``TokenLogprobs`` of the drawn ids, zeros if no row wants them"""


def empty_inputs(rows: int, length: int, table_width: int) -> np.ndarray:
    """Array of an empty step that draws, as of ``pack``. rows, length: of the step; table_width: blocks in a table."""
    return pack(*empty_step(rows, length, table_width), empty_options(rows))


def pack(tokens_RM: np.ndarray, place: Place, options: RowOptions) -> np.ndarray:
    """Everything but ``options.forbidden`` as one array (R, columns) of int32, because each transfer from the host has
    a fixed cost. place: in a mixed step with ``num_rows`` (R,), the number of the group of each row."""
    rows = len(tokens_RM)
    numbers = (options.source, place.starts, place.counts, np.full(rows, place.num_rows, np.int32))
    settings = [np.asarray(field).reshape(rows, -1).view(np.int32) for field in (*options.draw, *options.edits)]
    return np.concatenate([*[x[:, None] for x in numbers], *settings, tokens_RM, place.tables], axis=1)


def unpack(inputs: jax.Array, length: int) -> tuple[jax.Array, Place, Draw, RowEdits, jax.Array]:
    """Inverse of ``pack``, inside a program: tokens, place (with ``num_rows`` of each row), draw, edits, source.
    length: tokens per row."""
    at, settings = 4, []
    for like in (*empty_draw(1), *empty_row_edits(1)):
        column = jax.lax.bitcast_convert_type(inputs[:, at : at + like.size], like.dtype)
        settings.append(column.reshape(len(inputs), *like.shape[1:]))
        at += like.size
    draw, edits = Draw(*settings[: len(Draw._fields)]), RowEdits(*settings[len(Draw._fields) :])
    place = Place(inputs[:, at + length :], inputs[:, 1], inputs[:, 2], inputs[:, 3])
    return inputs[:, at : at + length], place, draw, edits, inputs[:, 0]


def step_and_draw(
    weights: Weights,
    cache: Cache,
    slots: Slots,
    inputs: StepInputs,
    *,
    shape: StepShape,
    config: ModelConfig,
    how: Arithmetic,
    layout: CacheLayout,
) -> tuple[StepResults, Cache, Slots]:
    """Run ``forward`` on packed inputs and draw a token for each row from its edited logits.
    how: arithmetic of products and attention; layout: of the cache."""
    length, singles, tiles = shape
    tokens_RM, place, draw, edits, source = unpack(inputs.packed, length)
    last = jnp.take_along_axis(tokens_RM, jnp.maximum(place.counts - 1, 0)[:, None], axis=1)
    last = jnp.where(source[:, None] >= 0, inputs.last_ids[jnp.maximum(source, 0)][:, None], last)
    bounds = (0, singles, len(source)) if singles else (0, len(source))
    tokens, places = [], []
    for begin, end in pairwise(bounds):
        tokens.append(last[begin:end] if end == singles or length == 1 else tokens_RM[begin:end])
        tables, starts, counts, num_rows = (field[begin:end] for field in place)
        places.append(Place(tables, starts, counts, num_rows[0]))
    logits, hidden, cache = forward_groups(weights, cache, tokens, tuple(places), config, how, layout)
    hidden = jnp.pad(hidden[singles:], ((0, max(0, tiles * length - len(hidden))), (0, 0)))
    cut, is_drawn = cut_of(config, how), jnp.any(draw.temperature > 0)
    edited, counts = edit_rows(logits, slots, edits, last[:, 0], inputs.forbidden, cut)
    ids = jax.lax.cond(is_drawn, lambda: sample(edited, draw, cut=cut, halve=True), lambda: greedy(edited, cut=cut))
    logprobs = _logprobs(logits, ids, jnp.any(edits.logprobs > 0), cut)
    ids = jnp.zeros_like(inputs.last_ids).at[: len(ids)].set(ids)
    return StepResults(logits, hidden, ids, logprobs), cache, slots._replace(counts=counts)


def _logprobs(logits_RV: jax.Array, ids_R: jax.Array, is_wanted: jax.Array, cut: Cut | None) -> tuple[Any, ...]:
    """The arrays of ``TokenLogprobs`` of one token of each row, zeros unless ``is_wanted``. Few rows are computed at a
    time, because the sums of all rows take several times the memory of the logits."""
    rows, few = len(ids_R), min(ROWS, len(ids_R))

    def scores(begin: Any) -> tuple[jax.Array, ...]:
        own = [jax.lax.dynamic_slice_in_dim(x, begin, few) for x in (logits_RV, ids_R)]
        return compute_logprobs(*own, cut=cut, by_lanes=True)

    def put(i: int, results: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        begin = jnp.minimum(i * few, rows - few)
        pairs = zip(results, scores(begin), strict=True)
        return tuple(jax.lax.dynamic_update_slice_in_dim(old, new, begin, 0) for old, new in pairs)

    nothing = tuple(jnp.zeros((rows, *x.shape[1:]), x.dtype) for x in jax.eval_shape(scores, 0))
    return jax.lax.fori_loop(0, jnp.where(is_wanted, -(-rows // few), 0), put, nothing)


def step_specs(weights: Weights, cache: P, cut: Cut | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """PartitionSpecs of the arguments and results of ``step_and_draw``. weights, cache: those of these arguments."""
    of_logits = logits_spec(cut)
    return (weights, cache, of_logits, WHOLE), (StepResults(of_logits, WHOLE, WHOLE, WHOLE), cache, of_logits)
