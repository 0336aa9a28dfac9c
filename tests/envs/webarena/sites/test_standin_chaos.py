"""Sites and browsers that are killed in mid-episode: each episode ends once, blamed, played again on restored sites."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.webarena.browser.host import shared_host
from envs.webarena.sites import standin_env
from envs.webarena.sites.benchmark_standin import STANDIN, StandinOptions
from envs.webarena.sites.standin_sites import StandinSites
from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import ChatReply, ChatRequest, Sampling
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool
from tests.envs.webarena.sites.conftest import installed, shared

pytestmark = [pytest.mark.slow, pytest.mark.sweep]  # the slow tier has tests/e2e/test_chaos_cluster.py
OPTIONS = StandinOptions(without="shop,forum,cms,trac")


@pytest.fixture
def sites(
    browser: None, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StandinSites]:
    """Those that episodes of this process play on."""
    installed("wiki")
    monkeypatch.setenv("LEMUR_HOME", str(shared(tmp_path_factory)))
    standin_env.standin_sites.cache_clear()
    made = standin_env.standin_sites(OPTIONS.site_copies, OPTIONS.seed_of_sites)
    yield made
    made.close()
    standin_env.standin_sites.cache_clear()


class Saboteur(ExpertPolicy):
    """Plays as the expert does; at its third reply it kills all sites, at its eighth the browser."""

    def __init__(self, sites: StandinSites) -> None:
        self._sites = sites
        self.replies, self.killed = 0, list[str]()

    def reply(self, request: ChatRequest) -> ChatReply:
        self.replies += 1
        if self.replies == 3:
            for site in self._sites.processes():
                os.killpg(site.pid, signal.SIGKILL)
            self.killed.append("sites")
        if self.replies == 8:
            shared_host().kill()
            self.killed.append("browser")
        return super().reply(request)


def test_every_episode_ends_once_and_is_solved_although_sites_and_browser_were_killed(
    sites: StandinSites, tmp_path: Path
) -> None:
    tasks = list(STANDIN.load(OPTIONS, EvaluationRequest()))[:6]
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())
    policy = Saboteur(sites)
    with Ledger(tmp_path / "episodes.jsonl") as ledger:
        progress, pool = Progress(io.StringIO(), time.monotonic), ThreadPool(policy, 2)
        episodes = run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
        pool.close()
    assert policy.killed == ["sites", "browser"]
    assert [episode.key.task for episode in episodes] == [task.id for task in tasks]
    assert [episode.score for episode in episodes] == [1.0] * len(tasks)
    lost = [reason for episode in episodes for reason in episode.retried]
    assert lost
    assert all("infra_lost" in reason for reason in lost), lost
    assert len((tmp_path / "episodes.jsonl").read_text().splitlines()) >= len(tasks)
    folders = [site.folder for site in sites.processes()]
    sites.close()
    assert not any(folder.exists() for folder in folders)
