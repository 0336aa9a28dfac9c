"""jobs/report.py as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from report_samples import alfworld, write_corpus, write_ledger, write_run

ROOT = Path(__file__).resolve().parents[2]


def report(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LEMUR_HOME": str(home)}
    env.pop("PYTHONPATH", None)
    command = [sys.executable, str(ROOT / "jobs/report.py"), *args]
    return subprocess.run(command, env=env, cwd=home.parent, capture_output=True, text=True)


def test_the_job_finds_everything_under_the_home_and_prints_path_and_json(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_ledger(home / "episodes/alfworld-text-nano-chat", alfworld("nano-chat", 0.6, 1, per_kind=2))
    write_run(home / "runs/nano", steps=40)
    write_run(home / "runs/nano-chat", steps=40, chat=True)
    write_corpus(home / "corpus/embedded")
    done = report(home)
    assert done.returncode == 0, done.stderr
    *_, path, line = done.stdout.splitlines()
    assert Path(path) == home / "report/index.html"
    assert Path(path).is_file()
    assert json.loads(line)["missing"] == []
    assert json.loads(line)["agents"][0]["n"] == 12


def test_without_an_episode_the_job_fails_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    done = report(tmp_path / "home")
    assert done.returncode == 1
    assert "jobs/agent_eval.py" in done.stderr


def test_folders_can_be_named_and_a_wrong_flag_names_the_right_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ledger = write_ledger(tmp_path / "mine", alfworld("expert", 1.0, 1, per_kind=1))
    done = report(home, "--episodes", str(ledger), "--out", str(tmp_path / "page"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page/index.html").is_file()
    wrong = report(home, "--episode", str(ledger))
    assert wrong.returncode == 2
    assert "--episodes" in wrong.stderr


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    ledger = write_ledger(tmp_path / "mine", alfworld("expert", 1.0, 1, per_kind=1))
    (tmp_path / "file").write_text("")
    done = report(tmp_path / "home", "--episodes", str(ledger), "--out", str(tmp_path / "file" / "page"))
    assert done.returncode == 1
    assert "file/page is not writable" in done.stderr
    assert "choose another folder" in done.stderr
