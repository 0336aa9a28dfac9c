"""Two runs in one folder: the second is refused, on this machine, on another one, and in a bucket."""

import json
import signal
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest

from lemur_ray.train.run.folder import RunFolderError
from lemur_ray.train.run.lease import lease

BEAT_S = 0.05


def of_another_machine(folder: Path, count: int) -> None:
    value = {"id": "other", "host": "elsewhere", "pid": 7, "boot": "another-boot", "count": count}
    (folder / ".written").write_text(json.dumps(value))
    (folder / ".written").replace(folder / ".run.lease")  # whole at any moment, as a run writes it


def test_a_lease_is_counted_up_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / ".run.lease"
    with lease(str(tmp_path), beat_s=BEAT_S):
        deadline = time.monotonic() + 60
        while json.loads(path.read_text())["count"] < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not path.exists()


def test_the_lease_of_a_live_run_on_another_machine_is_respected(tmp_path: Path) -> None:
    ended = threading.Event()

    def alive() -> None:
        count = 0
        while not ended.wait(BEAT_S):
            count += 1
            of_another_machine(tmp_path, count)

    of_another_machine(tmp_path, 0)
    thread = threading.Thread(target=alive)
    thread.start()
    try:
        with (
            pytest.raises(RunFolderError, match=r"being written by another run \(process 7 on elsewhere\)"),
            lease(str(tmp_path), beat_s=400 * BEAT_S),  # of which the first beat ends its wait
        ):
            pass
    finally:
        ended.set()
        thread.join()


def test_the_lease_of_a_dead_machine_is_taken_over(tmp_path: Path) -> None:
    of_another_machine(tmp_path, 3)
    with lease(str(tmp_path), beat_s=BEAT_S):
        assert json.loads((tmp_path / ".run.lease").read_text())["host"] != "elsewhere"


def test_in_a_bucket_the_second_of_two_runs_is_refused_and_may_come_when_the_first_is_done() -> None:
    out = f"memory://bucket/{uuid.uuid4().hex}"
    with (
        lease(out, beat_s=20 * BEAT_S),
        pytest.raises(RunFolderError, match="being written by another run"),
        lease(out, beat_s=400 * BEAT_S),
    ):
        pass
    with lease(out, beat_s=BEAT_S):
        pass
    assert json.loads(fsspec.filesystem("memory").cat_file(f"{out}/.run.lease"))["given_back"]


@pytest.mark.parametrize(
    "before", [signal.default_int_handler, signal.SIG_IGN], ids=["", "in the background of a script"]
)
def test_a_run_whose_folder_was_taken_over_stops_and_leaves_it_to_the_other(
    before: Any, request: pytest.FixtureRequest
) -> None:
    ours = signal.signal(signal.SIGINT, before)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, ours))
    out = f"memory://bucket/{uuid.uuid4().hex}"
    theirs = {"id": "other", "host": "elsewhere", "pid": 7, "boot": "another-boot", "count": 3}
    began = time.monotonic()

    def hold() -> None:
        with lease(out, beat_s=BEAT_S):
            while time.monotonic() < began + 60:  # again and again, as the other counts up
                fsspec.filesystem("memory").pipe_file(f"{out}/.run.lease", json.dumps(theirs).encode())
                time.sleep(BEAT_S)

    with pytest.raises(RunFolderError, match=r"taken over by another run \(process 7 on elsewhere"):
        hold()
    assert time.monotonic() < began + 50
    assert signal.getsignal(signal.SIGINT) is before
    assert json.loads(fsspec.filesystem("memory").cat_file(f"{out}/.run.lease")) == theirs


def test_of_two_that_come_to_a_bucket_at_once_one_trains() -> None:
    out = f"memory://bucket/{uuid.uuid4().hex}"
    held, refused = [], []
    both, one_left = threading.Barrier(2), threading.Event()

    def come() -> None:
        both.wait()
        try:
            with lease(out, beat_s=1.0):
                held.append(1)
                one_left.wait(30)
        except RunFolderError:
            refused.append(1)
            one_left.set()

    threads = [threading.Thread(target=come) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(held), len(refused)) == (1, 1)
