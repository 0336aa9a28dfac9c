"""200 episodes in sandboxes on a cluster of three nodes, shot at everywhere: each ends once and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.trajectory import Blame
from lemur_ray.host.ports import free_port
from lemur_ray.rollout.ledger import read_episodes
from lemur_ray.sandbox.backends import slots
from tests.agents.misbehaving import Answer, completion, refusal, serving
from tests.e2e import boxes
from tests.e2e.processes import command_line, descendants, kill_hard, parents, wait_until_gone
from tests.e2e.test_chaos_agents import Driver, check_printed, num_finished
from tests.patient_ray import AGENT_PORTS, write_ports_down

EPISODES, IN_FLIGHT, ACTORS = 200, 48, 3
SAID = ("right", "right", "left", "right", "dance", "right", "")


class Cluster:
    """Three Ray nodes on this machine, each with ports of its own; none of them is this process's."""

    def __init__(self, folder: str) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        node = {"num_cpus": 2, "object_store_memory": 100 * 2**20, "include_dashboard": False}
        ports = {**own_ports(), "dashboard_port": free_port()}  # looked at without a dashboard, too
        self.ray = RayCluster(initialize_head=True, head_node_args={**node, "temp_dir": folder, **ports})
        del node["include_dashboard"]
        self.others = [self.ray.add_node(wait=False, **node, **own_ports()) for _ in range(2)]
        self.ray.wait_for_nodes(timeout=120)

    def raylet(self, node: Any) -> int:
        return int(node.all_processes["raylet"][0].process.pid)

    def kill_a_node_that_plays(self) -> list[int]:
        """kill -9 of everything of a node with an actor on it; the actors that were there."""
        for node in self.others:
            actors = [pid for pid, line in descendants(self.raylet(node)).items() if line.startswith("ray::_Actor")]
            if actors:
                self.others.remove(node)
                self.ray.remove_node(node, allow_graceful=False)
                return actors
        raise AssertionError("no actor on any node but the head")

    def close(self) -> None:
        self.ray.shutdown()


def own_ports() -> dict[str, int]:
    return {name: free_port() for name in AGENT_PORTS}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    folder = tempfile.mkdtemp(prefix="lc-", dir="/tmp")
    os.mkdir(f"{folder}/ray")  # Ray notes its newest cluster there, and would note it over somebody else's
    monkeypatch.setenv("RAY_TMPDIR", folder)
    for name in ("RAY_raylet_start_wait_time_s", "RAY_worker_register_timeout_seconds"):
        monkeypatch.setenv(name, "120")
    monkeypatch.setenv("RAY_enable_worker_prestart", "0")
    write_ports_down()
    made = Cluster(folder)
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


class Moody:
    """Walks, mostly to the right. While ``mood`` is set it refuses, fails, talks nonsense, or says nothing at all."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.mood = ""
        self.calls = 0
        self.seen: dict[str, int] = {}
        self.asked: dict[str, int] = {}
        self.well = threading.Event()
        self.lock = threading.Lock()

    def __call__(self, asked: dict[str, Any]) -> Answer | None:
        with self.lock:
            self.calls += 1
            number, mood = self.calls, self.mood
            self.seen[mood] = self.seen.get(mood, 0) + 1
            self.asked[asked["user"]] = self.asked.get(asked["user"], 0) + 1
        match mood:
            case "429":
                return refusal(429, Retry_After="0.5")
            case "500":
                return refusal(500)
            case "garbage":
                return 200, {"Content-Type": "application/json"}, b"{garbage"
            case "nothing":
                self.well.wait(30)
                return None
        time.sleep(self.latency_s)
        return completion(SAID[number % len(SAID)])

    def be_moody_for_a_while(self) -> threading.Thread:
        def turn() -> None:
            for mood in ("429", "500", "garbage", "nothing", "429"):
                self.well.clear()
                self.mood = mood
                time.sleep(2.0)
                deadline = time.monotonic() + 60
                while mood not in self.seen and time.monotonic() < deadline:  # on a busy machine nobody asks for long
                    time.sleep(0.05)
                self.mood = ""
                self.well.set()
                time.sleep(1.0)

        thread = threading.Thread(target=turn, daemon=True)
        thread.start()
        return thread


class Watch:
    """Every process of every sandbox with a label that was ever seen: process -> when it started."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.seen: dict[int, int] = {}

    def look(self) -> dict[int, list[int]]:
        """The sandboxes that are open now: the outermost process -> all that descend from it."""
        parent_of, now = parents(), boxes.sandboxes_of(self.run)
        open_now: dict[int, list[int]] = {pid: [] for pid, start in now.items() if slots.start_time(pid) == start}
        for pid in parent_of:
            above = pid
            while above in parent_of and above not in open_now:
                above = parent_of[above]
            if above in open_now and (start := slots.start_time(pid)) is not None:
                open_now[above].append(pid)
                self.seen[pid] = start
        return open_now

    def alive(self) -> list[str]:
        return [command_line(pid) for pid, start in self.seen.items() if slots.start_time(pid) == start]


