"""A run that is killed at any moment and started again writes what an undisturbed one does, but for times."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.conftest import ROOT
from tests.e2e.test_chaos_cluster import Cluster, cluster
from tests.improve.killed_run import MOMENTS, SEAMS

__all__ = ["cluster"]  # a fixture
CLOCK = re.compile(r".*_s|started|wall_s")


def play(start: Path, out: Path, moments: str, where: str, ends: int = 0) -> int:
    """Exit code of a run: that of SIGKILL, or ``ends``."""
    command = [sys.executable, "-m", "tests.improve.killed_run", str(start), str(out), moments, where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (ends, -signal.SIGKILL), f"{moments}: {done.stderr[-3000:]}"
    return done.returncode


def timeless(value: Any) -> Any:
    """JSON without clocks and without the names of the run and of a commit, which differ between two runs."""
    if isinstance(value, dict):
        return {name: timeless(one) for name, one in value.items() if not CLOCK.fullmatch(name)}
    if isinstance(value, list):
        return [timeless(one) for one in value]
    return re.sub(r"^(\d+)-[0-9a-f]{8}$", r"\1", value) if isinstance(value, str) else value


def content(out: Path) -> dict[str, Any]:
    """Everything that a run wrote, ledgers in the order of their keys, arrays as bytes."""
    files: dict[str, Any] = {}
    for path in sorted(out.rglob("*.json*")):
        name = str(path.relative_to(out))
        if name.endswith(".jsonl") and "checkpoints" not in name:
            lines = [timeless(json.loads(line)) for line in path.read_text().splitlines()]
            files[name] = sorted(lines, key=lambda one: json.dumps(one.get("key", 0)))
        elif name in ("result.json", "recipe.json"):
            files[name] = timeless(json.loads(path.read_text().replace(str(out), "OUT")))
    for path in sorted(out.glob("traces/*")):
        files[path.name] = path.read_bytes()
    for path in sorted(out.glob("checkpoints/*")):
        with ocp.StandardCheckpointer() as reader:
            state = reader.restore(path / "state")
        files[f"checkpoint {path.name}"] = [(str(k), np.asarray(v).tobytes()) for k, v in flat(state)]
    return files


def flat(tree: Any, at: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(tree, dict):
        return [pair for name in sorted(tree) for pair in flat(tree[name], (*at, name))]
    if isinstance(tree, (list, tuple)):
        return [pair for i, one in enumerate(tree) for pair in flat(one, (*at, str(i)))]
    return [(at, tree)]


@pytest.fixture(scope="module")
def undisturbed(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What an undisturbed run writes, in this process or on Ray; made once."""
    made: dict[str, dict[str, Any]] = {}

    def of(where: str) -> dict[str, Any]:
        if where not in made:
            out = tmp_path_factory.mktemp("whole") / "run"
            assert play(start, out, "none", where) == 0
            made[where] = content(out)
        return made[where]

    return of


def check(start: Path, out: Path, seam: str, where: str, expected: dict[str, Any]) -> None:
    assert play(start, out, seam, where) == -signal.SIGKILL
    assert play(start, out, "none", where) == 0
    assert differing(content(out), expected) == []


@pytest.mark.slow
def test_a_run_killed_between_updates_goes_on_to_the_same_bits(
    start: Path, tmp_path: Path, undisturbed: Callable[[str], dict[str, Any]]
) -> None:
    check(start, tmp_path / "run", "updating@1", "process", undisturbed("process"))


@pytest.mark.sweep
@pytest.mark.parametrize("seam", SEAMS)
def test_a_run_killed_at_any_seam_goes_on_to_the_same_bits(
    start: Path, tmp_path: Path, undisturbed: Callable[[str], dict[str, Any]], seam: str
) -> None:
    check(start, tmp_path / "run", seam, "process", undisturbed("process"))


@pytest.mark.sweep  # the same seams with traces, which have a journal and a file of their own
@pytest.mark.parametrize("seam", SEAMS)
def test_a_run_of_policy_gradients_killed_at_any_seam_goes_on_to_the_same_bits(
    start: Path, tmp_path: Path, undisturbed: Callable[[str], dict[str, Any]], seam: str
) -> None:
    check(start, tmp_path / "run", seam, "rloo", undisturbed("rloo"))
    assert "2.npz" in undisturbed("rloo")


@pytest.mark.sweep
@pytest.mark.parametrize("seam", SEAMS)
def test_a_driver_on_ray_killed_at_any_seam_goes_on_to_the_same_bits(
    start: Path, tmp_path: Path, undisturbed: Callable[[str], dict[str, Any]], seam: str
) -> None:
    check(start, tmp_path / "run", seam, "ray", undisturbed("ray"))


@pytest.mark.sweep  # 20 drivers on one cluster, each with a server of two replicas
@pytest.mark.timeout(3600)
def test_a_run_on_two_replicas_whose_driver_is_killed_20_times_ends_with_the_same_bits(
    ray_local: str, start: Path, tmp_path: Path, undisturbed: Callable[[str], dict[str, Any]]
) -> None:
    from ray import serve

    try:
        expected, out = undisturbed("replicas"), tmp_path / "run"
        for moment in MOMENTS:
            assert play(start, out, moment, "replicas") == -signal.SIGKILL, f"{moment} never came"
        assert play(start, out, "none", "replicas") == 0
        assert differing(content(out), expected) == []
        again = tmp_path / "again" / "run"
        assert play(start, again, "actor@1,replica@2,learner@2", "replicas", ends=1) == 1
        assert play(start, again, "none", "replicas") == 0
        retried = {"attempts", "retried"}  # what the ledger says of an actor that was lost
        assert differing(without(content(again), retried), without(expected, retried)) == []
    finally:
        serve.shutdown()


@pytest.mark.sweep  # a cluster of three nodes for each round
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("moment", ["host@1", "host@2"])
def test_a_run_one_of_whose_hosts_is_killed_in_a_round_ends_with_the_same_bits(
    cluster: Cluster,
    start: Path,
    tmp_path: Path,
    undisturbed: Callable[[str], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    expected = undisturbed("alone")
    monkeypatch.setenv("RAY_ADDRESS", cluster.ray.address)
    out = tmp_path / "run"
    assert play(start, out, moment, "replicas") == 0
    retried = {"attempts", "retried"}
    assert differing(without(content(out), retried), without(expected, retried)) == []


def without(value: Any, names: set[str]) -> Any:
    """JSON values without the fields ``names``."""
    if isinstance(value, dict):
        return {name: without(one, names) for name, one in value.items() if name not in names}
    return [without(one, names) for one in value] if isinstance(value, list) else value


def differing(actual: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    return [name for name in sorted({*actual, *expected}) if actual.get(name) != expected.get(name)]
