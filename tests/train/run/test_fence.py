"""The fence of a run: numbers rise, a process without the lease takes none, an old attempt writes nothing."""

import json
import pickle
import uuid
from pathlib import Path

import pytest

from lemur_ray.host.exit_codes import ExitCode, exit_code_of
from lemur_ray.storage.conditional_writes import read_version
from lemur_ray.train.run import fence
from lemur_ray.train.run.fence import Fence, Superseded
from lemur_ray.train.run.folder import RunFolderError
from tests.storage.conftest import google  # noqa: F401  # a fixture


@pytest.fixture(params=["memory", "disk", "gs"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "gs":
        request.getfixturevalue("google")
        return f"gs://bucket/{uuid.uuid4().hex}"
    return f"memory://bucket/{uuid.uuid4().hex}" if request.param == "memory" else str(tmp_path)


def test_an_older_attempt_writes_nothing_once_a_newer_one_has_begun(out: str) -> None:
    older = Fence(out)
    older.write_json("result.json", {"steps": 1})
    newer = Fence(out)
    for name in ("result.json", "stopped.json"):
        with pytest.raises(Superseded, match=r"attempt 1 of .* was overtaken by attempt 2 on"):
            older.write_json(name, {"steps": 2})
    newer.write_json("result.json", {"steps": 3})
    stored = read_version(f"{out}/result.json")
    assert stored is not None
    assert json.loads(stored[0]) == {"steps": 3, "attempt": 2}
    assert read_version(f"{out}/stopped.json") is None


def test_an_attempt_that_is_overtaken_between_its_look_and_its_write_conflicts_with_the_newer_one(
    out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Fence(out)
    looked = older.check
    later: list[Fence] = []

    def frozen() -> None:
        looked()
        if not later:
            later.append(Fence(out))
            later[0].write_json("stopped.json", {})

    monkeypatch.setattr(older, "check", frozen)
    with pytest.raises(Superseded):
        older.write_json("stopped.json", {"error": "of the older one"})
    stored = read_version(f"{out}/stopped.json")
    assert stored is not None
    assert json.loads(stored[0]) == {"attempt": 2}


@pytest.mark.usefixtures("google")
def test_an_attempt_that_is_overtaken_between_its_look_and_its_mark_commits_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = f"gs://bucket/{uuid.uuid4().hex}"
    first, again = Fence(out), f"{out}/again"
    first.mark(f"{out}/first")
    stored = read_version(f"{out}/first")
    assert stored is not None
    assert json.loads(stored[0])["attempt"] == 1
    looked, later = fence.read_version, list[Fence]()

    def frozen(url: str) -> tuple[bytes, str] | None:
        stored = looked(url)
        if not later:
            monkeypatch.setattr(fence, "read_version", looked)
            later.append(Fence(out))
        return stored

    monkeypatch.setattr(fence, "read_version", frozen)
    with pytest.raises(Superseded):
        first.mark(again)
    assert read_version(again) is None
    later[0].mark(again)
    assert read_version(again) is not None


def test_only_the_driver_of_the_newest_attempt_takes_the_next_number(out: str) -> None:
    """So two drivers whose groups restart cannot overtake each other for ever."""
    first = Fence(out)
    group = Fence(out, after=first)
    assert (group.number, group.driver) == (2, 1)
    first.check()
    with pytest.raises(Superseded):
        first.for_group().check()
    second = Fence(out)
    assert second.driver == second.number == 3
    for _ in range(8):
        with pytest.raises(Superseded, match="overtaken by attempt 3"):
            Fence(out, after=group)
    second.check()


def test_a_driver_that_lost_its_lease_meanwhile_takes_no_number(out: str) -> None:
    class LeaseLost(Exception):
        pass

    def confirm() -> None:
        raise LeaseLost

    newer = Fence(out)
    with pytest.raises(LeaseLost):
        Fence(out, confirm=confirm)
    newer.check()


def test_a_worker_gets_the_fence_as_a_copy_and_its_error_ends_the_run_with_its_code() -> None:
    out = f"memory://bucket/{uuid.uuid4().hex}"
    fence = pickle.loads(pickle.dumps(Fence(out)))
    fence.check()
    Fence(out)
    with pytest.raises(RunFolderError) as ended:
        fence.check()
    assert exit_code_of(pickle.loads(pickle.dumps(ended.value))) is ExitCode.OVERTAKEN
