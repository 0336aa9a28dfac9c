"""The doctor on made-up machines: what it finds, what it calls required, and that each ill has its command."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lemur_ray import doctor
from lemur_ray.doctor import cluster, packages, programs, resources, sandbox_tools
from lemur_ray.doctor.machine import Check, Machine
from lemur_ray.doctor.resources import GIB

ROOT = Path(__file__).resolve().parents[1]
ANSWERS = {
    "docker images": "lemur-sandbox:0123",
    "import ray": "2.60.0",
    "import jax": "0.10.2 1 cpu cpu",
    "bwrap": "",
    "docker info": "28.0",
}


def answer(command: Sequence[str], timeout_s: float) -> tuple[int, str]:
    return 0, next((said for part, said in ANSWERS.items() if part in " ".join(command)), "")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on which all is well."""
    root, system = tmp_path / "repo", tmp_path / "system"
    (root / "envs").mkdir(parents=True)
    (root / "envs/__init__.py").touch()
    (root / "requirements.lock").write_text("# pins\nnumpy==2.4.6\nray==2.60.0\n")
    (system / "proc").mkdir(parents=True)
    (system / "proc/meminfo").write_text(f"MemTotal: {32 * 2**20} kB\nMemAvailable: {16 * 2**20} kB\n")
    (system / "dev/shm").mkdir(parents=True)
    return Machine(
        root=root,
        env={},
        home=tmp_path / "home",
        python=(3, 12, 1),
        path=(str(root),),
        system=system,
        run=answer,
        which=lambda name: None if name == "nvidia-smi" else f"/usr/bin/{name}",
        version=lambda name: {"numpy": "2.4.6", "ray": "2.60.0", "textworld": "1.7.0", "docker": "7.2.0"}.get(name),
        disk=lambda path: 50 * GIB,
    )


def but(machine: Machine, **changes: Any) -> Machine:
    return dataclasses.replace(machine, **changes)


