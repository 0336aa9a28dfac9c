"""List the committed (complete) checkpoints of a training run, and identify model weights by fingerprints.

Training, loading and evaluation share this definition of a committed checkpoint. Only small files are read."""

import contextlib
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lemur_ray.storage.file_system import COMMIT_MARKER, file_system, is_bucket
from lemur_ray.storage.published_folder import version_of

CHECKPOINTS = "checkpoints"
"""Name of the folder of checkpoints in the folder of a run."""
MODEL_FOLDER = "model folder "
"""Prefix of the identity that ``weights_of`` gives a Hugging Face folder."""
_PIECES = ("plan/metadata", "state/_METADATA", "state/manifest.ocdbt")
"""Files of every committed checkpoint: the plan JSON and the index of the arrays."""
_STEP_NAME = re.compile(r"(\d+)(?:\.attempt-(\d+))?")
_SAMPLES, _SAMPLE_BYTES = 256, 4096
"""Number and size of the pieces of a safetensors file that go into a fingerprint."""


@dataclass(frozen=True)
class Commit:
    """A committed checkpoint of a training run: its step, folder, and the JSON object stored with it (``plan``)."""

    step: int
    plan: dict[str, Any]
    """JSON data of the checkpoint: rows (plan rows consumed), recipe, hash, corpus, init_from, progress."""
    folder: str
    """Path or URL of the checkpoint: ``<run>/checkpoints/`` and its ``checkpoint_name``."""

    @property
    def fingerprint(self) -> str:
        """8 hex digits hashed from the plan and the index of the arrays, which change if the checkpoint is rewritten.
        The index (OCDBT manifest) lists the data files, which have random names, so no array needs to be read."""
        fs, inner = file_system(self.folder)
        digest = hashlib.sha256()
        for piece in _PIECES:
            digest.update(fs.cat_file(f"{inner}/{piece}"))
        return digest.hexdigest()[:8]


class Uncommitted(NamedTuple):
    """Path of an entry of a ``checkpoints`` folder that is no committed checkpoint, and why."""

    folder: str
    reason: str

    @property
    def name(self) -> str:
        return self.folder.rsplit("/", 1)[-1]

    def __str__(self) -> str:
        return f"{self.folder}: {self.reason}"


def checkpoint_name(step: int, attempt: int = 1) -> str:
    """Name of the folder of a checkpoint: its step, in buckets also the attempt that wrote it if that is not the first.
    Two attempts never write to one folder, so that what an overtaken one still uploads damages no newer checkpoint."""
    return f"{step}.attempt-{attempt}" if attempt > 1 else f"{step}"


def is_checkpoint_name(name: str) -> bool:
    """Whether ``name`` has the form of ``checkpoint_name``."""
    return _STEP_NAME.fullmatch(name) is not None


def commit_at(folder: str) -> Commit | None:
    """The committed checkpoint in ``folder`` (``<run>/checkpoints/<step>``, path or URL); None if it is no such folder
    or the checkpoint is incomplete."""
    entry = _inspect(folder)
    return entry if isinstance(entry, Commit) else None


def commits(folder: str) -> tuple[list[Commit], list[Uncommitted]]:
    """(committed checkpoints in a ``checkpoints`` folder, newest first; its other entries); both may be empty."""
    entries = [_inspect(f"{folder}/{name}") for name in _names(folder)]
    committed = [entry for entry in entries if isinstance(entry, Commit)]
    ignored = [entry for entry in entries if isinstance(entry, Uncommitted)]
    return sorted(committed, key=lambda commit: (-commit.step, -commit.plan.get("attempt", 0))), ignored


def put_aside(folder: str) -> str:
    """Rename an incomplete or damaged checkpoint to ``<step>.torn[N]``, also in a bucket; returns its new path."""
    fs, inner = file_system(folder)
    number = 0
    while fs.exists(aside := f"{inner}.torn{number or ''}"):
        number += 1
    if not is_bucket(folder):
        fs.mv(inner, aside, recursive=True)
        return f"{folder}.torn{number or ''}"
    # Object by object, with requests that every service supports. The commit marker goes first, so that a half-moved
    # checkpoint does not count as committed. The listing may name objects that another host has just removed, and lack
    # the marker if it is new.
    paths = fs.find(inner)
    marker = f"{inner}/{COMMIT_MARKER}"
    for part in ([marker], [path for path in paths if path != marker]):
        if part:
            fs.copy(part, [f"{aside}{path.removeprefix(inner)}" for path in part], on_error="ignore")
            with contextlib.suppress(FileNotFoundError):
                fs.rm(part)
    with contextlib.suppress(FileNotFoundError):
        if fs.exists(inner):  # on stores with real folders
            fs.rm(inner, recursive=True)
    return f"{folder}.torn{number or ''}"


