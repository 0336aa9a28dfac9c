"""The libraries that DS-1000's programs import: where they lie, which are there, in which versions.

A folder of packages for this interpreter's version of Python, apart from the project's own, which a sandbox of either
backend shows read-only. Makes none (``make_environment.py``).
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from lemur_ray.host.home import lemur_home
from lemur_ray.sandbox.backends.python_inside import VERSION

COMMAND = "python -m envs.programs.ds1000.make_environment"
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "Pandas": ("pandas",),
    "Numpy": ("numpy",),
    "Matplotlib": ("matplotlib", "seaborn"),
    "Tensorflow": ("tensorflow-cpu",),
    "Scipy": ("scipy",),
    "Sklearn": ("scikit-learn",),
    "Pytorch": ("torch",),
}
"""The seven, as the data names them, and the distributions without which a program of each runs for nothing."""
_STANDS_FOR = {"tensorflow": "tensorflow-cpu", "tensorflow-intel": "tensorflow-cpu"}


IN_IMAGE = Path("/opt/ds1000")
"""Where they lie in the image that cluster/images/build.sh makes of them."""


def folder_of(named: str) -> Path:
    """Where packages are imported from: a folder of them, that of a virtual environment, the default one, or, where
    that is not there, the image's."""
    own = lemur_home() / "environments" / "ds1000"
    default = IN_IMAGE if IN_IMAGE.is_dir() and not own.is_dir() else own
    folder = Path(named).expanduser().absolute() if named else default
    of_venv = folder / "lib" / f"python{VERSION}" / "site-packages"
    return of_venv if of_venv.is_dir() else folder


def versions(named: str) -> dict[str, str]:
    """Distributions of an environment -> version; empty where there is none."""
    folder = folder_of(named)
    return dict(_installed(folder, folder.stat().st_mtime_ns)) if folder.is_dir() else {}


@cache
def _installed(folder: Path, changed_ns: int) -> tuple[tuple[str, str], ...]:
    found = importlib.metadata.distributions(path=[str(folder)])
    return tuple(sorted((plain_name(one.name), one.version) for one in found))


def plain_name(name: str) -> str:
    """Of a distribution, as one compares them."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    return _STANDS_FOR.get(plain, plain)


def plain_version(version: str) -> str:
    """Without what says how it was built: torch 2.2.0+cpu is 2.2.0."""
    return version.partition("+")[0]


def lacking(named: str, libraries: Sequence[str]) -> str | None:
    """Why programs of these libraries cannot be run, with the command that mends it; None where they can."""
    there = versions(named)
    absent = [one for one in libraries if not set(LIBRARIES[one]) <= there.keys()]
    if not absent:
        return None
    found = f"lacks what {', '.join(absent)} need{'s' * (len(absent) == 1)}" if there else "is not there"
    makes = f"{COMMAND}{f' {named}' if named else ''} makes it"
    return f"environment of DS-1000: {folder_of(named)} {found}: {makes}; others are played with --libraries"


def requirements_file() -> Path:
    return Path(__file__).resolve().parents[3] / "cluster/images/ds1000/requirements.txt"


def pinned() -> Iterator[tuple[str, str, str]]:
    """Name, version and group (empty: always) of what is to be installed."""
    group = ""
    for line in requirements_file().read_text().splitlines():
        if line.startswith("# group "):
            group = line.removeprefix("# group ").strip()
        elif line and not line.startswith("#"):
            name, _, version = line.partition("==")
            yield name, version, group


def other_versions(named: str) -> Iterator[str]:
    """Where the environment is not of the pinned versions, in words."""
    there = versions(named)
    for name, version, _ in pinned():
        found = there.get(plain_name(name))
        if found is not None and plain_version(found) != version:
            yield f"{name} {found} instead of {version}"