def test_a_machine_on_which_all_is_well_is_healthy_and_asks_for_nothing(
    machine: Machine, lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    checks = doctor.examine(machine)
    assert doctor.healthy(checks)
    assert [check for check in checks if check.status != "ok"] == []
    assert not any(line.lstrip().startswith("$") for line in doctor.lines(checks))


def test_an_old_python_is_missing_and_required(machine: Machine) -> None:
    check = packages.python(but(machine, python=(3, 10, 9)))
    assert (check.status, check.required) == ("missing", True)
    assert "3.11" in check.found


def test_packages_are_compared_with_their_pins(machine: Machine) -> None:
    absent = packages.packages(but(machine, version=lambda name: None if name == "ray" else "2.4.6"))
    assert absent.status == "missing"
    assert "ray" in absent.found
    assert "requirements.lock" in absent.fix
    other = packages.packages(but(machine, version=lambda name: "2.60.0" if name == "ray" else "2.0.0"))
    assert other.status == "warn"
    assert "numpy 2.0.0 (pinned 2.4.6)" in other.found


def test_a_local_version_label_is_not_another_version(machine: Machine) -> None:
    assert packages.packages(but(machine, version=lambda n: {"numpy": "2.4.6+cpu", "ray": "2.60.0"}[n])).status == "ok"


def test_a_ray_that_cannot_be_imported_is_missing_and_required(machine: Machine) -> None:
    check = cluster.ray(but(machine, run=lambda command, timeout_s: (1, "Traceback\nImportError: no ray")))
    assert (check.status, check.required) == ("missing", True)
    assert "ImportError: no ray" in check.found


def token_file(machine: Machine) -> None:
    (machine.home / ".ray").mkdir(parents=True)
    (machine.home / ".ray/auth_token").write_text("secret")


def test_the_token_trap_is_explained_with_its_fix(machine: Machine) -> None:
    token_file(machine)
    check = cluster.ray_auth(machine)
    assert check.status == "warn"
    assert "auth_token" in check.found
    assert "export RAY_AUTH_MODE=disabled" in check.fix
    assert "secret" not in f"{check}"


@pytest.mark.parametrize(
    ("env", "has_file", "status"),
    [
        ({"RAY_AUTH_MODE": "disabled"}, True, "ok"),
        ({"RAY_AUTH_MODE": "token"}, True, "ok"),
        ({"RAY_AUTH_MODE": "token"}, False, "missing"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x"}, False, "ok"),
        ({"RAY_AUTH_TOKEN": "x"}, False, "warn"),
        ({"RAY_AUTH_MODE": "tokens"}, False, "missing"),
        ({}, False, "ok"),
    ],
)
def test_every_state_of_authentication_is_told_apart(
    machine: Machine, env: dict[str, str], has_file: bool, status: str
) -> None:
    if has_file:
        token_file(machine)
    assert cluster.ray_auth(but(machine, env=env)).status == status


def test_another_envs_package_that_comes_first_is_named(machine: Machine, tmp_path: Path) -> None:
    other = tmp_path / "site/envs"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    shadowed = packages.envs_package(but(machine, path=(str(other.parent), str(machine.root))))
    assert (shadowed.status, shadowed.required) == ("missing", True)
    assert str(other) in shadowed.found
    behind = packages.envs_package(but(machine, path=(str(machine.root), str(other.parent))))
    assert behind.status == "warn"
    absent = packages.envs_package(but(machine, path=()))
    assert absent.status == "missing"
    assert "PYTHONPATH" in absent.fix


def test_an_envs_module_of_one_file_shadows_too(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/envs.py").touch()
    assert packages.envs_package(but(machine, path=(str(tmp_path / "site"), str(machine.root)))).status == "missing"


def test_a_temp_path_too_long_for_rays_sockets_is_missing(machine: Machine) -> None:
    check = cluster.temp_path(but(machine, env={"RAY_TMPDIR": "/tmp/" + "x" * 60}))
    assert check.status == "missing"
    assert "107" in check.found


def test_little_memory_warns_and_very_little_is_required(machine: Machine) -> None:
    def with_gib(free: float) -> Check:
        (machine.system / "proc/meminfo").write_text(f"MemAvailable: {int(free * 2**20)} kB\n")
        return resources.memory(machine)

    assert with_gib(16).status == "ok"
    assert with_gib(5).status == "warn"
    assert (with_gib(1).status, with_gib(1).required) == ("missing", True)


def test_the_limit_of_a_container_counts(machine: Machine) -> None:
    (machine.system / "sys/fs/cgroup").mkdir(parents=True)
    (machine.system / "sys/fs/cgroup/memory.max").write_text(f"{6 * GIB}\n")
    (machine.system / "sys/fs/cgroup/memory.current").write_text(f"{2 * GIB}\n")
    assert "4.0 GiB" in resources.memory(machine).found
    (machine.system / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert "16.0 GiB" in resources.memory(machine).found


def test_a_full_disk_is_missing_and_required(machine: Machine, lemur_home: Path) -> None:
    check = resources.disk(but(machine, disk=lambda path: GIB // 2))
    assert (check.status, check.required) == ("missing", True)
    assert str(lemur_home) in check.found


def test_tools_that_only_some_parts_need_are_missing_but_not_required(machine: Machine) -> None:
    bare = but(machine, which=lambda name: None, version=lambda name: None)
    checks = [programs.bubblewrap(bare), programs.docker(bare), programs.chromium(bare), programs.mariadb(bare)]
    checks += [programs.textworld(bare), programs.compiler(bare)]
    assert all(check.status == "missing" and not check.required for check in checks)
    assert all(check.fix.startswith(("apt-get install", "sysctl")) for check in checks)


def test_what_tasks_call_in_a_sandbox_of_bubblewrap_and_this_machine_lacks_is_named(machine: Machine) -> None:
    def lacking(*names: str) -> Check:
        gone = {*names}
        return next(
            check
            for check in doctor.examine(but(machine, which=lambda name: None if name in gone else f"/usr/bin/{name}"))
            if check.name == "sandbox tools"
        )

    assert lacking().status == "ok"
    check = lacking("exiftool", "tshark", "curl", "bwrap")
    assert (check.status, check.required) == ("warn", False)
    assert "Bash (curl) and CTF (curl, exiftool, tshark)" in check.found
    assert check.fix == "apt-get install -y curl libimage-exiftool-perl tshark"
    assert "CTF (exiftool)" in lacking("exiftool").found
    image = (ROOT / "cluster/images/sandbox/packages.txt").read_text().split()
    wanted = {**sandbox_tools.BASH, **sandbox_tools.CTF, **sandbox_tools.CTF_BESIDES}
    assert {*wanted.values()} - {*image} <= {"cron"}, "the Docker sandbox has what bubblewrap is asked for"


def test_the_compiler_is_the_one_that_the_environment_names(machine: Machine) -> None:
    named = but(machine, env={"CXX": "my-c++ -m64"}, which=lambda name: f"/opt/{name}")
    assert programs.compiler(named).found == "/opt/my-c++"
    gone = programs.compiler(but(named, which=lambda name: "/usr/bin/g++" if name == "g++" else None))
    assert (gone.status, gone.fix) == ("missing", "unset CXX")
    assert "my-c++" in gone.found


def test_a_bubblewrap_that_cannot_make_a_namespace_is_not_ok(machine: Machine) -> None:
    check = programs.bubblewrap(but(machine, run=lambda command, timeout_s: (1, "bwrap: No permissions")))
    assert check.status == "missing"
    assert "No permissions" in check.found


def test_a_docker_client_without_engine_is_not_ok(machine: Machine) -> None:
    assert programs.docker(but(machine, run=lambda c, t: (1, "Cannot connect"))).status == "missing"


def test_a_docker_engine_without_package_or_image_names_the_command(machine: Machine) -> None:
    check = programs.docker(but(machine, version=lambda name: None))
    assert (check.status, check.fix.endswith("pip install docker")) == ("missing", True)
    check = programs.docker(but(machine, run=lambda c, t: (0, "28.0" if c[1] == "info" else "")))
    assert check.status == "warn"
    assert "lemur_ray.sandbox.docker_image" in check.fix
    assert "lemur-sandbox:0123" in programs.docker(machine).found


def test_a_gpu_that_jax_does_not_use_is_said(machine: Machine) -> None:
    idle = but(machine, which=lambda name: f"/usr/bin/{name}")
    assert packages.jax(idle).status == "warn"
    assert packages.jax(but(idle, env={"JAX_PLATFORMS": "cpu"})).status == "ok"


def test_a_tpu_host_without_its_variables_is_said(machine: Machine) -> None:
    assert packages.tpu(machine).status == "ok"
    (machine.system / "dev/accel0").touch()
    check = packages.tpu(machine)
    assert check.status == "warn"
    assert "TPU_WORKER_HOSTNAMES" in check.fix
    env = {"TPU_NAME": "slice", "TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}
    assert packages.tpu(but(machine, env=env)).found == "host 1 of 2 in slice, 1 chips"


def test_a_dashboard_address_is_told_from_a_cluster_address(machine: Machine) -> None:
    assert cluster.ray_address(but(machine, env={"RAY_ADDRESS": "http://127.0.0.1:8265"})).status == "warn"
    assert cluster.ray_address(but(machine, env={"RAY_ADDRESS": "127.0.0.1:6379"})).status == "ok"


def test_the_job_prints_json_and_its_exit_code_tells_the_truth() -> None:
    command = [sys.executable, str(ROOT / "jobs/doctor.py"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    value = json.loads(done.stdout)
    assert value["healthy"] is (done.returncode == 0)
    names = {check["name"] for check in value["checks"]}
    assert {"python", "ray", "ray auth", "bubblewrap", "docker", "chromium", "textworld", "memory", "disk"} <= names


def test_the_job_runs_where_nothing_is_installed() -> None:
    """-S hides every installed package; the doctor must still say what is missing."""
    command = [sys.executable, "-S", "-E", str(ROOT / "jobs/doctor.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert done.returncode == 1, done.stderr
    assert "pip install -r" in done.stdout
