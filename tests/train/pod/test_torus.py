"""A mesh along the torus: rings of neighbours, and rows that reach the devices of other processes."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lemur_ray.host.ports import free_port
from lemur_ray.train.pod.placement import along_torus

HERE = Path(__file__).parent


@pytest.mark.slow
def test_rings_of_the_recipes_pods_are_of_neighbours_and_no_link_is_shared() -> None:
    if importlib.util.find_spec("libtpu") is None:
        if os.environ.get("CI"):
            pytest.fail("libtpu is not installed: in CI it must be (requirements-dev.lock)")
        pytest.skip("libtpu is not installed: pip install 'lemur-ray[tpu]'")
    asked = ["v4:4x8x8", "64", "4", "v4:4x4x4", "64", "1", "v6e:4x4", "4", "4", "v6e:16x16", "64", "4"]
    done = subprocess.run([sys.executable, str(HERE / "torus_rings.py"), *asked], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    pod, smaller, flat, cut = (json.loads(line) for line in done.stdout.splitlines())
    assert pod["by process"] == {"fsdp": [3.125, 2], "tp": [1.5, 1]}
    assert pod["along the torus"] == {"fsdp": [1.125, 1], "tp": [1.0, 1]}
    assert smaller["by process"]["fsdp"][0] > smaller["along the torus"]["fsdp"][0]
    assert flat["along the torus"] == {"fsdp": [1.0, 1], "tp": [1.0, 1]}
    assert cut["along the torus"] == cut["by process"], "four of sixteen are no axis of that torus"


def test_devices_that_are_no_whole_torus_stay_as_they_are_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    places = [(x, y, z) for z in range(4) for y in range(2) for x in range(2)]
    whole = [SimpleNamespace(platform="tpu", device_kind="TPU v4", coords=at, core_on_chip=0, id=n)
             for n, at in enumerate(places)]  # fmt: skip
    assert {device.id for device in along_torus(whole, 1, 4, 4)} == set(range(16))
    assert not [record for record in caplog.records if record.name.startswith("lemur_ray")]
    whole[5].coords = (7, 0, 0)
    assert along_torus(whole, 1, 4, 4) == whole
    assert "stay in the order of processes" in caplog.text


@pytest.mark.slow
def test_rows_that_processes_read_in_their_order_lie_where_any_mesh_wants_them() -> None:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, str(HERE / "rows_of_processes.py"), str(free_port())]
    workers = [subprocess.Popen([*command, str(rank)], env=env, stdout=subprocess.PIPE, text=True) for rank in range(2)]
    told = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert all(text.endswith("every row\n") for text in told)
