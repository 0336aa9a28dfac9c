"""A run whose workers fail in the same way again and again ends with a sentence; what passes never ends one."""

import pickle

import pytest

from lemur_ray.corpus.rows import RowSetError
from lemur_ray.storage.retry_policy import refusal_error, timeout_error
from lemur_ray.train.run.failures import ALIKE, CRASHED, REFUSED, Failures
from lemur_ray.train.run.fence import Superseded
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped

CRASH = (
    "The actor died unexpectedly before finishing this task.\n\tpid: {}\nThe actor is dead because its worker process "
    "has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error."
)
LOST = "The actor died unexpectedly.\n\tip: 10.0.0.{}\nThe actor died because its node has died. Node Id: 5f3a{}"
GONE = "UNAVAILABLE: Gloo AllGather failed: Connection closed by peer [10.0.0.3]:1234"


def as_from_a_worker(error: Exception, cause: Exception) -> Exception:
    """An error raised because of another one, as it arrives from another process, which drops the cause."""
    error.__cause__ = cause
    carried: Exception = pickle.loads(pickle.dumps(error))
    assert carried.__cause__ is None
    return carried


def starts(failures: Failures, error: Exception, most: int = 200, commit: int = 40) -> int:
    """After how many failures the run ends; 0: never."""
    return next((n for n in range(1, most + 1) if failures.stop_reason({0: error}, lambda: commit)), 0)


@pytest.mark.parametrize(
    ("error", "ends_after"),
    [
        (AssertionError("part 1 got plan rows [3, 4], expected [5, 6]"), ALIKE),
        (MemoryError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes"), ALIKE),
        (RuntimeError("rows/python/00003.tokens: its content differs from what was written; build this corpus"), ALIKE),
        (refusal_error("gs://bucket", 401, "Invalid Credentials"), REFUSED),
        (as_from_a_worker(RowSetError("rows cannot be read"), refusal_error("gs://b", 403, "x")), REFUSED),
        (RuntimeError(CRASH.format(7)), CRASHED),
        (RuntimeError(LOST.format(3, 0)), 0),
        (RuntimeError(GONE), 0),
        (timeout_error("gs://bucket", 100), 0),
        (as_from_a_worker(RowSetError("rows cannot be read"), timeout_error("gs://bucket", 100)), 0),
        (refusal_error("gs://bucket", 503, "in trouble"), 0),
        (Superseded("attempt 1 of this run was overhauled by attempt 2 on b: it commits nothing more"), ALIKE),
    ],
    ids=[
        "rows",
        "memory",
        "damage",
        "401",
        "403",
        "crash",
        "host",
        "collective",
        "silence",
        "rows in silence",
        "503",
        "overhauled",
    ],
)
def test_what_comes_back_every_time_ends_a_run_and_what_passes_does_not(error: Exception, ends_after: int) -> None:
    assert starts(Failures(), error) == ends_after


def test_the_sentence_says_what_failed_since_when_and_what_to_do() -> None:
    failures = Failures()
    said = [failures.stop_reason({0: RuntimeError(GONE), 3: KeyError("lr")}, lambda: 40) for _ in range(ALIKE)]
    assert said[:-1] == [None] * (ALIKE - 1)
    assert said[-1] == (
        f"the workers failed {ALIKE} times in the same way since checkpoint 40, the last time with: worker 3: 'lr'; "
        "starting them again would not help: mend that, then run the same command again to resume"
    )


@pytest.mark.parametrize("why", [TrainingStopped("no room"), RunFolderError("the run of another")])
def test_what_says_by_itself_that_it_is_no_use_ends_the_run_at_once(why: Exception) -> None:
    assert Failures().stop_reason({0: RuntimeError(GONE), 1: why}, lambda: 0) == str(why)


def test_a_commit_in_between_another_kind_and_a_lost_host_do_not_add_up() -> None:
    failures, commits = Failures(), iter(range(100))
    assert not any(failures.stop_reason({0: KeyError("a")}, lambda: next(commits)) for _ in range(50))
    many = [ValueError(f"a thing of kind {letter} is absent") for letter in "abcdefghij"]
    assert not any(failures.stop_reason({0: error}, lambda: 200) for error in many)
    assert not any(
        failures.stop_reason({0: RuntimeError(LOST.format(n, n)), 1: KeyError("b")}, lambda: 200) for n in range(50)
    )


def test_ids_and_numbers_do_not_make_two_kinds_of_one_and_a_bucket_that_cannot_be_asked_has_no_commit() -> None:
    def away() -> int:
        raise timeout_error("gs://bucket", 100)

    failures = Failures()
    found = [failures.stop_reason({n: RuntimeError(f"0x7f{n} failed at row {n}")}, away) for n in range(ALIKE)]
    assert [word is None for word in found] == [True] * (ALIKE - 1) + [False]
    assert "since the beginning" in str(found[-1])
