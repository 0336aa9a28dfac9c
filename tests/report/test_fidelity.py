"""The table of replayed runs: runs are found by name, goals are asked of all runs they are about together."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.recorded_runs import goals, recorded_runs
from lemur_ray.report.fidelity import FidelityConfig, counts_of, fidelity
from lemur_ray.report.pages.fidelity_page import summary, write_fidelity
from lemur_ray.rollout.evaluation_folder import default_out

GOALS = goals()
UNDER = FidelityConfig(data="somewhere").under
MINT = {"state": {"history": []}, "task": {}}


def put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(value).encode()))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    outputs = tmp_path / "mint/outputs"
    put(outputs / "lemur-70b/F=None/gsm8k.results.jsonl.gz", MINT)
    put(outputs / "lemur-70b/F=gpt-4-0613/mbpp.results.jsonl.gz", MINT)
    put(outputs / "gpt-3.5/F=None/alfworld.results.jsonl.gz", MINT)
    put(tmp_path / "mint/tasks/gsm8k.test_prompts.jsonl.gz", {"id": 0})
    logs = tmp_path / "intercode/logs"
    put(logs / "sql/vicuna/ic_sql_multiturn_vicuna_10_turns.json.gz", {})
    put(logs / "sql/gpt-3.5/ic_sql_multiturn_gpt-3.5_10_turns_handicap.json.gz", {})
    put(logs / "bash/gpt-3.5/ic_bash_multiturn_gpt-3.5_10_turns_fs_1.json.gz", {})
    put(logs / "bash/gpt-3.5/ic_bash_react_10_turns_fs_1.json.gz", {})
    put(logs / "ctf/gpt-4/ic_ctf_multiturn_gpt-4_10_turns.json.gz", {})
    return tmp_path


def test_runs_are_found_with_the_flags_that_their_names_ask_for(data: Path) -> None:
    runs = {run.name: run for run in recorded_runs(data)}
    assert len(runs) == 8
    assert runs["intercode/logs/sql/vicuna/ic_sql_multiturn_vicuna_10_turns"].flags == ("--reward", "tau")
    handicap = runs["intercode/logs/sql/gpt-3.5/ic_sql_multiturn_gpt-3.5_10_turns_handicap"]
    assert handicap.flags == ("--reward", "iou", "--handicap")
    assert runs["intercode/logs/bash/gpt-3.5/ic_bash_multiturn_gpt-3.5_10_turns_fs_1"].flags == ("--compat",)
    assert runs["intercode/logs/ctf/gpt-4/ic_ctf_multiturn_gpt-4_10_turns"].mode == "grading"
    strict = [run for run in runs.values() if run.benchmark.startswith("mint/") and run.mode == "strict"]
    assert [run.name for run in strict] == ["mint/outputs/lemur-70b/F=None/gsm8k.results (strict)"]
    assert len({run.folder for run in runs.values()}) == 8
    assert len(list(recorded_runs(data, strict="none"))) == 7
    with pytest.raises(FileNotFoundError, match="LEMUR_DATA"):
        next(recorded_runs(data / "nowhere"))


def test_goals_count_all_runs_together_and_a_missing_episode_against_them(data: Path) -> None:
    alike = {"episodes": 999, "same_success": 999, "same_counters": 999, "same_terminate_reason": 999}
    alike |= {"count_downs": 5, "same_count_downs": 5}
    runs = [run for run in recorded_runs(data, strict="none") if run.benchmark.startswith("mint/")]
    results: list[Any] = [(run, {"agreement_counts": alike}) for run in runs]
    reached = {goal["goal"]: goal["reached"] for goal in fidelity(results, GOALS, UNDER)["goals"]}
    assert reached["MINT graded again: solved alike"] is True
    assert reached["CTF: rewards alike"] is None
    results[0] = (runs[0], {"agreement_counts": alike, "missing": 4})
    found = fidelity(results, GOALS, UNDER)
    goal = next(goal for goal in found["goals"] if goal["goal"] == "MINT graded again: solved alike")
    assert (goal["equal"], goal["of"], goal["reached"]) == (2997, 3001, False)


def test_the_first_episodes_of_runs_reach_and_miss_no_goal(data: Path, tmp_path: Path) -> None:
    run = next(run for run in recorded_runs(data) if run.benchmark == "intercode/bash")
    for same in (0, 3):
        counts = {"agreement_counts": {"episodes": 3, "same_success": same}}
        found = fidelity([(run, counts)], GOALS, UNDER, whole_runs=False)
        assert [goal["reached"] for goal in found["goals"]] == [None] * len(found["goals"])
        (goal,) = [g for g in found["goals"] if g["goal"].startswith("Bash")]
        assert (goal["share"], goal["of"]) == (same / 3, 3)
        assert "not asked of parts of runs (--limit)" in summary(found)
    assert write_fidelity(found, tmp_path).is_file()


@pytest.mark.parametrize(("sandbox", "reached"), [("bwrap", True), ("docker", False)])
def test_a_goal_depends_on_the_sandbox_in_which_it_was_played(data: Path, sandbox: Any, reached: bool) -> None:
    config = FidelityConfig(data=str(data), sandbox=sandbox)
    run = next(run for run in recorded_runs(data) if run.benchmark == "intercode/bash")
    assert config.arguments(["sandbox", "rootfs"])[6:8] == ["--sandbox", sandbox]
    assert "--sandbox" not in config.arguments(["engine"])
    counts = {"agreement_counts": {"episodes": 1000, "same_success": 925}}
    (goal,) = [g for g in fidelity([(run, counts)], GOALS, config.under)["goals"] if g["goal"].startswith("Bash")]
    assert goal["reached"] is reached


def test_cells_of_a_strict_replay_are_those_without_search() -> None:
    kinds = {"exact": 90, "normalised": 4, "same_error": 3, "different": 3, "search_different": 7, "answer_equal": 5}
    counts = counts_of({"agreement_counts": {"episodes": 1}, "observation_counts": kinds})
    assert (counts["same_cells"], counts["cells"]) == (97, 100)


def test_the_table_is_written_in_three_forms(data: Path, tmp_path: Path) -> None:
    run = next(recorded_runs(data))
    counts = {"episodes": 2, "same_success": 1, "turns": 4, "same_reward": 4, "recorded_solved": 1, "solved": 0}
    found = fidelity(
        [(run, {"agreement_counts": counts, "differing": ["fs1-3"]}), (run, {"error": "torn"})], GOALS, UNDER
    )
    page = write_fidelity(found, tmp_path)
    assert json.loads((tmp_path / "fidelity.json").read_text())["runs"][0]["agreement"] == 0.5
    assert "fs1-3" in page.read_text()
    assert "| torn |" in (tmp_path / "fidelity.md").read_text()
    assert "MISSED" in summary(found)


def test_folders_of_replayed_models_are_usable_names_and_kept_apart() -> None:
    recordings = find("mint/gsm8k").details.recording_format
    labels = [
        PolicySpec.parse(f"replay:/d/mint/outputs/{model}/{setting}/gsm8k.results.jsonl.gz", "", recordings).label
        for model in ("gpt-3.5-turbo-0613", "Llama-2-70b-chat-hf")
        for setting in ("F=None", "F=gpt-4-0613")
    ]
    folders = [default_out("mint/gsm8k", label) for label in labels]
    assert folders[0] == "episodes/mint-gsm8k-replay-gpt-3.5-turbo-0613-F-None"
    assert len(set(folders)) == 4


def test_a_configuration_without_data_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEMUR_DATA", raising=False)
    with pytest.raises(ValueError, match="--data DIR"):
        FidelityConfig()
