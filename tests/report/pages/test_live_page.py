"""The page of a run that goes on: there while it does, by a process that is gone when it ends."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from lemur_ray.agents.trajectory import Task
from lemur_ray.report.pages import live_page as live
from lemur_ray.report.pages.whole_page import render_run
from tests.report.report_samples import alfworld, write_ledger

EPISODES = alfworld("nano-chat", 0.5, 1, per_kind=2)
TASKS = [Task(e.key.benchmark, e.key.task, "env", e.category) for e in EPISODES]


def until(path: Path, words: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if words in text:
            return text
        time.sleep(0.05)
    raise AssertionError(f"{path} never said {words!r}")


def test_the_page_is_written_anew_while_a_run_goes_on_and_says_so(tmp_path: Path) -> None:
    index, recipe = tmp_path / "index.html", EPISODES[0].key.recipe
    with live.live_page(tmp_path, TASKS, "nano-chat", recipe, 1, every_s=0.1) as made:
        assert made == ("alfworld/text", "nano-chat", recipe)
        write_ledger(tmp_path, EPISODES[:5])
        assert "data-live" in until(index, "5 of 12 episodes so far")
    render_run(tmp_path, {}, made)
    assert "data-live" not in index.read_text(encoding="utf-8")
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()], "unfinished pages are left behind"


def test_a_page_that_cannot_be_written_is_said_once_and_ends_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "episodes.jsonl").write_text("nonsense\n")
    with live.live_page(tmp_path, TASKS, "nano-chat", "r", 1, every_s=0.05):
        deadline = time.monotonic() + 60
        said = ""
        while "cannot be written" not in said and time.monotonic() < deadline:
            said += capfd.readouterr().err
            time.sleep(0.05)
    assert "line 1" in said
    assert said.count("cannot be written") == 1


def test_a_run_that_ends_at_once_starts_nothing(tmp_path: Path) -> None:
    began = time.monotonic()
    with live.live_page(tmp_path, [], "nano-chat", "r", 1):
        pass
    assert time.monotonic() - began < 30
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_end_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pages := tmp_path / "pages").mkdir(), (out := tmp_path / "out").mkdir()
    monkeypatch.setenv("TMPDIR", str(pages))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(live, "SERVER_END_S", 0.2)
    (pages / f"{live.PAGES}1-another").mkdir()
    with live.live_view(out, 0, [out]):
        deadline = time.monotonic() + 60
        while len(found := sorted(pages.glob(f"{live.PAGES}*-*"))) < 2:
            assert time.monotonic() < deadline, "no server started"
            time.sleep(0.05)
        (process,) = {path.name.split("-")[2] for path in found} - {"1"}
        os.kill(int(process), signal.SIGSTOP)
    assert [path.name for path in pages.iterdir()] == [f"{live.PAGES}1-another"]
