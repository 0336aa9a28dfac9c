"""On CPUs: the next token of every sequence of a step, each by its own sampling options.

Greedy sequences, the most of them, share one program; the others are taken out of the step's logits ``ROWS`` at a time,
edited and sampled. A sequence's token does not depend on its neighbours. Knows nothing of queues, the cache or
listeners."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.sampling import EDITS, ROWS, allow_all, empty_draw, empty_edits, write_row
from lemur_ray.serve.engine.drawn_tokens import accepted, allowed_words, record_failure, record_logprobs
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.sampling_options import LogitBias


class Programs(Protocol):
    """The part of ``compute.programs.Programs`` that draws tokens from logits."""

    @property
    def config(self) -> ModelConfig: ...

    def run(self, name: str, rows: int, *arguments: Any) -> Any: ...


Edit = tuple[LogitBias, dict[int, float]]
"""(numbers added to a row's logits, penalties subtracted from them by token id)"""


def next_tokens(programs: Programs, logits: Any, rows: Sequence[tuple[int, LiveSequence]]) -> list[int | None]:
    """Next token of each (row of ``logits``, sequence); None if the computation for that sequence failed.
    Side effects on sequences: log-probabilities are appended if requested, constraints advance, a constraint that
    allows nothing sets ``refusal``. Other errors are logged."""
    is_greedy = [sequence.request.is_greedy for _, sequence in rows]
    tokens: list[int | None] = [None] * len(rows)
    if any(is_greedy):
        ids = np.asarray(programs.run("greedy", logits.shape[0], logits))
        for i, (row, _) in enumerate(rows):
            if is_greedy[i]:
                tokens[i] = int(ids[row])
    sampled = [i for i, greedy in enumerate(is_greedy) if not greedy]
    for begin in range(0, len(sampled), ROWS):
        few = sampled[begin : begin + ROWS]
        numbers = np.resize([rows[i][0] for i in few], ROWS).astype(np.int32)
        picked = programs.run("pick", logits.shape[0], logits, numbers)
        own = [(r, rows[i][1]) for r, i in enumerate(few)]
        for i, token in zip(few, _sample(programs, picked, own), strict=True):
            tokens[i] = token
    return tokens


def _sample(programs: Programs, unedited: Any, rows: Sequence[tuple[int, LiveSequence]]) -> list[int | None]:
    """``next_tokens`` for at most ``ROWS`` rows with any options."""
    num_rows = unedited.shape[0]
    draw, failed, edits = empty_draw(num_rows), set[int](), dict[int, Edit]()
    allowed = allow_all(num_rows, programs.config.vocab_size)
    for r, sequence in rows:
        try:
            write_row(draw, r, sequence, sequence.computed)
            edits[r] = sequence.request.sampling.logit_bias, _penalties(sequence)
            if (constraint := sequence.request.constraint) is not None:
                allowed[r] = allowed_words(constraint, allowed.shape[1])
        except Exception as error:  # an error of one request must not end the others
            record_failure(sequence, error)
            draw.temperature[r] = 0
            allowed[r] = 0xFFFFFFFF
            edits.pop(r, None)
            failed.add(r)
    is_constrained = any(sequence.request.constraint is not None for _, sequence in rows)
    edited = _edit(programs, unedited, edits, allowed, is_constrained=is_constrained)
    if (draw.temperature > 0).any():
        ids = np.asarray(programs.run("sample", num_rows, edited, draw))
    else:
        ids = np.asarray(programs.run("greedy", num_rows, edited))
    tokens = accepted(ids, rows, failed)
    record_logprobs(rows, tokens, lambda: programs.run("logprobs", num_rows, unedited, ids))
    return tokens


def _penalties(sequence: LiveSequence) -> dict[int, float]:
    """Sum of presence and frequency penalty for each token id generated so far; empty without penalties."""
    sampling = sequence.request.sampling
    if not (sampling.presence_penalty or sampling.frequency_penalty):
        return {}
    counts = Counter(sequence.generated)
    return {token: sampling.presence_penalty + n * sampling.frequency_penalty for token, n in counts.items()}


def _edit(programs: Programs, logits: Any, edits: dict[int, Edit], allowed: np.ndarray, *, is_constrained: bool) -> Any:
    """Logits after the edits of each row, -inf for tokens that are not allowed."""
    largest = max((len(bias) + len(penalties) for bias, penalties in edits.values()), default=0)
    arrays, num_rows = empty_edits(allowed), len(allowed)
    if largest > EDITS:
        logits = programs.run("shift", num_rows, logits, _shifts(edits, num_rows, programs.config.vocab_size))
    else:
        for r, (bias, penalties) in edits.items():
            sums = dict(bias)
            for token, penalty in penalties.items():
                sums[token] = sums.get(token, 0.0) - penalty
            arrays.ids[r, : len(sums)], arrays.values[r, : len(sums)] = list(sums), list(sums.values())
    return programs.run("edit", num_rows, logits, arrays) if is_constrained or 0 < largest <= EDITS else logits


def _shifts(edits: dict[int, Edit], num_rows: int, vocab: int) -> np.ndarray:
    """(R, V) float32: the edits of any number of tokens, summed in float64."""
    shifts = np.zeros((num_rows, vocab), np.float32)
    for r, (bias, penalties) in edits.items():
        row = np.zeros(vocab)
        row[bias.tokens] = bias.values
        for token, penalty in penalties.items():
            row[token] -= penalty
        shifts[r] = row
    return shifts
