"""Writes the lock files: every package of an extra with its exact version, and nothing else.

Knows nothing of where packages come from: pip resolves with the configuration of this machine, and only names and
versions are written (no hosts, no file paths, no local version labels such as ``+cpu``).

Usage: ``python .ci/lock.py`` from the repository root, after a change of the dependencies in pyproject.toml.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {
    "requirements.lock": (),
    "requirements-buckets.lock": ("gcs", "s3"),
    "requirements-dev.lock": ("dev",),
    "requirements-alfworld.lock": ("alfworld",),
}
BESIDE = {"requirements.lock": ("gcs", "s3")}
"""Extras whose wishes count when a lock is resolved, though their packages stand in one of their own: botocore wants
python-dateutil below 3, and nothing else would."""
HEADS = {
    "requirements.lock": "The project itself: `make demo` needs no more.",
    "requirements-buckets.lock": "Clients of buckets (gs, s3), beside requirements.lock: they go into every image.",
    "requirements-dev.lock": "What the tests and `make check` need besides requirements.lock.",
    "requirements-webarena-sites.lock": "The stand-in sites, in an environment of their own (make sites).",
    "requirements-alfworld.lock": "textworld, the oracle of the ALFWorld engine (needs a C++ compiler to install).",
}


APART = {"requirements-webarena-sites.lock": "envs/webarena/sites/apps/pyproject.toml"}
"""Distributions with a lock file of their own, resolved without the project's dependencies."""


def resolve(requirements: list[str], constraints: list[str]) -> dict[str, str]:
    """Name and version of every package that ``requirements`` bring into an empty environment."""
    with tempfile.TemporaryDirectory() as temp:
        report, constraint = Path(temp) / "report.json", Path(temp) / "constraints.txt"
        constraint.write_text("\n".join(constraints))
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        subprocess.run([*command, "--report", report, "-c", constraint, *requirements], check=True)
        packages = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    return {p["name"]: p["version"].split("+")[0] for p in packages}


def write(file: str, packages: dict[str, str]) -> None:
    """A lock file."""
    lines = [f"{name}=={version}" for name, version in sorted(packages.items(), key=lambda item: item[0].lower())]
    (ROOT / file).write_text(f"# {HEADS[file]} Written by `make lock`.\n" + "\n".join(lines) + "\n")
    print(f"{file}: {len(lines)} packages")


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base: dict[str, str] = {}
    for file, extras in LOCKS.items():
        asked = project["dependencies"] + [line for e in extras for line in project["optional-dependencies"][e]]
        known = [f"{name}=={version}" for name, version in base.items()]
        if beside := [line for e in BESIDE.get(file, ()) for line in project["optional-dependencies"][e]]:
            together = resolve(asked + beside, known)
            known = [f"{name}=={version}" for name, version in together.items()]
        found = resolve(asked, known)
        new = {name: version for name, version in found.items() if name not in base}
        base.update(new)
        write(file, new)
    for file, distribution in APART.items():
        write(file, resolve(tomllib.loads((ROOT / distribution).read_text())["project"]["dependencies"], []))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
