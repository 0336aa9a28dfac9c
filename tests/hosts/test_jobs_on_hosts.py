"""Jobs submitted from outside to a head and two workers that share nothing but a network, which loses hosts at the end.

One cluster for all of it: what breaks hosts comes last and brings them back.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.rollout.ledger import read_episodes
from tests.agents.misbehaving import serving
from tests.hosts.ray_hosts import HEALTH, NOTICED_S, PYTHON, RayHosts, lemur_home
from tests.hosts.slow_model import SlowModel

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(900)]

LOOK = """
import json, os, socket, sys
import ray
import brought

ray.init()

@ray.remote(num_cpus=0)
def look(mark):
    open(mark, "w").close()
    home = os.environ["LEMUR_HOME"]
    return [socket.gethostname(), brought.VALUE, sys.executable, home, os.getcwd(), os.listdir("/srv")]

there = [look.options(resources={name: 0.1}).remote(f"/srv/of-{name}") for name in ("head", "a", "b")]
print(json.dumps({"hosts": ray.get(there)}))
"""


def test_a_job_from_outside_runs_on_every_host_and_finds_another_path_for_everything(
    cluster: RayHosts, tmp_path: Path
) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    (tmp_path / "brought.py").write_text("VALUE = 42\n")
    hosts = cluster.result("python", "look.py", folder=tmp_path)["hosts"]
    assert [host[0] for host in hosts] == ["head", "a", "b"]
    assert [host[1] for host in hosts] == [42] * 3
    for n, host in enumerate(hosts):
        assert host[2].startswith(PYTHON.format(name=host[0]))
        assert host[3] == lemur_home(cluster.hosts[host[0]])
        assert f"of-{host[0]}" in host[5]
        assert not {f"of-{other[0]}" for other in hosts[:n]} & set(host[5])
    assert len({host[4] for host in hosts}) == 3


def test_nobody_without_the_token_is_let_in(cluster: RayHosts, tmp_path: Path) -> None:
    for env in ({"RAY_AUTH_TOKEN": "0" * 32}, {"RAY_AUTH_MODE": "disabled"}):
        job = cluster.submit("true", folder=tmp_path, env=env)
        assert job.process.wait(120) != 0
        assert "uthenticat" in job.printed() or "oken" in job.printed()


def doctor(cluster: RayHosts, *entry: str, **more: Any) -> tuple[dict[str, dict[str, Any]], bool]:
    """Every check by its name, and whether the cluster is healthy."""
    job = cluster.submit(*(entry or ("python", "jobs/doctor.py")), "--cluster", "--json", **more)
    job.process.wait(240)
    objects = [line for line in job.printed().splitlines() if line.startswith('{"healthy"')]
    assert objects, job.printed()[-4000:]
    said = json.loads(objects[-1])
    assert said["healthy"] is (job.process.returncode == 0)
    return {check["name"]: check for check in said["checks"]}, said["healthy"]


def test_the_doctor_asks_every_host(cluster: RayHosts) -> None:
    said, healthy = doctor(cluster)
    assert healthy, said
    assert said["hosts"]["found"].startswith("3: ")
    for name in ("python", "project", "packages", "clocks", "disks", "cores for data"):
        assert said[name]["status"] in ("ok", "warn"), said[name]
    assert "on 3 hosts" in said["project"]["found"]
    assert (said["object stores"]["status"], said["clocks"]["status"]) == ("warn", "ok")


@pytest.fixture
def one_host_is_older(cluster: RayHosts) -> Iterator[str]:
    """Where the project lies on every host, as in an image; on b an earlier version."""
    for host in cluster.hosts.values():
        shutil.copytree(cluster.project(), f"{host.root}/srv/app")
    older = Path(f"{cluster.hosts['b'].root}/srv/app/pyproject.toml")
    older.write_text(older.read_text().replace('version = "', 'version = "0.0.'))
    yield "/srv/app"
    for host in cluster.hosts.values():
        shutil.rmtree(f"{host.root}/srv/app")


def test_the_doctor_names_a_host_with_another_version_of_the_project(
    cluster: RayHosts, one_host_is_older: str, tmp_path: Path
) -> None:
    said, healthy = doctor(cluster, "python", f"{one_host_is_older}/jobs/doctor.py", folder=tmp_path)
    assert not healthy
    assert "b has 0.0." in said["project"]["found"]
    assert "--working-dir ." in said["project"]["fix"]
    job = cluster.submit("python", f"{one_host_is_older}/jobs/build_corpus.py", "--out", "none", folder=tmp_path)
    assert job.process.wait(240) != 0
    assert "project: " in job.printed()
    assert "b has 0.0." in job.printed()


def run_directly(cluster: RayHosts, job: str, *args: str) -> dict[str, Any]:
    """A job on the head alone, without Ray: the object that it prints last."""
    env = {**cluster.env(cluster.head), "PYTHONWARNINGS": "ignore"}
    project = cluster.project_on(cluster.head)
    said = cluster.head.run(["python", f"{project}/jobs/{job}.py", *args], env, timeout=240)
    return dict(json.loads(said.splitlines()[-1]))


def test_every_episode_counts_once_though_a_host_is_lost_and_another_cut_off_for_a_while(cluster: RayHosts) -> None:
    model = SlowModel()
    a, b = cluster.hosts["a"], cluster.hosts["b"]
    with serving(model, host=cluster.net.outside) as server:
        what = ("--benchmark", "intercode/sql", "--policy", f"openai:{server.url}", "--policy-model", "toy")
        what += ("--data", "", "--limit", "50", "--epochs", "4", "--prompt", "full")
        calm = run_directly(cluster, "agent_eval", *what, "--actors", "0", "--in-flight", "8", "--out", "calm")
        assert (calm["n"], calm["missing"], 0 < calm["solved"] < calm["n"]) == (200, 0, True)

        model.think_s = 4.0  # two hundred episodes take three minutes, and what happens to hosts less
        more = ("--actors", "3", "--in-flight", "18", "--out", "shaken")
        job = cluster.submit("python", "jobs/agent_eval.py", *what, *more)
        ledger = cluster.written(cluster.head, "shaken/episodes.jsonl")

        def finished() -> int:
            return len(ledger.read_bytes().splitlines()) if ledger.exists() else 0

        job.wait_for(lambda: finished() >= 8, 180)
        cluster.lose(b)
        noticed_s = cluster.wait(60, b="DEAD")
        before = finished()
        job.wait_for(lambda: finished() >= before + 8, 120)
        cluster.replace(b)
        cluster.net.cut(a)
        cut_at = time.monotonic()
        cluster.wait(60, a="DEAD")
        before = finished()
        job.wait_for(lambda: finished() >= before + 8, 120)
        time.sleep(max(0.0, 60.0 - (time.monotonic() - cut_at)))  # a partition lasts; its host works on behind it
        cluster.net.mend(a)
        model.think_s = 0.0
        model.well.set()
        shaken = job.end(240)
    assert noticed_s < 2 * NOTICED_S, HEALTH
    lost = [one for one in read_episodes(ledger) if not one.outcome.scored]
    why = "\n".join(dict.fromkeys(f"{one.outcome.value}: {one.detail} {one.retried}"[:2000] for one in lost))
    assert (shaken["n"], shaken["scored"], shaken["missing"]) == (calm["n"], calm["n"], 0), f"{job.printed()}\n{why}"
    lines = [json.loads(line) for line in ledger.read_bytes().splitlines()]
    assert len(lines) == len({json.dumps(line["key"]) for line in lines}) == calm["n"], "an episode is there twice"
    found = {(e.key.task, e.key.epoch): e for e in read_episodes(ledger)}
    undisturbed = read_episodes(cluster.written(cluster.head, "calm/episodes.jsonl"))
    assert {key: e.score for key, e in found.items()} == {(e.key.task, e.key.epoch): e.score for e in undisturbed}
    reasons = [reason for e in found.values() for reason in e.retried]
    assert len(reasons) >= 2, "both losses took episodes with them"
    assert all("infra_lost" in reason or "policy_unreachable" in reason for reason in reasons), reasons
    cluster.wait(a="ALIVE", b="ALIVE")
