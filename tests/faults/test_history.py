"""The rules of a history on histories made by hand: each breach is reported with its object, and good ones pass."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest

from tests.faults.history import Client
from tests.faults.history_rules import breaches, check
from tests.storage.stored_objects import Objects, Refusal

RUN = "bucket/run/"
COMMIT = "checkpoints/8"


class Writer:
    """A process that writes below ``run/`` of a bucket."""

    def __init__(self, objects: Objects, command: str, pid: int) -> None:
        self._objects, self._client = objects, Client(command, "127.0.0.1", pid, "python")

    def put(self, name: str, data: str | dict, condition: dict[str, str] | None = None, **metadata: str) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        with self._objects.history.sent_by(self._client):
            self._objects.put("bucket", f"run/{name}", text.encode(), condition or {}, metadata=metadata)

    def delete(self, name: str) -> None:
        with self._objects.history.sent_by(self._client):
            self._objects.delete("bucket", f"run/{name}", {})

    def lease(self, number: int) -> None:
        self.put(".run.lease", {"holder": number, "id": f"command {number}"})

    def attempt(self, number: int, driver: int) -> None:
        self.put(".run.attempt", {"attempt": number, "id": f"group {number}", "driver": driver})

    def commit(self, folder: str = COMMIT, attempt: int = 1) -> None:
        self.put(f"{folder}/plan/metadata", {"attempt": attempt})
        for name in ("state/_METADATA", "state/d/0a", "state/manifest.ocdbt", "commit_success.txt"):
            self.put(f"{folder}/{name}", name)

    def index(self, *pieces: str, file: str = "metrics.jsonl", named: tuple[str, ...] = ()) -> None:
        """Write pieces and the index that names them (or ``named`` pieces)."""
        for piece in pieces:
            self.put(f"{file}.pieces/{piece}", piece)
        values = [(text, len(text), hashlib.sha256(text.encode()).hexdigest()) for text in named or pieces]
        self.put(f"{file}.pieces/index.json", {"attempt": 1, "pieces": values})


@pytest.fixture
def objects() -> Objects:
    return Objects(("bucket",))


@pytest.fixture
def older(objects: Objects) -> Writer:
    return Writer(objects, "first", 11)


@pytest.fixture
def newer(objects: Objects) -> Writer:
    return Writer(objects, "second", 22)


def test_a_take_over_commits_growth_and_merged_pieces_are_no_breach(
    objects: Objects, older: Writer, newer: Writer
) -> None:
    older.lease(1)
    older.attempt(1, 1)
    older.attempt(2, 1)
    older.put("stopped.json", {"error": "", "attempt": 2})
    older.put("metrics.jsonl", "a\n")
    older.put("metrics.jsonl", "a\nb\n")
    older.commit(attempt=2)
    older.index("c\n", file="goodput.jsonl")
    newer.lease(2)
    newer.attempt(3, 3)
    older.put("checkpoints/24/state/d/0b", "data that nobody commits")
    with pytest.raises(Refusal):
        older.put("result.json", {"loss": 1}, {"ifGenerationMatch": "7"})
    newer.put("metrics.jsonl", "a\nb\nc\n")
    newer.index("c\nd\n", file="goodput.jsonl")
    newer.delete("goodput.jsonl.pieces/c\n")
    newer.delete(f"{COMMIT}/commit_success.txt")
    newer.delete(f"{COMMIT}/plan/metadata")
    newer.put("checkpoints/12.torn/plan/metadata", {"attempt": 1})
    newer.commit("checkpoints/16", attempt=3)
    Writer(objects, "elsewhere", 33).put("../other/metrics.jsonl", "x\n")
    check(objects.history)
    refused = [write for write in objects.history.writes if not write.accepted]
    assert [(write.name, write.status) for write in refused] == [(f"{RUN}result.json", 412)]


def of_an_older_driver(older: Writer, newer: Writer) -> None:
    older.attempt(1, 1)
    newer.attempt(2, 2)
    older.put("stopped.json", {"error": "e"})


def of_an_older_command(older: Writer, newer: Writer) -> None:
    older.lease(1)
    newer.lease(2)
    older.put("checkpoint_manager_snapshot.json", {})


def of_an_older_group(older: Writer, newer: Writer) -> None:
    older.attempt(1, 1)
    older.attempt(2, 1)
    older.put("result.json", {"loss": 1, "attempt": 1})


def of_an_older_object(older: Writer, newer: Writer) -> None:
    newer.attempt(2, 2)
    older.put("tensorboard/events", "e", attempt="1")


def commit_of_an_older_group(older: Writer, newer: Writer) -> None:
    older.attempt(3, 1)
    newer.commit("checkpoints/8.attempt-2", attempt=2)


def lease_taken_back(older: Writer, newer: Writer) -> None:
    older.lease(1)
    newer.lease(2)
    older.lease(1)


def lease_taken_twice(older: Writer, newer: Writer) -> None:
    older.lease(1)
    newer.put(".run.lease", {"holder": 1, "id": "another"})


def fewer_lines(older: Writer, newer: Writer) -> None:
    older.put("metrics.jsonl", "a\nb\n")
    newer.put("metrics.jsonl", "a\n")


def other_lines(older: Writer, newer: Writer) -> None:
    older.put("goodput.jsonl", "a\n")
    newer.put("goodput.jsonl", "b\nc\n")


def no_lines(older: Writer, newer: Writer) -> None:
    older.put("episodes.jsonl", "a\n")
    newer.delete("episodes.jsonl")


def fewer_pieces(older: Writer, newer: Writer) -> None:
    older.index("a\n", "b\n")
    newer.index("a\n")


def absent_piece(older: Writer, newer: Writer) -> None:
    older.index("a\n", named=("a\n", "b\n"))


def deleted_piece(older: Writer, newer: Writer) -> None:
    older.index("a\n")
    newer.delete("metrics.jsonl.pieces/a\n")


def incomplete_checkpoint(older: Writer, newer: Writer) -> None:
    older.put(f"{COMMIT}/plan/metadata", "p")
    older.put(f"{COMMIT}/commit_success.txt", "")


def shrunk_checkpoint(older: Writer, newer: Writer) -> None:
    older.commit()
    newer.delete(f"{COMMIT}/state/d/0a")


def replaced_checkpoint(older: Writer, newer: Writer) -> None:
    older.commit()
    newer.put(f"{COMMIT}/state/manifest.ocdbt", "another")


def checkpoint_of_two(older: Writer, newer: Writer) -> None:
    older.attempt(1, 1)
    older.put(f"{COMMIT}/state/d/0b", "d")
    newer.attempt(2, 2)
    newer.commit(attempt=2)


@pytest.mark.parametrize(
    ("breach", "rule", "name"),
    [
        (of_an_older_driver, "superseded", "stopped.json"),
        (of_an_older_command, "superseded", "checkpoint_manager_snapshot.json"),
        (of_an_older_group, "superseded", "result.json"),
        (commit_of_an_older_group, "superseded", "checkpoints/8.attempt-2/commit_success.txt"),
        (of_an_older_object, "superseded", "tensorboard/events"),
        (lease_taken_back, "superseded", ".run.lease"),
        (lease_taken_twice, "superseded", ".run.lease"),
        (fewer_lines, "shrank", "metrics.jsonl"),
        (other_lines, "shrank", "goodput.jsonl"),
        (no_lines, "shrank", "episodes.jsonl"),
        (fewer_pieces, "shrank", "metrics.jsonl.pieces/index.json"),
        (absent_piece, "shrank", "metrics.jsonl.pieces/index.json"),
        (deleted_piece, "commit", "metrics.jsonl.pieces/a\n"),
        (incomplete_checkpoint, "commit", f"{COMMIT}/commit_success.txt"),
        (shrunk_checkpoint, "commit", f"{COMMIT}/state/d/0a"),
        (replaced_checkpoint, "commit", f"{COMMIT}/state/manifest.ocdbt"),
        (checkpoint_of_two, "commit", f"{COMMIT}/commit_success.txt"),
    ],
)
def test_a_breach_is_reported_with_its_rule_and_object(
    objects: Objects, older: Writer, newer: Writer, breach: Callable[[Writer, Writer], None], rule: str, name: str
) -> None:
    breach(older, newer)
    assert {(one.rule, one.write.name) for one in breaches(objects.history.writes)} == {(rule, RUN + name)}
    with pytest.raises(AssertionError, match=rule) as error:
        check(objects.history)
    assert name in str(error.value)


def test_damage_that_a_test_does_itself_is_no_breach(objects: Objects, older: Writer, newer: Writer) -> None:
    older.put("metrics.jsonl", "a\nb\n")
    with objects.history.tampering():
        newer.put("metrics.jsonl", "a\n")
    newer.put("metrics.jsonl", "a\nc\n")
    objects.put("bucket", "run/metrics.jsonl", b"", {})
    check(objects.history)
