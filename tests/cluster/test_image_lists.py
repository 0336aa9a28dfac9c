"""What goes into the images of cluster/images, as their lists and build.sh say it; none is built here."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "cluster/images"
BUILD = IMAGES / "build.sh"
KINDS = sorted(path.parent.name for path in IMAGES.glob("*/python.txt"))

PYTHON = "3.11.2"
"""Debian 12's, which is in the images."""
OLDER = {"soupsieve"}
"""Whose version in the locks wants a newer Python than that."""


def pins(path: Path) -> Iterator[tuple[str, str]]:
    """Name and version of every package of a list, and of those that it names."""
    for line in path.read_text().splitlines():
        if line.startswith("-r "):
            yield from pins(path.parent / line.removeprefix("-r "))
        elif found := re.match(r"([\w.-]+)(?:\[[\w,-]+\])?==([\w.]+)$", line):
            yield found[1].lower().replace("_", "-"), found[2]
        else:
            assert not line or line.startswith("#"), f"{path}: {line}: expected NAME==VERSION"


@pytest.mark.parametrize("kind", KINDS)
def test_packages_of_an_image_have_the_versions_of_the_locks(kind: str) -> None:
    locked = dict(pair for name in ("", "-buckets", "-dev") for pair in pins(ROOT / f"requirements{name}.lock"))
    found = list(pins(IMAGES / kind / "python.txt"))
    assert len(found) == len(dict(found)), "a package is there twice"
    held = dict(found)
    assert held.keys() >= dict(pins(ROOT / "requirements-buckets.lock")).keys()
    for name, version in held.items():
        if name not in OLDER and not name.startswith("nvidia-"):  # which are in no lock
            assert version == locked.get("jax" if name.startswith("jax-cuda") else name), name


def test_packages_of_the_images_take_debians_python() -> None:
    held = {pair for kind in KINDS for pair in pins(IMAGES / kind / "python.txt")}
    for name, version in held:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found = importlib.metadata.metadata(name)
            if found["Version"].split("+")[0] == version:
                assert SpecifierSet(found["Requires-Python"] or "").contains(PYTHON), f"{name}=={version}"


def test_what_the_code_reads_in_its_checkout_goes_along() -> None:
    listed = re.search(r"^sources=\((.*)\)$", BUILD.read_text(), re.MULTILINE)
    assert listed
    assert set(listed[1].split()) >= {"lemur_ray", "envs", "jobs", "cluster/images", "pyproject.toml"}
    assert set(listed[1].split()) >= {"requirements.lock", "requirements-buckets.lock"}, "doctor compares with the lock"
    assert all((ROOT / source).exists() for source in listed[1].split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["cup"], "image 'cup': expected cpu, tpu, gpu, env or ds1000"),
        (["cpu", "--tar"], "--tar wants the file to write"),
        (["cpu"], "apt-get install -y debootstrap|no Docker engine answers|debootstrap needs root"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_made(tmp_path: Path, arguments: list[str], says: str) -> None:
    env = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/absent", "TMPDIR": str(tmp_path)}
    done = subprocess.run(["bash", str(BUILD), *arguments], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    assert re.search(says, done.stderr.splitlines()[-1]), done.stderr
    assert not list(tmp_path.iterdir())
