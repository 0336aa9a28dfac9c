"""Recorded runs played again through the environment: grading, counters, count-downs, ends; slowly also the code."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envs.mint.benchmark import MintOptions
from envs.mint.comparison import COMPARISON
from envs.mint.recording import read_recording
from envs.mint.run_notes import mint_notes
from envs.mint.tasks import load_mint_tasks, replay_options
from lemur_ray.agents.replay import ReplayPolicy
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.report.agreement import Agreement, compare_recording, measure_agreement
from lemur_ray.report.paper_rows import had_invalid_action, saw_traceback
from lemur_ray.rollout.attempt import EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from tests.report.recorded_counts import counts_of_recording

REASONING = ("gsm8k", "math", "theoremqa", "hotpotqa", "mmlu")


def replay(
    data: Path, run: str, subset: str, *, strict: bool = False, limit: int = 0
) -> tuple[list[Episode], Agreement]:
    """Play a recorded run again in this process."""
    file = data / "mint" / "outputs" / run / f"{subset}.results.jsonl.gz"
    log = read_recording(file)
    options = {"grader": "mint-2023", **replay_options(file, log, strict=strict)}
    tasks = [task for task in load_mint_tasks(subset, data, options=options) if task.id in log.episodes][
        : limit or None
    ]
    policy = ReplayPolicy(log)

    def play(task: Task) -> Episode:
        spec = EpisodeSpec(EpisodeKey(task.benchmark, task.id, "replay", "r"), task, limits=EpisodeLimits(step_s=120.0))
        attempt = run_episode(spec, policy, clock=time.monotonic)
        return Episode(
            *(spec.key, task.category, attempt.outcome, attempt.score, 1, attempt.trajectory, attempt.wall_s),
            detail=attempt.detail,
            scores=attempt.scores,
        )

    with ThreadPoolExecutor(2) as pool:
        episodes = list(pool.map(play, tasks))
    return episodes, measure_agreement(episodes, log, COMPARISON)


def assert_exact(found: Agreement, episodes: int) -> None:
    counts = found.to_json()["agreement_counts"]
    assert found.missing == []
    assert found.differing == []
    assert counts["episodes"] == counts["same_counters"] == counts["same_terminate_reason"] == episodes
    assert counts["count_downs"] == counts["same_count_downs"]


@pytest.mark.parametrize("run", ["gpt-3.5-turbo-0613/F=None", "CodeLlama-34b-Instruct-hf/F=gpt-4-0613"])
@pytest.mark.parametrize("subset", REASONING)
def test_reasoning_runs_are_graded_counted_and_ended_as_recorded(data_dir: Path, run: str, subset: str) -> None:
    episodes, found = replay(data_dir, run, subset)
    assert_exact(found, len(episodes))
    assert len(episodes) == len(load_mint_tasks(subset, data_dir))


def test_the_graders_part_where_they_should(data_dir: Path) -> None:
    episodes, _ = replay(data_dir, "gpt-3.5-turbo-0613/F=None", "mmlu")
    notes = mint_notes(episodes)
    assert notes["graders"]["mint-2023"] == {"solved": 43, "scored": 76}
    assert notes["graders"]["strict"]["solved"] + len(notes["only_mint_2023"]) - len(notes["only_strict"]) == 43
    assert notes["only_mint_2023"]


@pytest.mark.parametrize("run", ["gpt-3.5-turbo-0613/F=None", "lemur-70b-chat-v1.even/F=None"])
def test_why_math_fails_is_counted_from_graded_episodes_as_from_the_log(data_dir: Path, run: str) -> None:
    episodes, found = replay(data_dir, run, "math")
    assert found.cells == {}, "what was not run agrees with nothing"
    log = counts_of_recording(data_dir / "mint" / "outputs" / run / "math.results.jsonl.gz")
    failed = [episode for episode in episodes if episode.outcome is not Outcome.SOLVED]
    assert (len(episodes), len(episodes) - len(failed)) == (log.n, log.solved)
    assert sum(map(saw_traceback, failed)) == log.with_traceback > 0
    assert sum(map(had_invalid_action, failed)) == log.with_invalid


def test_a_few_programs_are_graded_as_recorded(data_dir: Path) -> None:
    episodes, found = replay(data_dir, "gpt-3.5-turbo-0613/F=None", "humaneval", limit=6)
    assert_exact(found, len(episodes))


@pytest.mark.slow
@pytest.mark.parametrize("subset", ["gsm8k", "humaneval", "hotpotqa"])
def test_code_is_run_again_with_the_recorded_observations(data_dir: Path, subset: str) -> None:
    episodes, found = replay(data_dir, "lemur-70b-chat-v1.even/F=None", subset, strict=True, limit=10)
    assert_exact(found, len(episodes))
    assert found.cells["different"] <= 1, found.different_cells
    assert found.cells["search_exact"] >= found.cells["search_different"]


@pytest.mark.slow
def test_household_episodes_end_as_recorded_and_won_is_told_apart(data_dir: Path) -> None:
    episodes, found = replay(data_dir, "lemur-70b-chat-v1.even/F=None", "alfworld", limit=12)
    assert_exact(found, len(episodes))
    notes = mint_notes(episodes)
    assert notes["graders"]["strict"]["solved"] <= notes["graders"]["mint-2023"]["solved"]


@pytest.mark.slow
@pytest.mark.parametrize("subset", ["humaneval", pytest.param("mbpp", marks=pytest.mark.sweep)])
def test_every_recorded_program_is_graded_as_recorded(data_dir: Path, subset: str) -> None:
    """All four models, both settings: the target is 99.9 % over all subsets; nothing is known to differ here."""
    played, differing = 0, []
    for file in sorted((data_dir / "mint" / "outputs").glob(f"*/*/{subset}.results.jsonl.gz")):
        run = "/".join(file.parts[-3:-1])
        episodes, found = replay(data_dir, run, subset)
        played += len(episodes)
        differing += [f"{run} {task}" for task in found.differing]
        assert (found.missing, found.counts["same_count_downs"]) == ([], found.counts["count_downs"])
    assert played == {"humaneval": 316, "mbpp": 638}[subset]
    assert len(differing) <= played // 1000, differing


def test_tasks_that_were_worded_otherwise_are_replayed_and_named(data_dir: Path) -> None:
    """Only TheoremQA's 50, 51 and 52 differ from the data of today."""
    for subset, names in (("theoremqa", ["50", "51", "52"]), ("gsm8k", [])):
        file = data_dir / f"mint/outputs/Llama-2-70b-chat-hf/F=None/{subset}.results.jsonl.gz"
        benchmark = find(f"mint/{subset}")
        tasks = list(benchmark.load(MintOptions(), EvaluationRequest(data=data_dir, recording=file, mode="grading")))
        said = compare_recording(str(file), benchmark.details.recording_format, [], tasks)
        assert [one["task"] for one in said.get("reworded", [])] == names


def test_a_recording_of_another_subset_is_an_error(data_dir: Path) -> None:
    file = data_dir / "mint/outputs/Llama-2-70b-chat-hf/F=None/mbpp.results.jsonl.gz"
    with pytest.raises(ValueError, match=r"is not one of mint/humaneval|is of 'mbpp', not of mint/humaneval"):
        list(
            find("mint/humaneval").load(MintOptions(), EvaluationRequest(data=data_dir, recording=file, mode="grading"))
        )
