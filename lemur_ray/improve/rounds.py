"""The file ``rounds.jsonl``: what has happened to each round, and the action that is due next.

One JSON object a line, synced to disk. The first record of a key, (round, event), counts; an incomplete last line is
cut off when the file is opened for writing. Knows nothing of models and of how episodes are played."""

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from lemur_ray.host.exit_codes import CausedError
from lemur_ray.storage.append_file import AppendFile

ROUNDS = "rounds.jsonl"


class Event(StrEnum):
    """Stages of a round; each is recorded at most once."""

    PLANNED = "planned"
    """Fields: tasks (ids), version (of the weights that play it)."""
    PLAYED = "played"
    """Fields: rows (digest of its training data, empty without any), counts and rates of its episodes."""
    TRAINED = "trained"
    """Fields: version (of the weights after it), numbers of its updates."""
    WITHHELD = "withheld"
    """Nothing was trained, and the run ends. Fields: reason."""


class Action(StrEnum):
    """Next action of a run."""

    PLAY = "play"
    TRAIN = "train"
    RECORD = "record"
    """The round's weights are committed, but its record is missing."""
    FINISH = "finish"


class Due(NamedTuple):
    """The next action, and the number of its round; with FINISH that of the last round that was trained."""

    action: Action
    number: int


class RoundsError(CausedError):
    """Raised if ``rounds.jsonl`` cannot be read or contradicts the run's other files."""


class Rounds:
    """The records of ``rounds.jsonl``, open for appending; an incomplete last line is cut off."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises RoundsError if a complete line is no record."""
        self.path = path
        self.repaired = ""
        """Message about an incomplete line that was cut off; empty without one."""
        self._records: dict[tuple[int, Event], dict[str, Any]] = {}
        size = path.stat().st_size if path.exists() else 0
        self._file = AppendFile(str(path))
        if torn := size - len(self._file.content):
            self.repaired = f"{path}: cut off a torn record of {torn} bytes"
        for number, line in enumerate(self._file.content.splitlines(), 1):
            try:
                record = json.loads(line)
                key = (int(record["round"]), Event(record["event"]))
            except (KeyError, TypeError, ValueError) as error:
                raise RoundsError(f"{path}, line {number}: not a record of a round ({error})") from error
            self._records.setdefault(key, record)

    def get(self, number: int, event: Event) -> Mapping[str, Any] | None:
        """The record of the event of round ``number``; None if it has not happened."""
        return self._records.get((number, event))

    def append(self, number: int, event: Event, **fields: Any) -> Mapping[str, Any]:
        """Record an event of round ``number``, and return its record once it is synced to disk. If it was recorded
        before, nothing is written, ``fields`` are ignored, and the earlier record is returned. Raises OSError,
        ValueError for NaN or infinity among ``fields``."""
        if (before := self.get(number, event)) is not None:
            return before
        record = {"round": number, "event": event.value, **fields}
        self._file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self._records[number, event] = record
        return record


def due(rounds: Rounds, num_rounds: int, committed: int) -> Due:
    """The next action of a run of ``num_rounds`` rounds whose newest checkpoint is that of round ``committed`` (0: the
    start). A round that was recorded as trained but whose checkpoint is lost is trained again from its episodes. Raises
    RoundsError if a checkpoint is there of a round that was not played."""
    for number in range(1, num_rounds + 1):
        played, trained = rounds.get(number, Event.PLAYED), rounds.get(number, Event.TRAINED)
        if rounds.get(number, Event.WITHHELD) is not None:
            return Due(Action.FINISH, number - 1)
        if committed >= number and played is None:
            raise RoundsError(
                f"{rounds.path}: round {number} was not played, but the newest checkpoint is of round {committed}: "
                "bring the file back, or choose another --out"
            )
        if committed >= number and trained is None:
            return Due(Action.RECORD, number)
        if committed < number:
            return Due(Action.PLAY if played is None else Action.TRAIN, number)
    return Due(Action.FINISH, num_rounds)
