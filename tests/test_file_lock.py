"""A file held by one process: the second is told by whom, waits where it may, and has it once the first is dead."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemur_ray.host.file_lock import FileHeld, hold, take

HOLDER = """
import sys, time
from pathlib import Path
from lemur_ray.host.file_lock import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A lock file and the process that holds it."""
    path = tmp_path / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    yield path, holder
    holder.kill()
    holder.communicate()


def test_the_second_is_told_who_holds_the_file(held: tuple[Path, subprocess.Popen[str]]) -> None:
    path, holder = held
    with pytest.raises(FileHeld, match=f"is held by process {holder.pid}: wait for it, or end it") as found, hold(path):
        pass
    assert (found.value.path, found.value.holder) == (path, str(holder.pid))


def test_a_wait_has_an_end_and_is_announced_once(held: tuple[Path, subprocess.Popen[str]]) -> None:
    told: list[str] = []
    began = time.monotonic()
    with pytest.raises(FileHeld), hold(held[0], wait_s=0.3, waiting=lambda: told.append("waiting")):
        pass
    assert time.monotonic() - began >= 0.3
    assert told == ["waiting"]


@pytest.mark.parametrize("wait_s", [None, 60.0])
def test_the_lock_of_a_killed_process_is_free(held: tuple[Path, subprocess.Popen[str]], wait_s: float | None) -> None:
    path, holder = held
    with hold(path, wait_s=wait_s, waiting=lambda: os.kill(holder.pid, signal.SIGKILL)):
        assert path.read_text() == f"{os.getpid()}\n"


def test_nobody_waits_for_a_file_that_nobody_holds(tmp_path: Path) -> None:
    for _ in range(2):  # also where an earlier holder left its number
        with hold(tmp_path / ".lock", waiting=lambda: pytest.fail("waited")):
            pass


def test_an_open_folder_can_be_held_too(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert take(first)
    assert not take(second)
    os.close(first)
    assert take(second, wait_s=None)
    os.close(second)
