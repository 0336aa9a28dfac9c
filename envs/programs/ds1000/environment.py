"""The libraries that DS-1000's programs import: their folder, and the installed and pinned versions.

A folder of packages for this interpreter's version of Python, separate from the project's own, which sandboxes of
either backend mount read-only. ``make_environment.py`` installs it."""

import importlib.metadata
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from lemur_ray.host.commands import images_folder
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
"""The seven libraries, by their names in the data, with the distributions that every program of each needs."""
_STANDS_FOR = {"tensorflow": "tensorflow-cpu", "tensorflow-intel": "tensorflow-cpu"}


IN_IMAGE = Path("/opt/ds1000")
"""Folder of the libraries in the image that cluster/images/build.sh builds."""


def folder_of(named: str) -> Path:
    """Folder of the packages in ``named``, a folder or a virtual environment. If that is empty:
    LEMUR_HOME/environments/ds1000, or the image's /opt/ds1000 if only that exists. The folder may be missing."""
    own = lemur_home() / "environments" / "ds1000"
    default = IN_IMAGE if IN_IMAGE.is_dir() and not own.is_dir() else own
    folder = Path(named).expanduser().absolute() if named else default
    of_venv = folder / "lib" / f"python{VERSION}" / "site-packages"
    return of_venv if of_venv.is_dir() else folder


def versions(named: str) -> dict[str, str]:
    """Version by ``plain_name`` of each distribution in ``folder_of(named)``; empty if that folder is missing."""
    folder = folder_of(named)
    return dict(_installed_versions(folder, folder.stat().st_mtime_ns)) if folder.is_dir() else {}


@cache
def _installed_versions(folder: Path, changed_ns: int) -> tuple[tuple[str, str], ...]:
    distributions = importlib.metadata.distributions(path=[str(folder)])
    return tuple(sorted((plain_name(one.name), one.version) for one in distributions))


def plain_name(name: str) -> str:
    """Normalised name of a distribution; variants of tensorflow count as tensorflow-cpu."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    return _STANDS_FOR.get(plain, plain)


def plain_version(version: str) -> str:
    """Version without its local label: torch 2.2.0+cpu is 2.2.0."""
    return version.partition("+")[0]


def lacking(named: str, libraries: Sequence[str]) -> str | None:
    """Why programs of these libraries (names as in ``LIBRARIES``) cannot run with the packages in ``named``, with the
    command that installs them; None if they can."""
    there = versions(named)
    absent = [one for one in libraries if not set(LIBRARIES[one]) <= there.keys()]
    if not absent:
        return None
    problem = f"lacks what {', '.join(absent)} need{'s' * (len(absent) == 1)}" if there else "is not there"
    makes = f"{COMMAND}{f' {named}' if named else ''} makes it"
    return f"environment of DS-1000: {folder_of(named)} {problem}: {makes}; others are played with --libraries"


def requirements_file() -> Path:
    return images_folder() / "ds1000" / "requirements.txt"


def pinned() -> Iterator[tuple[str, str, str]]:
    """Yield name, version and group (empty: always installed) of each pinned requirement."""
    group = ""
    for line in requirements_file().read_text().splitlines():
        if line.startswith("# group "):
            group = line.removeprefix("# group ").strip()
        elif line and not line.startswith("#"):
            name, _, version = line.partition("==")
            yield name, version, group


def other_versions(named: str) -> Iterator[str]:
    """Yield a text ("numpy 2.0 instead of 1.26") for each package in ``folder_of(named)`` of another version."""
    there = versions(named)
    for name, version, _ in pinned():
        installed = there.get(plain_name(name))
        if installed is not None and plain_version(installed) != version:
            yield f"{name} {installed} instead of {version}"
