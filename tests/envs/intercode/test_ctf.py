"""InterCode-CTF: tasks, submissions and recorded submissions."""

import gzip
import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from envs.intercode.benchmark import BENCHMARKS, CodeOptions
from envs.intercode.recording import read_recording, recorded_with
from envs.intercode.tasks import CORRECTED_GOLDS, NOT_OFFLINE, load_ctf_tasks
from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.replay import ReplayPolicy
from lemur_ray.agents.trajectory import EpisodeKey, Outcome
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.report.agreement import measure_agreement
from lemur_ray.rollout.attempt import EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from lemur_ray.rollout.runner import episode_of
from lemur_ray.rollout.schedule.retries import AttemptHistory

ENV = "envs:lemur/InterCodeCTF-v0"


def started(**options: Any) -> Any:
    env = gymnasium.make(ENV, disable_env_checker=True)
    env.reset(options={"question": "Where?", "gold": "picoCTF{AbC}", **options})
    return env


@pytest.fixture
def graded(tmp_path: Path) -> Any:
    """An environment that runs nothing: ten recorded turns."""
    history = {"actions": ["ls"] * 10, "observations": ["flag.txt"] * 10, "rewards": [0] * 10}
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"0": {"query": "Where?", "turn_history": history}}))
    env = started(recorded="grading", recording=str(path), index=0)
    yield env
    env.close()


@pytest.mark.parametrize(
    ("action", "reward", "solved", "valid"),
    [
        ("submit picoCTF{AbC}", 1.0, True, True),
        ("submit PICOctf{abc} and more", 1.0, True, True),
        ("submit   picoctf{abc}", 1.0, True, True),
        ("submit picoCTF{AbD}", 0.0, False, True),
        ("submit picoCTF{AbC", 0.0, False, True),
        ("submit", 0.0, False, False),
        ("", 0.0, False, False),
        ("ls", 0.0, False, True),
        ("echo picoCTF{AbC}", 0.0, False, True),
    ],
)
def test_only_a_submission_of_the_flag_is_worth_anything(
    graded: Any, action: str, reward: float, solved: bool, valid: bool
):
    _, got, terminated, _, info = graded.step(action)
    assert (got, terminated, info["solved"], info["valid"]) == (reward, solved, solved, valid)


def test_a_wrong_flag_does_not_end_the_episode_and_skip_does(graded: Any):
    assert graded.step("submit no")[2] is False
    assert graded.step("ls")[0] == "flag.txt"
    _, _, terminated, _, info = graded.step("skip")
    assert (terminated, info["outcome"]) == (True, "failed")


def test_seventy_six_tasks_are_offline_and_the_wrong_gold_is_corrected(data_dir: Path, tmp_path: Path):
    offline = load_ctf_tasks(data_dir, scratch=tmp_path, files=False)
    everything = load_ctf_tasks(data_dir, scratch=tmp_path, files=False, compat=True)
    assert (len(offline), len(everything), len(NOT_OFFLINE)) == (76, 100, 24)
    assert sum(task.options["offline"] for task in everything) == 76
    assert {task.category for task in everything} == {
        "General Skills",
        "Reverse Engineering",
        "Cryptography",
        "Forensics",
        "Binary Exploitation",
        "Web Exploitation",
    }
    golds, published = ({task.id: task.options["gold"] for task in tasks} for tasks in (offline, everything))
    differing = {int(name.split("-")[1]) for name in golds if golds[name] != published[name]}
    assert differing == set(CORRECTED_GOLDS) == {15}
    assert golds["ctf-5"] == golds["ctf-90"]


def test_assets_come_without_solutions(data_dir: Path, tmp_path: Path):
    tasks = load_ctf_tasks(data_dir, scratch=tmp_path)
    with_files = [task for task in tasks if task.options["assets"]]
    assert len(with_files) >= 60
    assert not [path for path in tmp_path.rglob("*") if path.name == "solution"]


def test_recorded_submissions_are_graded_as_they_were(data_dir: Path, tmp_path: Path):
    """A log in upstream's format: right and wrong flags, commands, and an episode that was given up."""
    tasks = json.loads(gzip.decompress((data_dir / "intercode/ctf/ic_ctf.json.gz").read_bytes()))
    log = {}
    for task in tasks:
        number, gold = task["task_id"], task["gold"]
        actions = ["ls", "submit picoCTF{wrong}", f"submit {gold.upper() if number % 3 else gold}"][
            : 3 - number % 5 // 4
        ]
        rewards = [0, 0, 1][: len(actions)]
        observations = ["flag.txt\n", "no", "yes"][: len(actions)]
        history = {"actions": actions, "observations": observations, "rewards": rewards}
        log[str(number)] = {"query": task["query"], "turn_history": history, "summary": {"max_reward": max(rewards)}}
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    found = BENCHMARKS["ctf"].load(CodeOptions(), EvaluationRequest(data_dir, recording=path, mode="grading"))
    policy = ReplayPolicy(read_recording(path), "replay:log.json")
    episodes = []
    for task in found:
        spec = EpisodeSpec(EpisodeKey(task.benchmark, task.id, policy.name, "r"), task, Sampling())
        attempt = run_episode(spec, policy, clock=lambda: 0.0)
        episodes.append(episode_of(spec, attempt, AttemptHistory(), ""))
    agreed = measure_agreement(episodes, policy.recording, recorded_with().comparison)
    assert agreed.episodes == agreed.same_success == 100
    assert (
        agreed.counts["turns"]
        == agreed.counts["same_reward"]
        == sum(len(e["turn_history"]["actions"]) for e in log.values())
    )
    assert {episode.outcome for episode in episodes} == {Outcome.SOLVED, Outcome.TURN_LIMIT}


def test_a_challenge_is_played_in_a_sandbox_where_its_file_lies(tmp_path: Path):
    (tmp_path / "flag").write_text("hidden AbC\n")
    env = started(assets=str(tmp_path), number=7)
    try:
        assert "hidden AbC" in env.step("Action: cat flag")[0]
        assert "/ctf/7" in env.step("pwd")[0]
        assert env.step("""python3 -c "print(open('flag').read()[::-1])" """)[0].startswith("\nCbA")
        assert env.step('python3 -c "unclosed')[4]["valid"] is False
        assert env.step("submit picoCTF{abc}")[1] == 1.0
    finally:
        env.close()
