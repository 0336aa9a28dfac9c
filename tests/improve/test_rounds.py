"""``rounds.jsonl`` and the action that is due."""

import errno
import json
import os
from pathlib import Path

import pytest

from lemur_ray.improve.outcome import alarms, collapse
from lemur_ray.improve.rounds import Action, Due, Event, Rounds, RoundsError, due


def rounds_with(path: Path, *events: tuple[int, Event]) -> Rounds:
    rounds = Rounds(path)
    for number, event in events:
        rounds.append(number, event, reason="none won")
    return rounds


PLAYED, TRAINED, WITHHELD = Event.PLAYED, Event.TRAINED, Event.WITHHELD


@pytest.mark.parametrize(
    ("events", "committed", "expected"),
    [
        ((), 0, Due(Action.PLAY, 1)),
        (((1, Event.PLANNED),), 0, Due(Action.PLAY, 1)),
        (((1, PLAYED),), 0, Due(Action.TRAIN, 1)),
        (((1, PLAYED),), 1, Due(Action.RECORD, 1)),
        (((1, PLAYED), (1, TRAINED)), 1, Due(Action.PLAY, 2)),
        (((1, PLAYED), (1, TRAINED), (2, PLAYED)), 1, Due(Action.TRAIN, 2)),
        (((1, PLAYED), (1, TRAINED), (2, PLAYED), (2, TRAINED)), 2, Due(Action.FINISH, 2)),
        (((1, WITHHELD),), 0, Due(Action.FINISH, 0)),
        (((1, PLAYED), (1, TRAINED), (2, WITHHELD)), 1, Due(Action.FINISH, 1)),
        (((1, PLAYED), (1, TRAINED), (2, PLAYED), (2, TRAINED)), 1, Due(Action.TRAIN, 2)),  # its checkpoint is damaged
    ],
)
def test_what_is_due_follows_from_the_records_and_the_newest_checkpoint(
    tmp_path: Path, events: tuple[tuple[int, Event], ...], committed: int, expected: Due
) -> None:
    assert due(rounds_with(tmp_path / "rounds.jsonl", *events), 2, committed) == expected


def test_a_checkpoint_of_a_round_that_was_not_played_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RoundsError, match="round 1 was not played, but the newest checkpoint is of round 1"):
        due(Rounds(tmp_path / "rounds.jsonl"), 2, 1)


def test_the_first_record_of_an_event_counts_and_a_torn_one_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    rounds = Rounds(path)
    assert rounds.append(1, PLAYED, rows="ab")["rows"] == "ab"
    assert rounds.append(1, PLAYED, rows="cd")["rows"] == "ab"
    whole = path.read_bytes()
    path.write_bytes(whole + json.dumps({"round": 1, "event": "played", "rows": "ef"}).encode() + b'\n{"round": 2, "ev')
    again = Rounds(path)
    assert "cut off a torn record of 16 bytes" in again.repaired
    assert again.get(1, PLAYED) == {"round": 1, "event": "played", "rows": "ab"}
    assert again.get(2, PLAYED) is None
    assert path.read_bytes().endswith(b'"ef"}\n')
    assert not Rounds(path).repaired


def test_a_record_that_a_full_disk_cut_short_is_none_and_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rounds.jsonl"
    rounds = Rounds(path)

    def full(descriptor: int) -> None:
        os.truncate(path, 9)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            rounds.append(1, PLAYED, rows="ab")
    assert rounds.get(1, PLAYED) is None
    again = Rounds(path)
    assert "torn record of 9 bytes" in again.repaired
    assert again.append(1, PLAYED, rows="ab")["rows"] == "ab"
    assert Rounds(path).get(1, PLAYED) == {"round": 1, "event": "played", "rows": "ab"}


def test_a_whole_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "rounds.jsonl").write_text('{"round": 1, "event": "eaten"}\n')
    with pytest.raises(RoundsError, match="line 1: not a record of a round"):
        Rounds(tmp_path / "rounds.jsonl")


def test_a_round_that_goes_wrong_is_warned_of_and_a_collapsed_model_stops_the_run() -> None:
    first = {
        "groups": 20,
        "flat": 4,
        "alike": 0,
        "entropy": 0.5,
        "repeated": 0.1,
        "won": 10,
        "episodes": 20,
        "missing": 0,
    }
    assert alarms(first, first) == []
    assert collapse(first, first) == ""
    narrow = {**first, "flat": 19, "alike": 12, "entropy": 0.04, "repeated": 0.6}
    assert alarms(narrow, first) == [
        "95% of 20 groups have no differences to learn from, in 12 of them because all replies are the same",
        "entropy fell from 0.500 to 0.040 nats a token",
        "60% of the replies repeat the one before",
    ]
    assert collapse({**narrow, "won": 18}, first) == "", "a model that wins may be sure of itself"
    assert collapse({**narrow, "won": 2}, first) == (
        "the model has collapsed: 60% of the replies repeat the one before, and it won 10% of its episodes instead of "
        "50% in round 1, so"
    )
