"""A benchmark of a package outside the repository, installed by pip, is played by actors on several Ray nodes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lemur_ray.rollout.ledger import read_episodes
from tests.conftest import ROOT
from tests.e2e.test_chaos_cluster import Cluster, cluster  # noqa: F401

GUIDE = ROOT / "docs/guides/language.md"
PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "capitals-of-the-world"
version = "1.0"
[project.entry-points."lemur_ray.benchmarks"]
capitals = "capitals_of_the_world"
[tool.setuptools]
py-modules = ["capitals_of_the_world"]
"""
PLAYED_AT = """

BENCHMARKS = {"": CAPITALS}
_grade = grade


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    import time
    from pathlib import Path

    import ray

    node, there = ray.get_runtime_context().get_node_id(), Path("NODES")
    (there / node).touch()
    deadline = time.monotonic() + 40
    while len(list(there.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)  # or one node has played all before another one's actor runs
    return Graded(**{**vars(_grade(reply, options)), "note": f"node {node}"})
"""
"""Added to the guide's question set: a table, and a grader that says where it runs. NODES: a folder."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder into which pip has installed the package, from its own source folder."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    source = tmp_path / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "nodes").mkdir()
    (source / "capitals_of_the_world.py").write_text(code + PLAYED_AT.replace("NODES", str(tmp_path / "nodes")))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(source)], check=True)
    return tmp_path / "site"


@pytest.mark.slow
def test_a_package_that_pip_installed_is_played_on_several_nodes(site: Path, cluster: Cluster, tmp_path: Path) -> None:  # noqa: F811
    home = str(tmp_path / "home")
    env = {**os.environ, "PYTHONPATH": str(site), "RAY_ADDRESS": cluster.ray.address, "LEMUR_HOME": home}
    command = [sys.executable, str(ROOT / "jobs/agent_eval.py"), "--benchmark", "capitals", "--policy", "expert"]
    command += ["--shots", "0", "--epochs", "8", "--actors", "4", "--in-flight", "8", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["benchmark"], said["n"], said["solved"]) == ("capitals", 32, 32)
    seen = {step.observation for e in read_episodes(tmp_path / "out/episodes.jsonl") for step in e.trajectory.steps}
    nodes = {match[1] for text in seen if (match := re.match(r"node (\w+)", text))}
    assert len(nodes) >= 2
