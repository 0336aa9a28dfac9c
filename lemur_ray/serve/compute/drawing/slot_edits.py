"""Changes of logits inside a step that draws: biases, penalties and forbidden tokens.

A sequence with biases or penalties has a slot on the devices, which keeps its biases and counts its tokens there, so
that a step can start before the tokens of the step before have arrived. Logits may be cut along the vocabulary
(``cut_logits.py``). Knows nothing of requests.

Legend: R rows, S slots, V vocabulary, or a device's part of it, N changes."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.serve.compute.cut_logits import Cut, own_columns, own_ids

CHANGES = 512
"""Most entries of a slot that one call of ``write_slot`` changes"""

Array = np.ndarray | jax.Array


class Slots(NamedTuple):
    """Biases, and counts of generated tokens, of sequences with biases or penalties; on the devices."""

    bias: Array
    """(S, V) float32, added to the logits"""
    counts: Array
    """(S, V) int32: how often the reply contains each token"""


class RowEdits(NamedTuple):
    """For each row of a step, how its logits are changed before a token is drawn."""

    slot: Array
    """(R,) int32; -1: neither biases nor penalties"""
    counted: Array
    """(R,) int32; 1: the row's last new token belongs to the reply, and is counted before a token is drawn"""
    presence_penalty: Array
    """(R,) float32, subtracted from the logits of tokens that the reply contains"""
    frequency_penalty: Array
    """(R,) float32, subtracted once for each time that the reply contains a token"""
    logprobs: Array
    """(R,) int32; 1: log-probabilities of the drawn token are wanted, from logits without any change"""


def empty_slots(num_slots: int, vocab: int) -> Slots:
    """Slots without biases and tokens. vocab: columns of one device's logits."""
    return Slots(jnp.zeros((num_slots, vocab), jnp.float32), jnp.zeros((num_slots, vocab), jnp.int32))


def empty_row_edits(rows: int) -> RowEdits:
    """Edits that change nothing, in new arrays on the host."""
    (counted, logprobs), (presence, frequency) = np.zeros((2, rows), np.int32), np.zeros((2, rows), np.float32)
    return RowEdits(np.full(rows, -1, np.int32), counted, presence, frequency, logprobs)


def write_slot(slots: Slots, slot: Array, is_new: Array, changes_3N: Array, cut: Cut | None = None) -> Slots:
    """Add to the biases and counts of one slot. is_new: bool scalar, whether it is emptied first. changes: (3, CHANGES)
    int32, token ids, the bits of a float32 bias, and counts; unused entries add 0 to token 0."""
    ids, bits, counts = jnp.asarray(changes_3N)
    columns, has = own_ids(ids, jnp.asarray(slots.bias), cut)
    added = Slots(jax.lax.bitcast_convert_type(bits, jnp.float32), counts)

    def changed(old_SV: Array, added_N: Array) -> jax.Array:
        row_V = jnp.where(is_new, 0, old_SV[slot]).astype(old_SV.dtype)
        return jnp.asarray(old_SV).at[slot].set(row_V.at[columns].add(jnp.where(has, added_N, 0)))

    return Slots(*map(changed, slots, added))


def edit_rows(
    logits_RV: jax.Array,
    slots: Slots,
    edits: RowEdits,
    tokens_R: jax.Array,
    forbidden: jax.Array,
    cut: Cut | None = None,
) -> tuple[jax.Array, jax.Array]:
    """(Logits with biases added, penalties subtracted, and -inf for forbidden tokens; the slots' counts, with the
    tokens of rows that are ``counted``). tokens: the rows' last new tokens. forbidden: (at least R, words of 32 bits)
    uint32; a token whose bit is 1 is never drawn. Rows are edited one after the other, because all at once take several
    times the memory of the logits; the others cost nothing."""
    is_edited = (edits.slot >= 0) | jnp.any(forbidden[: len(logits_RV)] != 0, axis=1)
    edited_first = jnp.argsort(~is_edited)
    one_row = partial(jax.lax.dynamic_slice_in_dim, slice_size=1)

    def edit(i: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        (x_RV, counts_SV), r = carry, edited_first[i]
        slot, has_slot = jnp.maximum(edits.slot[r], 0), edits.slot[r] >= 0
        column, has = own_ids(tokens_R[r], x_RV, cut)
        counts_1V = one_row(counts_SV, slot)
        is_token = jnp.arange(x_RV.shape[1])[None] == column
        counts_1V += (is_token & has & has_slot & (edits.counted[r] > 0)).astype(counts_1V.dtype)
        penalties = edits.presence_penalty[r] + edits.frequency_penalty[r] * counts_1V
        penalties = jnp.where(counts_1V > 0, penalties, 0.0)  # an infinite one would be NaN for other tokens
        changes = jnp.where(has_slot, one_row(slots.bias, slot) - penalties, 0.0)
        bits = (one_row(forbidden, r)[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
        x_1V = one_row(x_RV, r)
        x_1V = jnp.where(own_columns(bits.reshape(1, -1), x_1V, cut) == 0, x_1V + changes, -jnp.inf)
        update = jax.lax.dynamic_update_slice_in_dim
        return update(x_RV, x_1V, r, 0), update(counts_SV, counts_1V, slot, 0)

    return jax.lax.fori_loop(0, jnp.sum(is_edited), edit, (logits_RV, slots.counts))
