"""A checkpoint that two processes share: which of them is at fault when it is read, and what becomes of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lemur_ray.host.ports import free_port
from lemur_ray.weights.checkpoints import commits

pytestmark = pytest.mark.slow

WORKER = """
import os, signal, sys
import jax
what, rank, folder, port = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from lemur_ray.train.checkpoint import Checkpoints
rows = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
def state(seed):
    whole = np.random.default_rng(seed).normal(size=(512, 64)).astype(np.float32)
    return {"w": jax.make_array_from_callback(whole.shape, rows, lambda index: whole[index])}
checkpoints = Checkpoints(folder, keep=3, primary=rank == 0)
said = "done"
try:
    if what == "save":
        for step in (1, 2):
            checkpoints.save(step, state(step), {"rows": step})
        checkpoints.wait()
    elif what == "die" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        like = jax.ShapeDtypeStruct((512, 64), np.float32, sharding=rows)
        checkpoints.restore(2, {"w": like})
except Exception as error:
    said = f"{type(error).__name__}: {error}"
print("SAID", said.replace(chr(10), " "), flush=True)
os._exit(0)  # jax.distributed would wait for one that is gone
"""


def both(what: str, folder: Path) -> list[str]:
    """What either process says at its end."""
    where = str(free_port())
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, what, str(rank), str(folder), where],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        told = [worker.communicate(timeout=180)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [(["", *(line for line in out.splitlines() if line.startswith("SAID "))][-1])[5:] for out in told]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints 1 and 2, half of either from each of two processes."""
    folder = tmp_path_factory.mktemp("shared") / "checkpoints"
    assert both("save", folder) == ["done", "done"]
    return folder


def test_a_worker_that_is_killed_while_a_checkpoint_is_read_costs_no_checkpoint(shared: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shared, tmp_path / "checkpoints"))
    first, second = both("die", folder)
    assert second == ""
    assert first
    assert "UnreadableCheckpoint" not in first
    assert [commit.step for commit in commits(str(folder))[0]] == [2, 1]


@pytest.mark.sweep  # the default tests have it in one process
def test_damage_that_only_the_second_worker_meets_puts_the_checkpoint_aside(shared: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shared, tmp_path / "checkpoints"))
    for data in (folder / "2" / "state" / "ocdbt.process_1" / "d").iterdir():
        data.write_bytes(b"")
    _, second = both("read", folder)
    assert second.startswith("UnreadableCheckpoint: ")
    assert f"put aside as {folder}/2.torn" in second
    assert [commit.step for commit in commits(str(folder))[0]] == [1]
