"""What a step draws for its sequences: constraints advance, log-probabilities are kept.

An error of one request does not end the others."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lemur_ray.serve.engine.generation import Constraint, UnsatisfiableConstraint
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs

log = logging.getLogger(__name__)


def allowed_words(constraint: Constraint, count: int) -> np.ndarray:
    """Bit mask of the tokens that may come next, cut or zero-padded to ``count`` words of 32 bits, (count,) uint32.
    Raises UnsatisfiableConstraint if no bit is set, and what the constraint raises."""
    allowed, words = constraint.allowed(), np.zeros(count, np.uint32)
    words[: len(allowed)] = allowed[:count]
    if not words.any():
        raise UnsatisfiableConstraint("the structure allows no token of this model to come next")
    return words


def accepted(ids: np.ndarray, rows: Sequence[tuple[int, LiveSequence]], failed: set[int]) -> list[int | None]:
    """The token of each (row of ``ids``, sequence), by which its constraint advances; None if that raises an error, and
    for the rows in ``failed``."""
    tokens: list[int | None] = []
    for r, sequence in rows:
        tokens.append(None if r in failed else int(ids[r]))
        try:
            if (constraint := sequence.request.constraint) is not None and r not in failed:
                constraint.accept(int(ids[r]))
        except Exception as error:
            record_failure(sequence, error)
            tokens[-1] = None
    return tokens


def record_logprobs(
    rows: Sequence[tuple[int, LiveSequence]], tokens: Sequence[int | None], compute: Callable[[], Any]
) -> None:
    """Append the log-probabilities of drawn tokens to the sequences that ask for them. compute: returns those of all
    rows, as ``TokenLogprobs.on_host`` takes them; only called if a sequence asks."""
    if any(sequence.request.logprobs for _, sequence in rows):
        logprobs = TokenLogprobs.on_host(compute())
        for (r, sequence), token in zip(rows, tokens, strict=True):
            if sequence.request.logprobs and token is not None:
                sequence.logprobs.append(logprobs.part(r, r + 1))


def record_failure(sequence: LiveSequence, error: Exception) -> None:
    """Store the refusal of an unsatisfiable constraint, log any other error. Called in the ``except`` clause."""
    if isinstance(error, UnsatisfiableConstraint):
        sequence.refusal = str(error)
    else:
        log.exception("request %d failed", sequence.number)