def kill_sandboxes(watch: Watch, number: int) -> int:
    """kill -9 of everything in that many of them; how many they were."""
    shot = list(watch.look().items())[:number]
    for _, processes in shot:
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):  # the first to die takes the others with it
                kill_hard(pid)
    return len(shot)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_episodes_survive_a_killed_driver_actor_node_and_twenty_killed_sandboxes(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    run = f"chaos-{os.getpid()}-{time.time_ns()}"
    monkeypatch.setenv("BOXES_RUN", run)
    out, watch, model = tmp_path / "out", Watch(run), Moody(0.4)
    ledger = out / "episodes.jsonl"
    more = ("--benchmark", boxes.BENCHMARK, "--limit", str(EPISODES), "--in-flight", str(IN_FLIGHT))
    more += ("--actors", str(ACTORS), "--out", str(out), "--patience-s", "90", "--price-in", "3", "--price-out", "15")
    address = cluster.ray.address
    began = time.monotonic()

    def reached(number: int) -> Any:
        return lambda: num_finished(ledger) >= number

    with serving(model) as server:
        with Driver(server, tmp_path, tmp_path / "first.log", address, *more, program=boxes.__file__) as first:
            first.wait_for(reached(20))
            watch.look()
            below = first.kill()
            print(f"{time.monotonic() - began:.0f} s: driver killed with {num_finished(ledger)} finished")
        left = wait_until_gone([pid for pid, line in below.items() if "ray::" in line], 120)
        assert not left, f"outlived a killed driver: {[command_line(pid) for pid in left]}"
        before = read_episodes(ledger)
        asked_before = dict(model.asked)

        with Driver(server, tmp_path, tmp_path / "second.log", address, *more, program=boxes.__file__) as second:
            second.wait_for(reached(len(before) + 10))
            moody = model.be_moody_for_a_while()
            watch.look()
            kill_hard(second.actors()[0])
            print(f"{time.monotonic() - began:.0f} s: actor killed with {num_finished(ledger)} finished")
            second.wait_for(reached(len(before) + 40))
            watch.look()
            lost = cluster.kill_a_node_that_plays()
            print(f"{time.monotonic() - began:.0f} s: node killed with {num_finished(ledger)} finished")
            second.wait_for(reached(len(before) + 70))
            second.wait_for(lambda: len(watch.look()) >= 24)
            shot = kill_sandboxes(watch, 20)
            print(f"{time.monotonic() - began:.0f} s: sandboxes killed with {num_finished(ledger)} finished")
            moody.join(300)
            printed = second.end()
    print(f"{time.monotonic() - began:.0f} s: all ended; {model.calls} calls, by mood {model.seen}")

    assert shot == 20
    assert not wait_until_gone(lost, 60)
    assert set(model.seen) == {"", "429", "500", "garbage", "nothing"}
    lines = [json.loads(line) for line in ledger.read_bytes().splitlines()]
    finished = read_episodes(ledger)
    assert len(finished) == EPISODES
    assert len(lines) == len({json.dumps(line["key"]) for line in lines}) == EPISODES, "an episode is there twice"
    assert all((e.score is not None) == (e.blame is Blame.POLICY) for e in finished)
    assert [e for e in finished if not e.outcome.scored] == [], "everything could be played in the end"
    for episode in before:
        assert model.asked[str(episode.key)] == asked_before[str(episode.key)], "a finished episode was played again"
    assert all(e.attempts == len(e.retried) + 1 for e in finished)
    reasons = [reason for e in finished for reason in e.retried]
    assert sum("actor lost" in reason for reason in reasons) >= IN_FLIGHT // ACTORS
    # Some of the twenty were being opened when they were shot, some closed.
    of_sandboxes = [r for r in reasons if "sandbox destroyed" in r or "bubblewrap starts no sandbox" in r]
    assert 10 <= len(of_sandboxes) <= 20, of_sandboxes
    assert not any(e.outcome.value == "sandbox_destroyed" for e in finished), "the machine's doing was scored"

    report = json.loads((out / "report.json").read_text())
    named = {(r["task"], r["attempt"]) for r in report["retries"][0]["each"]}
    assert named == {(e.key.task, number) for e in finished for number in range(1, e.attempts)}
    kinds = report["retries"][0]["by_kind"]
    assert set(kinds) <= {"infra_lost", "env_error"}
    assert sum(kinds.values()) == len(reasons)
    assert (out / "index.html").read_text().count(", attempt ") >= len(reasons)
    check_printed(printed, finished, out)
    shown = (tmp_path / "second.log").read_text()
    assert "endpoint refuses: " in shown or " refused" in shown
    assert "cost " in shown

    deadline = time.monotonic() + 120
    while watch.alive() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert watch.alive() == [], "a process of a sandbox outlived the run"
    slots.reap()  # clears the records of killed processes, as the next run on this machine does
    assert boxes.sandboxes_of(run) == {}
    deadline = time.monotonic() + 120
    while (left := boxes.orphans()) and time.monotonic() < deadline:  # those of other tests have a record soon
        time.sleep(0.2)
    assert left == [], "a process that no record names was left"
    assert len(watch.seen) > 100
