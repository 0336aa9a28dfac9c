"""A disk without space at the moments between two commits: one line, and the same bits once there is room again."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.improve import traces
from lemur_ray.improve.learner import Learner
from lemur_ray.improve.rounds import Event, Rounds
from lemur_ray.improve.traces import Journal
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.train.checkpoint import SaveFailed
from tests.improve.capital_game import config_of
from tests.improve.test_improve_run import improve, records
from tests.improve.test_killed_improve import content, differing

ROUND = {"algorithm": "rloo", "games": 4, "samples": 4, "eval_games": 2}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no page free; a file's last page may still take some bytes."""
    with (folder / "ballast").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while free := os.statvfs(folder).f_bavail:
            file.write(b"x" * (free * os.statvfs(folder).f_bsize))


def full_before(owner: Any, name: str, is_due: Callable[..., bool], disk: Path) -> Callable[[pytest.MonkeyPatch], None]:
    """Patch a function so that the disk is full when it begins, the first time that it is due."""
    function = getattr(owner, name)

    def called(*given: Any, **more: Any) -> Any:
        if not (disk / "ballast").exists() and is_due(*given):
            fill(disk)
        return function(*given, **more)

    return lambda patch: patch.setattr(owner, name, called)


def is_record(event: Event) -> Callable[..., bool]:
    return lambda rounds, number, of, **_: (number, of) == (1, event)


MOMENTS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "the commit": (Learner, "_commit", lambda learner, step, numbers: step == 4),
    "after the commit, before the swap": (Rounds, "append", is_record(Event.TRAINED)),
    "the journal": (Journal, "append", lambda *_: True),
    "after the journal, before the ledger": (Ledger, "extend", lambda ledger, _: "rounds" in ledger.path.parts),
    "the traces": (traces, "save_traces", lambda *_: True),
    "after the traces, before the record": (Rounds, "append", is_record(Event.PLAYED)),
}


@pytest.fixture(scope="module")
def undisturbed(start: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("whole") / "run"
    improve(config_of(start, out, **ROUND))
    return content(out)


@pytest.mark.sweep  # two runs for each moment
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # other threads of a failed save
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_on_a_full_disk_stops_and_goes_on_to_the_same_bits(
    start: Path, small_disk: Path, undisturbed: dict[str, Any], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = small_disk / "run"
    config = config_of(start, out, **ROUND)
    with monkeypatch.context() as patch:
        full_before(*MOMENTS[moment], small_disk)(patch)
        with pytest.raises((OSError, SaveFailed)) as stopped:
            improve(config)
    check_one_line(stopped.value)
    assert not [one for one in records(out) if one["event"] == "trained"] or moment.startswith("after the commit")
    os.unlink(small_disk / "ballast")
    improve(config)
    assert differing(content(out), undisturbed) == []


def check_one_line(error: BaseException) -> None:
    if isinstance(error, OSError):
        assert is_full_disk(error), repr(error)
        return
    assert "\n" not in str(error)
    assert "run the same command again" in str(error)
