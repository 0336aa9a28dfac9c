"""Default folders below ``$LEMUR_HOME``, and resolution of paths from the command line. Reads no file."""

import os
from pathlib import Path


def lemur_home() -> Path:
    """Absolute root folder of the project's default outputs: ``$LEMUR_HOME``, else ``~/lemur``."""
    return Path(os.environ.get("LEMUR_HOME") or Path.home() / "lemur").expanduser().absolute()


def resolve_out(out: str, default: str) -> str:
    """Absolute path for ``--out``: ``$LEMUR_HOME/<default>`` if empty; relative paths are below ``$LEMUR_HOME``; URIs
    stay. The working directory is not used, because a Ray job runs in a temporary folder that is removed."""
    if "://" in out:
        return out.rstrip("/")
    path = Path(out).expanduser() if out else Path(default)
    return str(path if path.is_absolute() else lemur_home() / path)


def resolve_input(name: str) -> str:
    """Name of a file to read, given on the command line: its absolute path if only the working directory has it, else
    ``name`` itself, which ``resolve_out`` looks for below ``$LEMUR_HOME``. The file need not exist."""
    here = Path(name).absolute()
    return str(here) if "://" not in name and here.exists() and not Path(resolve_out(name, "")).exists() else name


def outside_data(named: str) -> Path | None:
    """The folder of outside data sets: ``named`` (value of --data or LEMUR_DATA) even if it does not exist; without a
    name ``$LEMUR_HOME/data`` if that exists, else None."""
    folder = Path(named).expanduser() if named else lemur_home() / "data"
    return folder if named or folder.is_dir() else None


def find_model(name: str, *, buckets: bool = False) -> str:
    """Absolute folder of a model named on the command line: a run in ``$LEMUR_HOME/runs``, else a folder below
    $LEMUR_HOME, else one below the working directory. In ``random:RECIPE[@MODEL]`` only MODEL is resolved. ``buckets``:
    return URIs unchanged, except for a slash at the end. Raises ValueError if there is no such folder (the message
    lists the existing runs), or for a URI without ``buckets``."""
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
    raise ValueError(
        f"model {name!r}: neither a folder nor a run in {runs} (there: {there}); random:NAME is a "
        "recipe with random weights"
    )
