"""Changes of logits inside a step that draws: biases, penalties and forbidden tokens.

A sequence with biases or penalties has a slot on the devices, which keeps its biases and counts its tokens there, so
that a step can start before the tokens of the step before have arrived. Logits may be cut along the vocabulary
(``cut_logits.py``). Knows nothing of requests.

Legend: R rows, S slots, V vocabulary, or a device's part of it, N changes."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.serve.compute.cut_logits import Cut, own_columns, own_ids

CHANGES = 512
"""Most entries of a slot that one call of ``write_slot`` changes"""

Array = np.ndarray | jax.Array


class Slots(NamedTuple):
    """What the devices know of sequences with biases or penalties."""

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


def count(slots: Slots, edits: RowEdits, tokens_R: jax.Array, cut: Cut | None = None) -> Slots:
    """Slots after the token of each row that is ``counted``. tokens_R: the rows' last new tokens."""
    columns, has = own_ids(tokens_R, jnp.asarray(slots.counts), cut)
    once = (has & (jnp.asarray(edits.counted) > 0)).astype(jnp.int32)
    return slots._replace(counts=jnp.asarray(slots.counts).at[jnp.maximum(edits.slot, 0), columns].add(once))


def edited(
    logits_RV: jax.Array, slots: Slots, edits: RowEdits, forbidden: jax.Array, cut: Cut | None = None
) -> jax.Array:
    """Logits with biases added, penalties subtracted, and -inf for forbidden tokens. forbidden: (at least R, words of
    32 bits) uint32; a token whose bit is 1 is never drawn."""
    rows, at = len(logits_RV), jnp.maximum(edits.slot, 0)
    counts = slots.counts[at]
    penalties = edits.presence_penalty[:, None] * (counts > 0) + edits.frequency_penalty[:, None] * counts
    changes = jnp.where(edits.slot[:, None] >= 0, slots.bias[at] - penalties, 0.0)
    bits = (forbidden[:rows, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    allowed = own_columns(bits.reshape(rows, -1), logits_RV, cut) == 0
    return jnp.where(allowed, logits_RV + changes, -jnp.inf)
