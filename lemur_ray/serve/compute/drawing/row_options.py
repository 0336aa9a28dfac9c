"""The options by which each row of a step draws its token, and the slots of sequences with biases or penalties.

A slot is written once for each admission of a sequence; afterwards the steps themselves count its tokens. Runs on the
host, in the engine's thread."""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from lemur_ray.serve.compute.drawing.slot_edits import CHANGES
from lemur_ray.serve.compute.drawing.step import RowOptions, empty_options
from lemur_ray.serve.compute.sampling import write_row
from lemur_ray.serve.engine.compute_protocol import Row
from lemur_ray.serve.engine.drawn_tokens import allowed_words, record_failure
from lemur_ray.serve.engine.live_sequence import LiveSequence


class SlotWriter(Protocol):
    """The part of ``compute.programs.Programs`` that keeps the slots."""

    @property
    def num_slots(self) -> int: ...

    def forbid_nothing(self) -> np.ndarray: ...

    def write_slot(self, slot: int, is_new: bool, changes: np.ndarray) -> None: ...


class RowOptionsWriter:
    """Writes the options of rows, and the slots that they need. Owns the slots of one engine's programs."""

    def __init__(self, programs: SlotWriter):
        self._programs = programs
        self._free = [*range(programs.num_slots)]
        self._slots = OrderedDict[int, tuple[int, int]]()
        """By handle of an admitted sequence, its slot and how many tokens it counts; the least recently used first"""

    def write(self, num_rows: int, rows: Sequence[tuple[int, Row]]) -> tuple[RowOptions, set[int]]:
        """(options of a step of ``num_rows``, rows whose constraint raised an error, which draw any token). rows:
        (number of the row, row). Slots are written on the devices."""
        options, failed = empty_options(num_rows), set[int]()
        for _, row in rows:
            if row.sequence.handle in self._slots:
                self._slots.move_to_end(row.sequence.handle)
        for r, row in rows:
            sequence, request = row.sequence, row.sequence.request
            options.source[r] = row.source
            length = row.start + max(len(row.tokens), row.source >= 0)
            if row.source < 0 and length < sequence.length:
                continue  # no token is drawn
            write_row(options.draw, r, sequence, length)
            options.edits.logprobs[r] = request.logprobs
            if request.sampling.edits_logits:
                self._write_edits(options, r, sequence, length)
            if request.constraint is not None and request.max_tokens:
                try:
                    if options.forbidden is None:
                        options = options._replace(forbidden=self._programs.forbid_nothing())
                    assert options.forbidden is not None
                    options.forbidden[r] = ~allowed_words(request.constraint, options.forbidden.shape[1])
                except Exception as error:  # an error of one request must not end the others
                    record_failure(sequence, error)
                    failed.add(r)
        return options, failed

    def _write_edits(self, options: RowOptions, r: int, sequence: LiveSequence, length: int) -> None:
        """Edits of row ``r``, after which the sequence has ``length`` tokens, of which a token is drawn."""
        sampling, edits = sequence.request.sampling, options.edits
        has_penalties = bool(sampling.presence_penalty or sampling.frequency_penalty)
        replied = length - len(sequence.prompt)
        slot, counted = self._slots.get(sequence.handle, (-1, -1))
        if slot < 0 or counted != replied - 1:
            if slot < 0:
                slot = self._free.pop() if self._free else self._slots.popitem(last=False)[1][0]
            generated = sequence.generated[: max(replied - 1, 0)] if has_penalties else []
            for i, changes in enumerate(slot_changes(sequence, generated)):
                self._programs.write_slot(slot, i == 0, changes)
        self._slots[sequence.handle] = slot, replied
        edits.slot[r], edits.counted[r] = slot, has_penalties and replied > 0
        edits.presence_penalty[r], edits.frequency_penalty[r] = sampling.presence_penalty, sampling.frequency_penalty


def slot_changes(sequence: LiveSequence, generated: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield ``changes`` for ``slot_edits.write_slot``, at least one: a sequence's biases, counts of ``generated``."""
    bias, counts = sequence.request.sampling.logit_bias, Counter(generated)
    changes = np.zeros((3, len(bias) + len(counts)), np.int32)
    changes[0] = np.concatenate([bias.tokens, np.array([*counts], np.int64)])
    changes[1, : len(bias)] = bias.values.astype(np.float32).view(np.int32)
    changes[2, len(bias) :] = [*counts.values()]
    for begin in range(0, max(changes.shape[1], 1), CHANGES):
        part = changes[:, begin : begin + CHANGES]
        yield np.pad(part, ((0, 0), (0, CHANGES - part.shape[1])))
