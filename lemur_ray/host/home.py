"""Where things lie: ``$LEMUR_HOME``, and what a name on a command line means there. Opens no file."""

from __future__ import annotations

import os
from pathlib import Path


def lemur_home() -> Path:
    """Root of everything the project writes by default: ``$LEMUR_HOME``, else ``~/lemur``. Absolute."""
    return Path(os.environ.get("LEMUR_HOME") or Path.home() / "lemur").expanduser().absolute()


def resolve_out(out: str, default: str) -> str:
    """Absolute form of ``--out``: URIs as they are, empty means ``$LEMUR_HOME/<default>``, relative paths lie in there.

    A Ray job runs in a temporary folder that vanishes, so nothing is ever resolved against the working directory.
    """
    if "://" in out:
        return out.rstrip("/")
    path = Path(out).expanduser() if out else Path(default)
    return str(path if path.is_absolute() else lemur_home() / path)


def outside_data(said: str) -> Path | None:
    """The folder of data of others: the one that was said (``--data``, LEMUR_DATA), else ``$LEMUR_HOME/data``, where
    jobs/fetch_data.py puts what it fetches, as soon as it is there. None where neither is."""
    folder = Path(said).expanduser() if said else lemur_home() / "data"
    return folder if said or folder.is_dir() else None


def find_model(name: str, *, buckets: bool = False) -> str:
    """Absolute folder of the model that a flag names: a run of ``$LEMUR_HOME/runs``, else a folder under $LEMUR_HOME,
    else one under the working directory. Of ``random:RECIPE[@MODEL]`` only MODEL is looked for.

    buckets: URIs may be named too; they come back as they are.

    Raises:
        ValueError: there is no such folder; it names the runs that are there.
    """
    if name.startswith("random:"):
        recipe, at, model = name.partition("@")
        return f"{recipe}@{find_model(model, buckets=buckets)}" if at else name
    if "://" in name and buckets:
        return name.rstrip("/")
    if "://" in name:
        raise ValueError(f"model {name}: models are read from a local or mounted folder: copy it to one")
    path, runs = Path(name).expanduser(), lemur_home() / "runs"
    for folder in (runs / path, lemur_home() / path, path):
        if name and folder.is_dir():
            return str(folder.absolute())
    there = ", ".join(sorted(run.name for run in runs.glob("*") if run.is_dir())) or "none"
    raise ValueError(f"model {name!r}: neither a folder nor a run in {runs} (there: {there})")
