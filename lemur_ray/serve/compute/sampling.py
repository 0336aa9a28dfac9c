"""Sampling programs: from logits to token ids, greedy or drawn with temperature, top-k, top-p and min-p.

A draw depends on the row's own logits, seed and position alone: the noise key is
fold_in(fold_in(key(seed), sample_index), position), and on CPUs the program always has ``ROWS`` rows. Accelerators draw
within a step, from logits that may be cut along the vocabulary (``cut_logits.py``); their edits are those of
``drawing/slot_edits.py``. Knows nothing of slots, batches or text.

Legend: R rows, V vocabulary, or a device's part of it."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lemur_ray.serve.compute.cut_logits import (
    Cut,
    argmax,
    highest,
    logits_at,
    lowest_within,
    own_columns,
    summed,
    top,
    weighed,
)
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.sampling_options import NUMBERS
from lemur_ray.serve.engine.token_logprobs import ALTERNATIVES

ROWS = 8
"""Rows of one call of ``sample`` on a CPU: a single shape at any load."""
PREFILTER = 256
"""Likeliest tokens examined before a full sort, which costs eighty times as much for 32,000 logits."""
EDITS = 512
"""Most logits per row that ``edit`` changes; if any row has more, ``shift`` changes all rows."""

Array = np.ndarray | jax.Array


class Edits(NamedTuple):
    """Changes to the logits of each row: values added to some tokens, and which tokens are allowed."""

    ids: Array
    """(R, EDITS) int32; unused entries add 0 to token 0"""
    values: Array
    """(R, EDITS) float32, added"""
    allowed: Array
    """(R, words of 32 bits) uint32; token t is never drawn if bit t % 32, from the lowest, of word t // 32 is 0"""


class Draw(NamedTuple):
    """Sampling options of each row (see ``SamplingOptions``), and the numbers that its random noise depends on."""

    temperature: Array
    """(R,) float32; 0 is greedy"""
    top_k: Array
    """(R,) int32; 0: all; tokens with the same logit as the last of them are included"""
    top_p: Array
    """(R,) float32 in (0, 1]; share of the probability mass of the top_k tokens"""
    min_p: Array
    """(R,) float32 in [0, 1]; share of the highest probability that a token needs"""
    seed: Array
    """(R, 2) uint32, high and low word"""
    sample_index: Array
    """(R,) int32; which of several replies to one request"""
    position: Array
    """(R,) int32; index of the new token in its sequence"""


_DRAWN = {name: NUMBERS[name] for name in Draw._fields if name in NUMBERS}
"""Options that are fields of ``Draw``; the others edit logits."""


@cache
def _greedy_draw(rows: int) -> Draw:
    dtypes = {int: np.int32, float: np.float32}
    options = {name: np.full(rows, option.default, dtypes[type(option.default)]) for name, option in _DRAWN.items()}
    zeros = np.zeros(rows, np.int32)
    return Draw(**options, seed=np.zeros((rows, 2), np.uint32), sample_index=zeros, position=zeros)


def empty_draw(rows: int) -> Draw:
    """Draw of ``rows`` greedy rows in writable arrays on the host."""
    return Draw(*(column.copy() for column in _greedy_draw(rows)))


def draw_row(request: Generation) -> tuple[Any, ...]:
    """A request's values of the fields of ``Draw`` but ``position``, which changes per token; () at temperature 0."""
    sampling = request.sampling
    if sampling.temperature <= 0:
        return ()
    largest = float(np.finfo(np.float32).max)  # an infinite temperature makes -inf NaN
    return (
        *(min(getattr(sampling, name), largest) for name in _DRAWN),
        seed_words(sampling.seed),
        request.sample_index,
    )


def write_row(draw: Draw, row: int, sequence: LiveSequence, position: int) -> None:
    """Write a sequence's sampling options and ``position``, the index of its next token, into row ``row`` of ``draw``.
    A sequence at temperature 0 leaves the row as it is."""
    if sequence.draw_row is None:
        sequence.draw_row = draw_row(sequence.request)
    if sequence.draw_row:
        for column, value in zip(draw, sequence.draw_row, strict=False):
            column[row] = value
        draw.position[row] = position


