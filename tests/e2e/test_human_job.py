"""A person plays: replies come from standard input, and its end leaves a run that the same command goes on with."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lemur_ray.agents.baselines.human import HumanPolicy
from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger, read_episodes
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool
from tests.conftest import ROOT
from tests.rollout.toy import toy_task


def test_a_person_who_leaves_stops_the_run_and_nothing_of_the_episode_is_written(tmp_path: Path):
    left = ["right\n"] * 4
    policy = HumanPolicy(lambda: left.pop(0) if left else "", io.StringIO())
    tasks = [toy_task(f"t{i}", length=3) for i in range(3)]
    plan = EpisodePlan(tasks, epochs=1, policy="human", recipe="r", sampling=Sampling(), limits=EpisodeLimits())
    path = tmp_path / "episodes.jsonl"
    with Ledger(path) as ledger, pytest.raises(KeyboardInterrupt):
        run_episodes(
            plan, ThreadPool(policy, 1), ledger,
            retries=RetryPolicy(), progress=Progress(io.StringIO(), time.monotonic), clock=time.monotonic,
        )  # fmt: skip
    (episode,) = read_episodes(path)
    assert (episode.key.task, episode.outcome) == ("t0", Outcome.SOLVED)


def test_the_job_takes_replies_from_standard_input_and_resumes_after_its_end(tmp_path: Path):
    def job(said: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "jobs" / "agent_eval.py"), "--benchmark", "intercode/sql", "--data", ""]
        command += ["--policy", "human", "--limit", "3", "--out", str(tmp_path / "out")]
        environment = {**os.environ, "LEMUR_HOME": str(tmp_path / "home")}
        return subprocess.run(command, input=said, capture_output=True, text=True, env=environment, timeout=300)

    first = job("```sql\nSHOW TABLES\n```\nskip\nSHOW TABLES\n")
    assert first.returncode == 130, first.stderr
    assert "the same command goes on where it left off" in first.stderr
    assert "You" in first.stderr or "SQL" in first.stderr, "the conversation is shown"
    (episode,) = read_episodes(tmp_path / "out" / "episodes.jsonl")
    assert [step.action for step in episode.trajectory.steps] == ["SHOW TABLES", "skip"]
    second = job("skip\nskip\n")
    assert second.returncode == 0, second.stderr
    assert "resuming: 1 of 3 episodes" in second.stderr
    assert len(read_episodes(tmp_path / "out" / "episodes.jsonl")) == 3
