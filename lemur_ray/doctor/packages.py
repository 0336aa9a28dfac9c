"""Checks of the Python version, the pinned packages, the devices that jax sees, and which package ``envs`` is imported.

Imports none of them: jax runs in a process of its own."""

import importlib.machinery
import os
import sys
from pathlib import Path

from lemur_ray.doctor.devices import tpu_chips
from lemur_ray.doctor.hosts.grouped_findings import few
from lemur_ray.doctor.machine import Check, Machine, last_line


def python(machine: Machine) -> Check:
    version = ".".join(map(str, machine.python))
    if machine.python < (3, 11):
        return Check("python", "missing", f"{version}, expected 3.11 or newer", "apt-get install -y python3.11", True)
    return Check("python", "ok", f"{version} at {sys.executable}", required=True)


def packages(machine: Machine) -> Check:
    """Compare the installed packages with the pins of requirements.lock."""
    lock = machine.root / "requirements.lock"
    if not lock.is_file():
        return Check("packages", "ok", "no requirements.lock beside the installed package: pip chose the versions")
    pins = [line.strip().split("==") for line in lock.read_text().splitlines() if "==" in line]
    installed = {name: machine.version(name) for name, _ in pins}
    absent = [name for name, _ in pins if installed[name] is None]
    other = [
        f"{name} {installed[name]} (pinned {pin})"
        for name, pin in pins
        if (installed[name] or pin).split("+")[0] != pin
    ]
    fix = f"{sys.executable} -m pip install -r {lock}"
    if absent:
        return Check("packages", "missing", f"{len(absent)} of {len(pins)} not installed: {few(absent, 5)}", fix, True)
    if other:
        return Check("packages", "warn", f"{len(other)} of {len(pins)} in other versions: {few(other, 5)}", fix, True)
    return Check("packages", "ok", f"all {len(pins)} as pinned", required=True)


def envs_package(machine: Machine) -> Check:
    """Whether ``import envs`` takes this project's package: workers would import another one of that name instead."""
    ours = machine.root / "envs"
    places = [path for entry in machine.path if (path := _package(entry, "envs")) is not None]
    if not places:
        fix = f"export PYTHONPATH={machine.root}"
        return Check("envs package", "missing", "no package envs on the path", fix, True)
    others = [path for path in places if path.resolve() != ours.resolve()]
    if places[0].resolve() != ours.resolve():
        detail = f"{places[0]} is imported instead of {ours}"
        return Check("envs package", "missing", detail, f"mv {places[0]} {places[0]}.aside   # or uninstall it", True)
    if others:
        detail = f"ours comes first, but {others[0]} is on the path too: a worker with another path would take it"
        return Check("envs package", "warn", detail, f"export PYTHONPATH={machine.root}", True)
    return Check("envs package", "ok", str(ours), required=True)


def _package(entry: str, name: str) -> Path | None:
    """Folder or file that ``import name`` would take from one entry of the path; None if there is none."""
    spec = importlib.machinery.PathFinder.find_spec(name, [entry or os.getcwd()])
    if spec is None:
        return None
    if spec.origin:
        origin = Path(spec.origin)
        return origin.parent if origin.name == "__init__.py" else origin
    return None  # a folder without __init__.py yields to any real package


def jax(machine: Machine) -> Check:
    """The version of jax and the devices that it sees."""
    ask = "import jax; d = jax.devices(); print(jax.__version__, len(d), d[0].platform, d[0].device_kind)"
    code, output = machine.run([sys.executable, "-c", ask], 120)
    if code:
        fix = f"{sys.executable} -m pip install -r {machine.root / 'requirements.lock'}"
        if "tpu" in machine.env.get("JAX_PLATFORMS", "") and code == 124:
            fix = "export JAX_PLATFORMS=cpu   # or see the line tpu"
        return Check("jax", "missing", f"jax finds no device: {last_line(output)}", fix, True)
    version, number, platform, kind = last_line(output).split(maxsplit=3)
    summary = f"version {version}, {number} x {kind} ({platform})"
    if platform == "cpu" and machine.which("nvidia-smi") and not machine.env.get("JAX_PLATFORMS"):
        fix = f"{sys.executable} -m pip install 'jax-cuda12-plugin[with-cuda]=={version}'"
        return Check("jax", "warn", f"{summary}; there is an NVIDIA GPU that it does not use", fix, True)
    return Check("jax", "ok", summary, required=True)


def tpu(machine: Machine) -> Check:
    """Whether a TPU host has the variables that tell jax which host of a slice it is; GKE's Ray webhook sets them."""
    chips = tpu_chips(machine)
    names = ("TPU_NAME", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES")
    present = [name for name in names if machine.env.get(name)]
    if not chips and not present:
        return Check("tpu", "ok", "no TPU host")
    absent = [name for name in names if name not in present]
    if absent:
        detail = f"{len(chips)} chips, but {', '.join(absent)} not set: jax on a slice of several hosts would not start"
        fix = f"export {' '.join(f'{name}=...' for name in absent)}   # on GKE: install the Ray TPU webhook"
        return Check("tpu", "warn", detail, fix)
    workers = machine.env["TPU_WORKER_HOSTNAMES"].split(",")
    detail = f"host {machine.env['TPU_WORKER_ID']} of {len(workers)} in {machine.env['TPU_NAME']}, {len(chips)} chips"
    return Check("tpu", "ok", detail)