def committed_once(folder: str) -> list[str]:
    """Paths of checkpoints in ``folder`` named ``.torn`` that have every file: they were committed, and renamed later
    because they were damaged. [] for none."""
    torn = (f"{folder}/{name}" for name in sorted(_names(folder)) if ".torn" in name)
    return [path for path in torn if not _missing(path)]


def newest_commit(folder: str) -> Commit | None:
    """Committed checkpoint with the highest step in a ``checkpoints`` folder, None if there is none. Reads the folder's
    listing, then files of the newest checkpoints only."""
    matches = (_STEP_NAME.fullmatch(name) for name in _names(folder))
    names = sorted((int(match[1]), int(match[2] or 1), match[0]) for match in matches if match)
    committed = (commit_at(f"{folder}/{name}") for _, _, name in reversed(names))
    return next((commit for commit in committed if commit is not None), None)


def fixed_checkpoint(spec: str) -> str:
    """Folder of the newest committed checkpoint if ``spec`` is a run folder with one, else ``spec`` unchanged."""
    commit = newest_commit(f"{spec}/{CHECKPOINTS}")
    return commit.folder if commit else spec


def _names(folder: str) -> list[str]:
    """Names of the entries of a folder; empty if there is no such folder. One listing request in a bucket."""
    fs, inner = file_system(folder)
    fs.invalidate_cache()  # an earlier listing may predate the folder
    try:
        return [path.rstrip("/").rsplit("/", 1)[-1] for path in fs.ls(inner, detail=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _inspect(folder: str) -> Commit | Uncommitted:
    fs, inner = file_system(folder)
    name = inner.rstrip("/").rsplit("/", 1)[-1]
    if (match := _STEP_NAME.fullmatch(name)) is None:
        return Uncommitted(folder, "not committed")
    missing = _missing(folder)
    try:
        plan = json.loads(fs.cat_file(f"{inner}/plan/metadata")) if not missing else {}
        if not missing and not (isinstance(plan, dict) and isinstance(plan.get("rows"), int)):
            missing = ["plan/metadata (no row number)"]
    except ValueError:
        missing = ["plan/metadata (not JSON)"]
    if missing:
        return Uncommitted(folder, f"torn, lacks {', '.join(missing)}")
    return Commit(int(match[1]), plan, folder)


def _missing(folder: str) -> list[str]:
    """Names of the files of a committed checkpoint that the folder lacks."""
    fs, inner = file_system(folder)
    pieces = (*_PIECES, COMMIT_MARKER) if folder.startswith("gs://") else _PIECES
    return [piece for piece in pieces if not fs.exists(f"{inner}/{piece}")]


def model_fingerprint(folder: str | Path) -> str:
    """16 hex digits hashed from a Hugging Face folder: its configuration, and sizes and samples of its safetensors.
    Reads 256 evenly spaced pieces of 4 KiB per file (a second for 140 GB), which any further training changes. In a
    bucket object versions replace the samples. Raises FileNotFoundError without a config.json, OSError."""
    fs, inner = file_system(str(folder))
    digest = hashlib.sha256(fs.cat_file(f"{inner}/config.json"))
    for path in sorted(path for path in fs.find(inner, maxdepth=1) if path.endswith(".safetensors")):
        name = path.rsplit("/", 1)[-1]
        if is_bucket(str(folder)):
            digest.update(f"{name} {version_of(f'{folder}/{name}')}\n".encode())
            continue
        size = Path(path).stat().st_size
        digest.update(f"{name} {size}\n".encode())
        with open(path, "rb") as file:
            for i in range(_SAMPLES):
                file.seek(i * max(size - _SAMPLE_BYTES, 0) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]


def weights_of(spec: str) -> str:
    """Text that identifies the weights of the model ``spec``; checkpoints trained from them store it as ``init_from``.
    For a run or checkpoint: recipe hash, corpus, step and identity of the weights that the run started from. For a
    Hugging Face folder on a disk: its fingerprint. For anything else (a bucket folder that is no run, ``random:nano``):
    ``spec`` itself."""
    commit = (newest_commit(f"{spec}/{CHECKPOINTS}") or commit_at(spec)) if spec else None
    if commit is None:
        local = spec and "://" not in spec and (Path(spec) / "config.json").is_file()
        return f"{MODEL_FOLDER}{model_fingerprint(Path(spec))}" if local else spec
    before = commit.plan.get("init_from")
    identity = f"{commit.plan.get('hash')} on {commit.plan.get('corpus')}, step {commit.step}"
    return f"{identity}, from {before}" if before else identity


def step_of(identity: str) -> int | None:
    """Checkpoint step in a text from ``weights_of`` for a run; None for any other model."""
    match = re.search(r", step (\d+)", identity)
    return int(match[1]) if match else None
