"""jobs/report.py as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from report_samples import alfworld, write_corpus, write_ledger, write_run

from lemur_ray.report.inputs import ReportJob
from lemur_ray.report.pages.whole_page import render_report
from lemur_ray.rollout.evaluation_folder import EvaluationError
from lemur_ray.storage.file_system import file_system
from tests.storage.bucket_server import Service
from tests.storage.conftest import google  # noqa: F401  # a fixture

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
    alone = report(home, "--episodes", "episodes/alfworld-text-nano-chat", "--out", "alone")
    assert alone.returncode == 0, alone.stderr
    assert "run-nano" not in (home / "alone/index.html").read_text(), "only what is named"
    assert "missing:" not in alone.stdout, "evaluations alone need no training"
    assert json.loads(alone.stdout.splitlines()[-1])["missing"] == []
    assert json.loads(line)["agents"][0]["n"] == 12


def test_without_an_episode_the_job_fails_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    done = report(tmp_path / "home")
    assert done.returncode == 1
    assert "jobs/agent_eval.py" in done.stderr


def test_a_named_folder_without_a_ledger_is_an_error_and_one_that_has_only_begun_is_not(tmp_path: Path) -> None:
    done, begun = write_ledger(tmp_path / "mine", alfworld("expert", 1.0, 1, per_kind=1)), tmp_path / "begun"
    begun.mkdir()
    (begun / "episodes.jsonl").touch()
    both = (str(done), str(begun))
    _, episodes, _ = ReportJob(episodes=both).folders()
    numbers = render_report(tmp_path / "page", runs=[], episodes=episodes, corpus=None)
    assert [line.split("/")[-1] for line in numbers["missing_requested"]] == [
        "episodes.jsonl holds no finished episode"
    ]
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "typo", tmp_path / "empty"):
        with pytest.raises(EvaluationError, match=f"{folder} has no episodes.jsonl: give the folder"):
            ReportJob(episodes=(*both, str(folder))).folders()


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


def test_runs_corpus_and_episodes_may_lie_in_a_bucket_and_are_named_by_where_they_lie(
    google: Service,  # noqa: F811
    tmp_path: Path,
    lemur_home: Path,
) -> None:
    write_ledger(tmp_path / "there/suite/alfworld", alfworld("nano-chat", 0.6, 1, per_kind=2))
    write_run(tmp_path / "there/runs/nano", steps=40)
    write_corpus(tmp_path / "there/corpus")
    fs, _ = file_system("gs://bucket")
    fs.put(f"{tmp_path}/there/", "bucket/all/", recursive=True)
    google.objects.put("bucket", "all/runs/nano/checkpoints/40/state/large", b"", {})
    named = ReportJob(
        runs=("gs://bucket/all/runs/nano",), episodes=("gs://bucket/all/suite",), corpus="gs://bucket/all/corpus"
    )
    runs, episodes, corpus = named.folders()
    assert [folder.name for folder in episodes] == ["alfworld"], "of a suite its benchmarks"
    assert not list(lemur_home.rglob("large"))
    numbers = render_report(tmp_path / "page", runs=runs, episodes=episodes, corpus=corpus)
    assert numbers["training"][0]["folder"] == "gs://bucket/all/runs/nano"
    assert numbers["training"][0]["name"] == "nano"
    assert numbers["corpus"]["folder"] == "gs://bucket/all/corpus"
    assert numbers["agents"][0]["overall"]["success"]["n"] == 12
    assert str(lemur_home) not in (tmp_path / "page/index.html").read_text()
    fs.rm_file("bucket/all/runs/nano/result.json")
    again = ReportJob(runs=named.runs, episodes=(str(tmp_path / "there/suite"),)).folders()
    assert again[1] == [tmp_path / "there/suite/alfworld"]
    unfinished = render_report(tmp_path / "page", runs=again[0], episodes=again[1], corpus=None)
    assert "run gs://bucket/all/runs/nano: not finished (no result.json)" in " ".join(unfinished["missing"])
