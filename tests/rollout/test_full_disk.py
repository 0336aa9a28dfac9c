"""A disk without space: what stood there stays, nothing half-written does, and the job says what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.report.pages.whole_page import render_run
from lemur_ray.rollout.evaluation_folder import replace_file
from lemur_ray.rollout.exit_codes import job_exit
from tests.report.report_samples import episode, write_ledger


def full(number: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_that_has_no_room_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file(tmp_path / "index.html", "whole")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(tmp_path / "index.html", "half")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"index.html": "whole"}


def test_a_page_can_be_read_by_whoever_can_read_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "beside").touch()
    replace_file(tmp_path / "index.html", "")
    assert (tmp_path / "index.html").stat().st_mode == (tmp_path / "beside").stat().st_mode


def test_numbers_and_pages_of_a_run_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_ledger(tmp_path / "run", [episode("1", Outcome.SOLVED)])
    render_run(folder, {})
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        render_run(folder, {"more": "x" * 999})
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_the_job_says_what_to_do_and_that_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    with job_exit("agent_eval") as end:
        full(0)
    assert end.code == 1
    said = capsys.readouterr().err
    assert said.startswith("agent_eval: No space left on device: make room where --out lies")
    assert "the same command goes on; what was finished is kept" in said
