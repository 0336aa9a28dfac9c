"""InterCode-SQL on Spider's databases: golds, and recorded runs through the ordinary evaluation."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.intercode.sql.engine import Rows
from envs.intercode.sql.sql_env import open_database
from envs.intercode.sql.tasks import load_spider_tasks
from tests.conftest import ROOT
from tests.envs.intercode.mariadb_server import running

LOGS = "intercode/logs/sql"
GPT = "gpt-3.5/ic_sql_multiturn_gpt-3.5_10_turns_handicap.json.gz"
VICUNA = "vicuna/ic_sql_multiturn_vicuna_10_turns.json.gz"
BISON = "text-bison-001/ic_sql_multiturn_text-bison-001_10_turns_handicap.json.gz"


@pytest.fixture
def replay(
    data_dir: Path,
    lemur_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Any]:
    """Runs ``jobs/agent_eval.py`` on a recorded file; returns what it prints last."""
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    job = importlib.import_module("agent_eval")

    def run(log: str, reward: str, *more: str) -> dict[str, Any]:
        argv = ["--benchmark", "intercode/sql", "--policy", f"replay:{data_dir / LOGS / log}", "--data", str(data_dir)]
        argv += ["--actors", "0", "--in-flight", "8", "--reward", reward, "--out", str(tmp_path / "out"), *more]
        assert job.main(argv) == 0
        return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))

    yield run
    for name in ("agent_eval", "_path"):
        sys.modules.pop(name, None)


def test_six_golds_are_no_mysql_and_every_other_one_has_an_answer(data_dir: Path, tmp_path: Path):
    tasks = load_spider_tasks(data_dir, scratch=tmp_path)
    everything = load_spider_tasks(data_dir, scratch=tmp_path, compat=True)
    assert (len(tasks), len(everything)) == (1028, 1034)
    refused = {int(task.id.rpartition("-")[2]) for task in everything if task.options["gold_refused"]}
    assert refused == {164, 178, 225, 531, 638, 802}
    empty = 0
    for name in {task.options["database"] for task in tasks}:
        database = open_database({"database": name})
        for task in tasks:
            if task.options["database"] == name:
                gold = database.execute(task.options["gold"])
                assert isinstance(gold, Rows), (task.id, gold)
                empty += not gold.rows
        database.close()
    assert empty < 100
    assert sum(task.id.startswith("spider-wta_1-") for task in tasks) == 62


def test_a_part_of_each_recording_agrees(replay: Any):
    printed = replay(GPT, "iou", "--limit", "60", "--sample", "first")
    assert (printed["n"], printed["missing"]) == (60, 0)
    assert printed["agreement"] == printed["reward_agreement"] == 1.0
    assert printed["agreement_counts"]["episodes"] == 60


def test_recorded_results_are_graded_without_running_the_queries(replay: Any):
    printed = replay(GPT, "iou", "--limit", "60", "--sample", "first", "--replay", "grading")
    # The recorded rows are MySQL's and the gold's are SQLite's: where a LIMIT cuts a tie they may differ.
    assert printed["agreement"] >= 0.95
    assert printed["reward_agreement"] >= 0.97


@pytest.mark.parametrize(
    ("log", "reward", "target"),
    [
        pytest.param(GPT, "iou", 0.989, marks=pytest.mark.sweep),
        pytest.param(VICUNA, "tau", 0.99, marks=pytest.mark.sweep),
        pytest.param(BISON, "iou", 0.99, marks=pytest.mark.sweep),
    ],
)
def test_whole_recordings_agree_on_sqlite(replay: Any, log: str, reward: str, target: float):
    assert replay(log, reward)["agreement"] >= target


@pytest.mark.parametrize(
    ("log", "reward", "target"),
    [
        pytest.param(GPT, "iou", 0.993, marks=pytest.mark.slow),
        pytest.param(VICUNA, "tau", 0.998, marks=pytest.mark.sweep),
        pytest.param(BISON, "iou", 0.990, marks=pytest.mark.sweep),
    ],
)
def test_whole_recordings_agree_on_mariadb(replay: Any, log: str, reward: str, target: float):
    with running() as url:
        printed = replay(log, reward, "--engine", url)
    assert printed["agreement"] >= target, printed
    if log == GPT:
        assert abs(printed["success_rate"] - 0.7282) <= 0.002


def test_a_recording_needs_the_data_it_was_made_on(replay: Any, data_dir: Path, capsys: pytest.CaptureFixture[str]):
    job = importlib.import_module("agent_eval")
    argv = ["--benchmark", "intercode/sql", "--actors", "0", "--policy", f"replay:{data_dir / LOGS / GPT}"]
    assert job.main([*argv, "--data", ""]) == 1
    assert "--data DIR" in capsys.readouterr().err
    assert job.main([*argv, "--data", "/nowhere"]) == 1
    said = capsys.readouterr().err
    assert "/nowhere/intercode/sql/ic_spider_dev.json.gz: not there (about 1.0 MB, licence: CC BY-SA 4.0)" in said
    assert "python jobs/fetch_data.py intercode/sql --data /nowhere" in said
