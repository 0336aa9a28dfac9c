"""An actor and a node are killed in mid-episode: every episode ends once, on restored sites; nothing of ours stays."""

from __future__ import annotations

import io
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import ray

from envs.webarena.sites.benchmark_standin import STANDIN, StandinOptions
from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import Blame
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.rollout.actors.on_ray import RayPool
from lemur_ray.rollout.actors.pool import PoolLimits
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger, read_episodes
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.sandbox.backends import slots
from tests.e2e.processes import command_line, descendants, kill_hard
from tests.e2e.test_chaos_cluster import Cluster, cluster
from tests.envs.webarena.sites.conftest import installed, shared

__all__ = ["cluster"]
OPTIONS = StandinOptions(without="shop,forum,cms,trac")
OURS = ("chrom", "php", "playwright")


class Saboteur(threading.Thread):
    """Kills an actor once some episodes have ended, and later a node; notes what was beneath them."""

    def __init__(self, cluster: Cluster, ledger: Path) -> None:
        super().__init__(daemon=True)
        self.cluster, self.ledger = cluster, ledger
        self.beneath: dict[int, int] = {}
        self.done: list[str] = []

    def run(self) -> None:
        self._after(2)
        self._look()
        kill_hard(self._actors()[0])
        self.done.append("actor")
        self._after(6)
        self._look()
        self.cluster.kill_a_node_that_plays()
        self.done.append("node")

    def _after(self, number: int) -> None:
        """So many have ended, and whoever is to be killed has a browser."""
        while not self.ledger.is_file() or self.ledger.read_bytes().count(b"\n") < number:
            time.sleep(0.1)
        while not all(any("chrom" in line for line in descendants(pid).values()) for pid in self._actors()):
            time.sleep(0.1)

    def _actors(self) -> list[int]:
        nodes = [self.cluster.raylet(node) for node in (self.cluster.ray.head_node, *self.cluster.others)]
        return [pid for node in nodes for pid, line in descendants(node).items() if line.startswith("ray::_Actor")]

    def _look(self) -> None:
        for actor in self._actors():
            for pid, line in descendants(actor).items():
                if any(name in line for name in OURS) and (start := slots.start_time(pid)) is not None:
                    self.beneath[pid] = start

    def alive(self) -> list[str]:
        return [command_line(pid) for pid, start in self.beneath.items() if slots.start_time(pid) == start]


@pytest.fixture
def golden(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the nodes find golden copies; asked for before the nodes are."""
    installed("wiki")
    monkeypatch.setenv("LEMUR_HOME", str(shared(tmp_path_factory)))


@pytest.mark.sweep
@pytest.mark.timeout(1200)
def test_episodes_survive_a_killed_actor_and_a_killed_node_and_leave_no_site_and_no_browser(
    golden: None, cluster: Cluster, tmp_path: Path
) -> None:
    tasks = list(STANDIN.load(OPTIONS, EvaluationRequest()))
    limits = EpisodeLimits(reset_s=600.0, step_s=600.0)
    plan = EpisodePlan(tasks, epochs=2, policy="expert", recipe="r", sampling=Sampling(), limits=limits)
    path = tmp_path / "episodes.jsonl"
    ray.init(address=cluster.ray.address, log_to_driver=False)
    try:
        saboteur = Saboteur(cluster, path)
        pool = RayPool(ExpertPolicy, PoolLimits(num_actors=2, episodes_per_actor=2, max_deaths=20))
        saboteur.start()
        with Ledger(path) as ledger:
            progress = Progress(io.StringIO(), time.monotonic)
            run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
        saboteur._look()
        pool.close()
    finally:
        ray.shutdown()
    assert saboteur.done == ["actor", "node"]
    episodes = read_episodes(path)
    assert Counter(str(e.key) for e in episodes) == Counter(str(spec.key) for spec in plan), "each once"
    assert [e.score for e in episodes] == [1.0] * len(plan), "on sites in their first state"
    lost = [reason for e in episodes for reason in e.retried]
    assert lost
    assert all("infra_lost" in reason for reason in lost), lost
    assert all(e.blame is Blame.POLICY for e in episodes)
    assert saboteur.beneath
    deadline = time.monotonic() + 120
    while saboteur.alive() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert saboteur.alive() == []
