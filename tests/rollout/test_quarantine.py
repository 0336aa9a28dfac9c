"""A sandbox that does not come back clean: the environment's fault, never used again, the same episode once more."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import Blame, Episode, Outcome, Task
from lemur_ray.report.pages.whole_page import render_run
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool
from lemur_ray.sandbox import warm_pool
from lemur_ray.sandbox.sandbox import SandboxDestroyed, SandboxQuarantined, SandboxUnavailable, open_sandbox
from tests.e2e.boxes import box_task, sandboxes_of
from tests.rollout.scripted_policy import ScriptedPolicy


def play(out: Path, tasks: list[Task], policy: Any) -> list[Episode]:
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())
    with Ledger(out / "episodes.jsonl") as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        pool = ThreadPool(policy, 2)
        return run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)


def test_the_attempt_is_the_environments_fault_and_the_episode_is_played_elsewhere_with_the_same_seed(tmp_path: Path):
    run, mark = f"quarantine-{tmp_path}", tmp_path / "mark"
    tasks = [box_task("bad", run, length=2, reset_differs=True, mark=str(mark)), box_task("well", run, length=2)]
    bad, well = play(tmp_path, tasks, ScriptedPolicy(["right"]))
    assert (bad.outcome, bad.attempts, bad.score) == (Outcome.SOLVED, 2, 1.0)
    assert "attempt 1: env_error: " in bad.retried[0]
    assert "reset: a sandbox was put in quarantine: after a reset the tree hashes to" in bad.retried[0]
    assert (well.attempts, well.retried) == (1, ())
    assert (bad.quarantined, well.quarantined) == ((1,), ())
    drawn = mark.read_text().split()
    assert len(drawn) == 2, "each attempt has an environment and a sandbox of its own"
    assert drawn[0] == drawn[1], "the same seed"
    assert sandboxes_of(run) == {}

    records = [episode.to_json() for episode in (bad, well)]
    earlier = {name: value for name, value in records[0].items() if name != "quarantined"}
    assert [Episode.from_json(record) for record in (*records, earlier)] == [bad, well, bad], "also from the sentence"
    assert "quarantined" not in records[1]

    render_run(tmp_path)
    (retries,) = json.loads((tmp_path / "report.json").read_text())["retries"]
    assert retries["by_kind"] == {"sandbox in quarantine": 1}
    assert [(r["task"], r["attempt"]) for r in retries["each"]] == [("bad", 1)]
    assert "sandbox in quarantine" in (tmp_path / "index.html").read_text()


def test_one_that_never_comes_back_clean_is_missing_by_the_environments_blame(tmp_path: Path, monkeypatch: Any):
    opened = []

    def tampered(spec: Any, backend: str) -> Any:
        sandbox = open_sandbox(spec, backend)
        sandbox.first_hash = "of another tree"  # type: ignore[attr-defined]
        opened.append(sandbox)
        return sandbox

    monkeypatch.setattr(warm_pool, "open_sandbox", tampered)
    tree = tmp_path / "testbed"
    tree.mkdir()
    options = {"question": "List the files.", "gold": "ls /testbed", "trees": {"/testbed": str(tree)}}
    task = Task("intercode/bash", "fs1-0", "envs:lemur/InterCodeBash-v0", "fs_1", options, 3)
    (episode,) = play(tmp_path, [task], ScriptedPolicy(["ls"]))
    assert (episode.outcome, episode.blame, episode.score) == (Outcome.ENV_ERROR, Blame.ENV, None)
    assert episode.attempts == 3
    assert all("put in quarantine" in reason for reason in (*episode.retried, episode.detail))
    ended = [sandbox for sandbox in opened if isinstance(sandbox._end, SandboxQuarantined)]
    assert len(ended) == 3, "each attempt had one of its own, none of which was used again"


def test_a_sandbox_that_does_not_open_is_the_machines_fault():
    class Closed:
        def reset(self, seed: int, options: Any) -> Any:
            raise SandboxUnavailable("bubblewrap starts no sandbox: killed")

        def close(self) -> None:
            pass

    (spec,) = EpisodePlan(
        [box_task("t", "none")], epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits()
    )
    attempt = _played(spec, Closed())
    assert (attempt.outcome, attempt.score) == (Outcome.INFRA_LOST, None)
    assert "reset: bubblewrap starts no sandbox" in attempt.detail


@pytest.mark.parametrize(
    ("blame", "outcome"),
    [("infra", Outcome.INFRA_LOST), ("policy", Outcome.SANDBOX_DESTROYED), ("harness", Outcome.ENV_ERROR)],
)
def test_who_ended_a_sandbox_says_whether_that_is_scored(blame: Any, outcome: Outcome):
    class Ending:
        def reset(self, seed: int, options: Any) -> Any:
            return "go", {}

        def step(self, reply: str) -> Any:
            raise SandboxDestroyed("the sandbox was destroyed by the machine: EOF", blame)

        def close(self) -> None:
            pass

    task = box_task("t", "none")
    (spec,) = EpisodePlan([task], epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())
    attempt = _played(spec, Ending())
    assert (attempt.outcome, attempt.score) == (outcome, 0.0 if blame == "policy" else None)
    assert "step: the sandbox was destroyed" in attempt.detail


def _played(spec: EpisodeSpec, env: Any) -> Attempt:
    return run_episode(spec, ScriptedPolicy(["x"]), clock=time.monotonic, make_env=lambda env_id: env)
