"""Checks of the Python version, the pinned packages, and which package ``envs`` is imported. Imports none of them."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from pathlib import Path

from lemur_ray.doctor.hosts.grouped_findings import few
from lemur_ray.doctor.machine import Check, Machine


def python(machine: Machine) -> Check:
    version = ".".join(map(str, machine.python))
    if machine.python < (3, 11):
        return Check("python", "missing", f"{version}, expected 3.11 or newer", "apt-get install -y python3.11", True)
    return Check("python", "ok", f"{version} at {sys.executable}", required=True)


def packages(machine: Machine) -> Check:
    """Compare the installed packages with the pins of requirements.lock."""
    lock = machine.root / "requirements.lock"
    if not lock.is_file():
        return Check("packages", "warn", f"no {lock}: versions are not compared")
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
    """Folder or file that ``import name`` would take from one entry of the path; None where it takes none."""
    spec = importlib.machinery.PathFinder.find_spec(name, [entry or os.getcwd()])
    if spec is None:
        return None
    if spec.origin:
        origin = Path(spec.origin)
        return origin.parent if origin.name == "__init__.py" else origin
    return None  # a folder without __init__.py yields to any real package
