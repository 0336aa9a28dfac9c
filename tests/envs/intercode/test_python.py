"""InterCode-Python: what is run, what is submitted, what it is worth, and what the recorded run says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from envs.intercode.benchmark import BENCHMARKS, CodeOptions
from envs.intercode.recording import read_recording, recorded_with
from envs.intercode.tasks import load_python_tasks, name_under_test
from lemur_ray.agents.replay import ReplayPolicy
from lemur_ray.agents.trajectory import Episode, EpisodeKey
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.report.agreement import measure_agreement
from lemur_ray.rollout.attempt import EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.episode import run_episode

TASK = {"question": "Double a number.", "name": "twice", "tests": ["assert twice(2) == 4", "assert twice(0) == 0"]}
LOG = "intercode/logs/python/gpt-3.5/ic_python_multiturn_gpt-3.5_7_turns.json.gz"


@pytest.fixture
def env() -> Iterator[Any]:
    made = gymnasium.make("envs:lemur/InterCodePython-v0", disable_env_checker=True)
    yield made
    made.close()


def test_code_is_run_and_a_def_is_tested_whatever_it_is_called(env: Any) -> None:
    env.reset(options=TASK)
    observation, reward, *_ = env.step("```python\nfactor = 2\nprint('hello')\n```")
    assert ("hello" in observation, reward) == (True, 0.0)
    assert env.step("def f(x): return 4")[1] == 0.5
    _, reward, terminated, _, info = env.step("def double(x): return factor * x")
    assert (reward, terminated, info["solved"]) == (1.0, True, True)


def test_a_def_that_does_not_compile_is_worth_one_upstream_and_nothing_here(env: Any) -> None:
    env.reset(options=TASK)
    assert env.step("def f(x) return 4")[1] == 0.0
    env.reset(options={**TASK, "compat": True})
    assert env.step("def f(x) return 4")[1] == 1.0


def test_a_submission_cannot_fake_its_verdict(env: Any) -> None:
    env.reset(options=TASK)
    fake = "def f(x):\n    class A:\n        __eq__ = lambda s, o: True\n    return A()"
    assert env.step(fake)[1] == 0.0
    assert env.step("def f(x):\n    import os; os._exit(0)")[1] == 0.0
    assert env.step("")[4]["valid"] is False


def test_every_question_names_the_function_that_its_tests_call(data_dir: Path) -> None:
    tasks = load_python_tasks(data_dir)
    assert len(tasks) == 974
    assert tasks[0].options["name"] == "min_cost"
    assert name_under_test("def a(): pass\ndef b(): pass", ["assert a() == 1"]) == "a"


def replayed(data: Path, limit: int) -> tuple[list[Episode], Any]:
    file = data / LOG
    tasks = list(BENCHMARKS["python"].load(CodeOptions(), EvaluationRequest(data, recording=file)))[: limit or None]
    policy, episodes = ReplayPolicy(read_recording(file), "replay"), []
    for task in tasks:
        spec = EpisodeSpec(EpisodeKey(task.benchmark, task.id, "replay", "r"), task, limits=EpisodeLimits(step_s=120.0))
        attempt = run_episode(spec, policy, clock=time.monotonic)
        assert attempt.score is not None, attempt.detail
        episodes.append(
            Episode(spec.key, task.category, attempt.outcome, attempt.score, 1, attempt.trajectory, attempt.wall_s)
        )
    return episodes, measure_agreement(episodes, policy.recording, recorded_with().comparison)


def test_the_first_recorded_episodes_end_as_recorded(data_dir: Path) -> None:
    episodes, found = replayed(data_dir, 6)
    assert (len(episodes), found.differing) == (6, [])


@pytest.mark.sweep
def test_the_recorded_run_is_solved_alike(data_dir: Path) -> None:
    episodes, found = replayed(data_dir, 0)
    assert len(episodes) == 117
    # Of 17, 29 and 55 upstream refused functions that pass their tests; of 73 it did not count a `def` that does not
    # compile, as it did elsewhere.
    assert set(found.differing) <= {"python-17", "python-29", "python-55", "python-73"}