def allow_all(rows: int, vocab_size: int) -> np.ndarray:
    """Writable ``Edits.allowed`` of ``rows`` rows in which every token may be drawn."""
    return np.full((rows, -(-vocab_size // 32)), 0xFFFFFFFF, np.uint32)


def empty_edits(allowed: np.ndarray) -> Edits:
    """Edits that change no logit: new zeroed NumPy arrays to fill in, and ``allowed`` itself, not a copy. allowed: (R,
    words) uint32, as in ``Edits``."""
    ids, values = np.zeros((len(allowed), EDITS), np.int32), np.zeros((len(allowed), EDITS), np.float32)
    return Edits(ids, values, allowed)


@jax.jit
def pick(logits_NV: jax.Array, rows_R: jax.Array) -> jax.Array:
    """The rows ``rows_R`` of a step's logits: (R, V)."""
    return logits_NV[rows_R]


@jax.jit
def edit(logits_RV: jax.Array, edits: Edits) -> jax.Array:
    """Logits with ``values`` of the edits added, and -inf for tokens that are not allowed."""
    rows, vocab = logits_RV.shape
    x = logits_RV.at[jnp.arange(rows)[:, None], edits.ids].add(edits.values)
    bits = (jnp.asarray(edits.allowed)[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return jnp.where(bits.reshape(rows, -1)[:, :vocab] == 1, x, -jnp.inf)


@jax.jit
def shift(logits_RV: jax.Array, changes_RV: jax.Array) -> jax.Array:
    """Logits plus ``changes`` (R, V) float32; a change of 0 leaves a logit's bits as they are."""
    return jnp.where(changes_RV == 0, logits_RV, logits_RV + changes_RV)


@partial(jax.jit, static_argnames="cut")
def greedy(logits_RV: jax.Array, cut: Cut | None = None) -> jax.Array:
    """The most likely token of each row, the lowest id on ties: (R,) int32."""
    return argmax(logits_RV, cut)


def _cutoff(sorted_RP: jax.Array, log_total_R1: jax.Array, draw: Draw, vocab: int) -> tuple[jax.Array, jax.Array]:
    """Smallest logit that may be drawn (R, 1), from the P highest ones in order; whether those P decide it (R,)."""
    width = sorted_RP.shape[-1]
    k = jnp.where((draw.top_k <= 0) | (draw.top_k > vocab), vocab, draw.top_k)[:, None]
    inside = jnp.arange(width) < k
    mass = jnp.where(inside, jnp.exp(sorted_RP - log_total_R1), 0.0)
    before = jnp.cumsum(mass, axis=-1) - mass
    limited = k <= width
    wanted = draw.top_p[:, None] * jnp.where(limited & (k < vocab), mass.sum(-1, keepdims=True), 1.0)
    kept = inside & ((before < wanted) | (draw.top_p[:, None] >= 1.0))
    kept = kept.at[:, 0].set(True)
    last = jnp.sum(kept, axis=-1, keepdims=True) - 1
    reached = ((k >= vocab) & (before[:, -1:] >= wanted)) | limited
    return jnp.take_along_axis(sorted_RP, last, axis=-1), reached[:, 0]


@partial(jax.jit, static_argnames=("cut", "by_lanes"))
def compute_logprobs(
    logits_RV: jax.Array, ids_R: jax.Array, cut: Cut | None = None, *, by_lanes: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Fields of ``TokenLogprobs`` for one token of each row, from float32 logits: its log-probability (R,), then ids
    and log-probabilities of the likeliest tokens (R, ALTERNATIVES). Sums are trees of additions, so a token has the
    same bits whether it was generated or part of a prompt. by_lanes: as in ``cut_logits.summed``, for accelerators."""
    most = highest(logits_RV, cut)
    log_total = most + jnp.log(summed(jnp.exp(logits_RV - most), cut, by_lanes=by_lanes))
    likeliest, ids = top(logits_RV, min(ALTERNATIVES, cut.vocab_size if cut else logits_RV.shape[-1]), cut)
    return (logits_at(logits_RV, ids_R, cut, by_lanes=by_lanes) - log_total)[:, 0], ids, likeliest - log_total


def _cutoff_by_halving(
    scaled_RV: jax.Array, log_total_R1: jax.Array, draw: Draw, vocab: int, cut: Cut | None
) -> jax.Array:
    """``_cutoff`` from all logits of all devices, for rows that their highest ones do not decide."""
    k = jnp.where((draw.top_k <= 0) | (draw.top_k > vocab), vocab, draw.top_k)[:, None]
    mass_RV, wanted = jnp.exp(scaled_RV - log_total_R1), jnp.asarray(draw.top_p)[:, None]
    last = lowest_within(scaled_RV, jnp.ones_like(mass_RV), k.astype(jnp.float32), cut)
    above = scaled_RV > last
    ties = k - weighed(above.astype(jnp.float32), cut)
    of_k = weighed(jnp.where(above, mass_RV, 0.0), cut) + ties * jnp.exp(last - log_total_R1)
    least = lowest_within(scaled_RV, mass_RV, wanted * jnp.where(k < vocab, of_k, 1.0), cut)
    return jnp.maximum(last, jnp.where(wanted >= 1.0, -jnp.inf, least))


@partial(jax.jit, static_argnames=("cut", "halve"))
def sample(logits_RV: jax.Array, draw: Draw, cut: Cut | None = None, *, halve: bool = False) -> jax.Array:
    """Draw one token for each row, (R,) int32, from float32 logits; rows at temperature 0 get the likeliest token.
    halve: find cutoffs by bisection instead of a sort of all logits, for which accelerators lack the memory. With
    ``cut`` this is always so."""
    vocab = cut.vocab_size if cut else logits_RV.shape[-1]
    draw = Draw(*map(jnp.asarray, draw))
    cold = draw.temperature <= 0
    scaled = logits_RV / jnp.where(cold, 1.0, draw.temperature)[:, None]
    most = highest(scaled, cut)
    if cut is None:
        log_total = jax.nn.logsumexp(scaled, axis=-1, keepdims=True)
    else:
        log_total = most + jnp.log(summed(jnp.exp(scaled - most), cut))
    quick, enough = _cutoff(top(scaled, min(PREFILTER, vocab), cut)[0], log_total, draw, vocab)
    open_end = (draw.top_p >= 1.0) & ((draw.top_k <= 0) | (draw.top_k >= vocab))

    def sorted_cutoff() -> jax.Array:
        if halve or cut is not None:
            return _cutoff_by_halving(scaled, log_total, draw, vocab, cut)
        return _cutoff(lax.top_k(scaled, vocab)[0], log_total, draw, vocab)[0]

    # A row uses the sorted value only if it needs it itself, so neighbours do not change its result.
    full = lax.cond(jnp.any(~enough & ~open_end), sorted_cutoff, lambda: quick)
    cutoff = jnp.where(open_end[:, None], -jnp.inf, jnp.where(enough[:, None], quick, full))
    cutoff = jnp.maximum(cutoff, most + jnp.log(draw.min_p)[:, None])  # log 0 is -inf: no bound

    def noise(seed: jax.Array, sample_index: jax.Array, position: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.wrap_key_data(seed), sample_index)
        return jax.random.gumbel(jax.random.fold_in(key, position), (vocab,))

    all_noise = jax.vmap(noise)(*map(jnp.asarray, (draw.seed, draw.sample_index, draw.position)))
    noisy = jnp.where(scaled >= cutoff, scaled, -jnp.inf) + own_columns(all_noise, scaled, cut)
    return jnp.where(cold, argmax(logits_RV, cut), argmax(noisy, cut))


def seed_words(seed: int) -> tuple[int, int]:
    """A seed as (high, low) words of 32 bits; only its lowest 64 bits count, so negative and longer seeds wrap."""
    seed &= (1 << 64) - 1
    return seed >> 32, seed & 0xFFFFFFFF
