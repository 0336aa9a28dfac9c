"""The next token of every sequence of a step, each by its own settings.

Greedy sequences, the most of them, cost one program for all. Others are taken out of the step eight at a time: their
logits are edited, a token is drawn, its score is written down. What a sequence gets depends on nobody beside it. Knows
nothing of queues, places or listeners.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from lemur_ray.serve.compute.programs import Programs, empty_draw, empty_edits
from lemur_ray.serve.compute.sampling import EDITS, ROWS, Draw, seed_words
from lemur_ray.serve.engine.generation import LogitBias, UnsatisfiableConstraint
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs

log = logging.getLogger(__name__)


def next_tokens(programs: Programs, logits: Any, rows: Sequence[tuple[int, LiveSequence]]) -> list[int | None]:
    """A token id for each of these rows of the logits (R, V); None: it failed, the log says why.

    Log-probabilities are added to the sequences that want them.
    """
    plain = [(place, row) for place, (row, sequence) in enumerate(rows) if sequence.request.is_greedy]
    chosen: list[int | None] = [None] * len(rows)
    if plain:
        ids = np.asarray(programs.run("greedy", logits.shape[0], logits))
        for place, row in plain:
            chosen[place] = int(ids[row])
    others = [place for place, (_, sequence) in enumerate(rows) if not sequence.request.is_greedy]
    for begin in range(0, len(others), ROWS):
        places = others[begin : begin + ROWS]
        for place, token in zip(places, _choose_few(programs, logits, [rows[p] for p in places]), strict=True):
            chosen[place] = token
    return chosen


def _choose_few(programs: Programs, logits: Any, rows: Sequence[tuple[int, LiveSequence]]) -> list[int | None]:
    """The same for at most ``ROWS`` rows with settings of any kind."""
    numbers = np.resize([row for row, _ in rows], ROWS).astype(np.int32)
    own = edited = programs.run("pick", logits.shape[0], logits, numbers)
    draw, failed = empty_draw(ROWS), set()
    vocab, changed = programs.config.vocab_size, dict[int, tuple[LogitBias, dict[int, float]]]()
    words = -(-vocab // 32)
    allowed = np.full((ROWS, words), 0xFFFFFFFF, np.uint32)
    for r, (_, sequence) in enumerate(rows):
        try:
            _describe(draw, r, sequence)
            changed[r] = sequence.request.bias, _penalties(sequence)
            if (constraint := sequence.request.constraint) is not None:
                allowed[r] = _words(constraint.allowed(), words)
        except Exception as error:  # whatever is wrong with one request, the others are not to pay for it
            _failed(sequence, error)
            draw.temperature[r] = 0
            allowed[r] = 0xFFFFFFFF
            changed.pop(r, None)
            failed.add(r)
    edits = empty_edits(ROWS, words)._replace(allowed=allowed)
    most = max((len(bias) + len(penalties) for bias, penalties in changed.values()), default=0)
    if most > EDITS:
        edited = programs.run("shift", ROWS, edited, _shifts(changed, vocab))
    else:
        for r, (bias, penalties) in changed.items():
            change = _together(bias, penalties)
            edits.ids[r, : len(change)], edits.values[r, : len(change)] = list(change), list(change.values())
    constrained = any(sequence.request.constraint is not None for _, sequence in rows)
    if constrained or 0 < most <= EDITS:
        edited = programs.run("edit", ROWS, edited, edits)
    if (draw.temperature > 0).any():
        ids = np.asarray(programs.run("sample", ROWS, edited, draw))
    else:
        ids = np.asarray(programs.run("greedy", ROWS, edited))
    if any(sequence.request.logprobs for _, sequence in rows):
        logprobs = TokenLogprobs.on_host(programs.run("logprobs", ROWS, own, ids))
        for r, (_, sequence) in enumerate(rows):
            if sequence.request.logprobs:
                sequence.logprobs.append(logprobs.part(r, r + 1))
    chosen: list[int | None] = []
    for r, (_, sequence) in enumerate(rows):
        try:
            if (constraint := sequence.request.constraint) is not None and r not in failed:
                constraint.accept(int(ids[r]))
        except Exception as error:
            _failed(sequence, error)
            failed.add(r)
        chosen.append(None if r in failed else int(ids[r]))
    return chosen


def _failed(sequence: LiveSequence, error: Exception) -> None:
    """Called where the error is caught."""
    if isinstance(error, UnsatisfiableConstraint):
        sequence.refusal = str(error)
    else:
        log.exception("request %d failed", sequence.number)


def _describe(draw: Draw, row: int, sequence: LiveSequence) -> None:
    """Write how a sequence is drawn into its row."""
    request = sequence.request
    draw.temperature[row] = request.temperature
    if request.temperature > 0:
        draw.top_k[row], draw.top_p[row], draw.min_p[row] = request.top_k, request.top_p, request.min_p
        draw.seed[row], draw.sample_index[row] = seed_words(request.seed), request.sample_index
        draw.position[row] = sequence.computed


def _penalties(sequence: LiveSequence) -> dict[int, float]:
    """What is taken from the logits of tokens that were generated before."""
    request = sequence.request
    if not (request.presence_penalty or request.frequency_penalty):
        return {}
    counts = Counter(sequence.generated)
    return {token: request.presence_penalty + n * request.frequency_penalty for token, n in counts.items()}


def _together(bias: LogitBias, penalties: dict[int, float]) -> dict[int, float]:
    """What is added to which logits, of few."""
    changes = dict(bias)
    for token, penalty in penalties.items():
        changes[token] = changes.get(token, 0.0) - penalty
    return changes


def _shifts(changed: dict[int, tuple[LogitBias, dict[int, float]]], vocab: int) -> np.ndarray:
    """(ROWS, V) float32: the same, of any number."""
    shifts = np.zeros((ROWS, vocab), np.float32)
    for r, (bias, penalties) in changed.items():
        row = np.zeros(vocab)
        row[bias.tokens] = bias.values
        for token, penalty in penalties.items():
            row[token] -= penalty
        shifts[r] = row
    return shifts


def _words(allowed: np.ndarray, count: int) -> np.ndarray:
    """The bits of as many tokens as the model has. Raises UnsatisfiableConstraint where none of them is set."""
    words = np.zeros(count, np.uint32)
    words[: len(allowed)] = allowed[:count]
    if not words.any():
        raise UnsatisfiableConstraint("the structure allows no token of this model to come next")
    return words
