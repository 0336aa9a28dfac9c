"""Which checkpoints of a run are committed, and what tells one set of weights from another.

Training, loading and evaluation all ask here, so that none of them takes a checkpoint for whole that another passes
over. Reads small files by path or URI; knows nothing of jax, of Ray or of what the arrays mean.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemur_ray.storage.file_system import file_system, is_bucket
from lemur_ray.storage.published_folder import version_of

CHECKPOINTS = "checkpoints"
"""Name of the folder in a run's folder."""
MODEL_FOLDER = "model folder "
"""How ``weights_of`` begins for a Hugging Face folder."""
_PIECES = ("plan/metadata", "state/_METADATA", "state/manifest.ocdbt")
"""What a committed checkpoint always has: the plan JSON and the index of the arrays."""
_IN_PLACE = ("gs://", "commit_success.txt")
"""Where a checkpoint is written under its own name from the beginning, and what is written last."""
_SAMPLES = 256
_SAMPLE_BYTES = 4096


@dataclass(frozen=True)
class Commit:
    """One committed checkpoint."""

    step: int
    plan: dict[str, Any]
    """The JSON item: rows (plan rows consumed), recipe, hash, corpus, init_from, progress."""
    folder: str
    """Path or URI of the checkpoint itself."""

    @property
    def fingerprint(self) -> str:
        """8 hex digits over the plan and the index of the arrays; another one whenever it is written anew.

        The index (OCDBT manifest) names the data files, and those get random names: no array needs to be read.
        """
        fs, inner = file_system(self.folder)
        digest = hashlib.sha256()
        for piece in _PIECES:
            digest.update(fs.cat_file(f"{inner}/{piece}"))
        return digest.hexdigest()[:8]


def commit_at(folder: str) -> Commit | None:
    """The checkpoint in ``folder`` (``<run>/checkpoints/<step>``), None where it is not a committed one."""
    found = _look(folder)
    return found if isinstance(found, Commit) else None


def commits(folder: str) -> tuple[list[Commit], list[str]]:
    """(committed checkpoints, newest first; one line for everything in the folder that is not one)."""
    fs, inner = file_system(folder)
    fs.invalidate_cache()  # or a folder that was listed before it was made would not be there
    if not fs.isdir(inner):
        return [], []
    names = [path.rstrip("/").rsplit("/", 1)[-1] for path in fs.ls(inner, detail=False)]
    looked = {name: _look(f"{folder}/{name}") for name in names}
    found = [commit for commit in looked.values() if isinstance(commit, Commit)]
    ignored = [f"{folder}/{name}: {why}" for name, why in looked.items() if isinstance(why, str)]
    return sorted(found, key=lambda commit: -commit.step), ignored


def put_aside(folder: str) -> str:
    """Rename a torn or damaged checkpoint, also in a bucket, so that it is in nobody's way; returns its new name."""
    fs, inner = file_system(folder)
    number = 0
    while fs.exists(aside := f"{inner}.torn{number or ''}"):
        number += 1
    if not is_bucket(folder):
        fs.mv(inner, aside, recursive=True)
        return f"{folder}.torn{number or ''}"
    # One by one, by requests that every service knows. What makes it a commit goes first: cut off in the middle of
    # this, it is not taken for whole.
    paths = fs.find(inner)
    ends = [path for path in paths if path.endswith(_IN_PLACE[1])]
    for part in (ends, [path for path in paths if path not in ends]):
        if part:
            fs.copy(part, [f"{aside}{path.removeprefix(inner)}" for path in part])
            fs.rm(part)
    if fs.exists(inner):  # where folders are more than the beginning of names
        fs.rm(inner, recursive=True)
    return f"{folder}.torn{number or ''}"


def committed_once(folder: str) -> list[str]:
    """Checkpoints that were put aside although no piece of them is missing: committed, and then damaged."""
    fs, inner = file_system(folder)
    if not fs.isdir(inner):
        return []
    names = sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in fs.ls(inner, detail=False))
    return [f"{folder}/{name}" for name in names if ".torn" in name and not _missing(f"{folder}/{name}")]


def newest_commit(folder: str) -> Commit | None:
    """The newest committed checkpoint of a run's ``checkpoints`` folder."""
    found, _ = commits(folder)
    return found[0] if found else None


def _look(folder: str) -> Commit | str:
    """The commit in a folder, or why it is none."""
    fs, inner = file_system(folder)
    name = inner.rstrip("/").rsplit("/", 1)[-1]
    if not name.isdigit():
        return "not committed"
    missing = _missing(folder)
    try:
        plan = json.loads(fs.cat_file(f"{inner}/plan/metadata")) if not missing else {}
        if not missing and not (isinstance(plan, dict) and isinstance(plan.get("rows"), int)):
            missing = ["plan/metadata (no row number)"]
    except ValueError:
        missing = ["plan/metadata (not JSON)"]
    if missing:
        return f"torn, lacks {', '.join(missing)}"
    return Commit(int(name), plan, folder)


def _missing(folder: str) -> list[str]:
    """The pieces that a committed checkpoint has and this folder has not."""
    fs, inner = file_system(folder)
    where, last = _IN_PLACE
    pieces = (*_PIECES, last) if folder.startswith(where) else _PIECES
    return [piece for piece in pieces if not fs.exists(f"{inner}/{piece}")]


def model_fingerprint(folder: str | Path) -> str:
    """16 hex digits over a Hugging Face folder: its configuration, and sizes and samples of its safetensors.

    Of each file 256 pieces of 4 KiB at equal distances are read: another training changes them, and 140 GB cost a
    second. In a bucket the versions of the objects stand for the samples. Raises FileNotFoundError where there is no
    config.json, OSError.
    """
    if is_bucket(str(folder)):
        return _fingerprint_there(str(folder))
    folder = Path(folder)
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for i in range(_SAMPLES):
                file.seek(i * max(size - _SAMPLE_BYTES, 0) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]


def _fingerprint_there(url: str) -> str:
    fs, inner = file_system(url)
    digest = hashlib.sha256(fs.cat_file(f"{inner}/config.json"))
    for name in sorted(path.rsplit("/", 1)[-1] for path in fs.find(inner, maxdepth=1)):
        if name.endswith(".safetensors"):
            digest.update(f"{name} {version_of(f'{url}/{name}')}\n".encode())
    return digest.hexdigest()[:16]


def weights_of(spec: str) -> str:
    """What names the weights of a model, wherever its folder lies.

    Of a run of ours: recipe and corpus, step, and what that run began with. Of a Hugging Face folder on a disk: its
    fingerprint. Anything else (a folder in a bucket that is no run, ``random:nano``) is named by ``spec`` itself.
    """
    commit = (newest_commit(f"{spec}/{CHECKPOINTS}") or commit_at(spec)) if spec else None
    if commit is None:
        local = spec and "://" not in spec and (Path(spec) / "config.json").is_file()
        return f"{MODEL_FOLDER}{model_fingerprint(Path(spec))}" if local else spec
    before = commit.plan.get("init_from")
    found = f"{commit.plan.get('hash')} on {commit.plan.get('corpus')}, step {commit.step}"
    return f"{found}, from {before}" if before else found
