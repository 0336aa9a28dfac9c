"""Removal of files that a corpus does not need: temporary files of killed steps, and outputs of steps that its build
did not use."""

import contextlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lemur_ray.corpus.destinations.step_files import BUILDS, CLAIM
from lemur_ray.corpus.manifest import MANIFEST, CorpusError, read_manifest
from lemur_ray.corpus.rows import INDEX
from lemur_ray.corpus.sources.listing import LISTING
from lemur_ray.corpus.steps.stages import FOLDERS
from lemur_ray.host.file_lock import FileHeld, hold
from lemur_ray.storage.file_system import file_system, is_bucket

USED = "used.json"
"""File of the build folder with the build of the committed corpus and the names of the outputs that it used."""
_MEMORY = (USED, "tags.json")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.part")
"""Names that ``rows.write_atomically`` gives to files until they are complete."""


def remove_leftovers(corpus: str | Path) -> None:
    """Remove listings of builds, temporary files, and rows that do not belong to the committed corpus at ``corpus``, a
    folder or URL. Removes nothing in a bucket where another build has begun. Raises OSError if the storage fails."""
    files, used = _files(f"{corpus}/{BUILDS}"), _used(corpus)
    if not _is_begun_in_bucket(corpus, files):
        _remove(corpus, (name for name in files if not _is_output(name, used)))


def collect_garbage(corpus: str | Path) -> tuple[int, int]:
    """Remove outputs of steps that the corpus at ``corpus``, a folder or URL, did not use; returns (files, bytes).
    Without a committed corpus all outputs are removed; later builds make what they need again. Raises OSError, and
    CorpusError without such a folder or while a build is running."""
    if not is_bucket(str(corpus)) and not Path(corpus).is_dir():
        raise CorpusError(f"{corpus} does not exist")
    try:
        with contextlib.nullcontext() if is_bucket(str(corpus)) else hold(Path(corpus) / ".lock"):
            files, used = _files(f"{corpus}/{BUILDS}"), _used(corpus)
            if _is_begun_in_bucket(corpus, files):
                raise CorpusError(f"{corpus} is being built, or a build of it was cut off: run the build again first")
            unused = {name: size for name, size in files.items() if not _is_output(name, used, only_used=True)}
            _remove(corpus, unused)
            return len(unused), sum(unused.values())
    except FileHeld as error:
        raise CorpusError(f"{corpus} is being built: {error}") from error


def _is_begun_in_bucket(corpus: str | Path, files: Iterable[str]) -> bool:
    return is_bucket(str(corpus)) and any(name == CLAIM or name.endswith(f"/{LISTING}") for name in files)


def _is_output(name: str, used: dict[str, Any], only_used: bool = False) -> bool:
    """Whether a file of the build folder belongs to an output of a step, or is read by later builds (_MEMORY).
    Files of ``sets`` describe rows of the corpus, of which there is only one version, so they have to be used."""
    stage, _, output = name.partition("/")
    if name.endswith(".part") or name in _MEMORY:
        return name in _MEMORY
    if only_used or stage == "sets":
        return output.partition("/")[0].partition(".")[0] in used.get(stage, ())
    return stage in FOLDERS


def _used(corpus: str | Path) -> dict[str, Any]:
    """Names of the outputs by stage that the committed corpus used; {} if none is committed.
    Raises OSError or CorpusError if the corpus may be there but cannot be read."""
    fs, root = file_system(str(corpus))
    try:
        fs.cat_file(f"{root}/{MANIFEST}")
        used = json.loads(fs.cat_file(f"{root}/{BUILDS}/{USED}"))
    except (FileNotFoundError, ValueError):
        return {}
    return dict(used["outputs"]) if used["build"] == read_manifest(corpus)["build"] else {}


def _files(folder: str) -> dict[str, int]:
    """Bytes of each file below a folder by its path relative to it."""
    fs, root = file_system(folder)
    return {path.removeprefix(root).lstrip("/"): int(a["size"]) for path, a in fs.find(root, detail=True).items()}


def _remove(corpus: str | Path, names: Iterable[str]) -> None:
    """Remove these files of the build folder, then rows that the manifest does not name, then empty folders."""
    fs, root = file_system(str(corpus))
    for path in [*(f"{BUILDS}/{name}" for name in names), *_unnamed_rows(corpus)]:
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(f"{root}/{path}")
    for left in () if is_bucket(str(corpus)) else Path(corpus).glob(".*.part"):
        if _TEMPORARY.fullmatch(left.name):  # of a killed build
            left.unlink(missing_ok=True)
    for top in () if is_bucket(str(corpus)) else (BUILDS, "rows"):
        for folder, _, _ in os.walk(Path(corpus) / top, topdown=False):
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(folder)


def _unnamed_rows(corpus: str | Path) -> list[str]:
    """Files of rows that belong to no row set of the committed corpus."""
    try:
        manifest = read_manifest(corpus)
    except CorpusError:
        return []
    named = set()
    for name in (entry["name"] for entry in (*manifest["sources"], *manifest.get("heldout", ()))):
        fs, index = file_system(f"{corpus}/rows/{name}/{INDEX}")
        shards = json.loads(fs.cat_file(index))["shards"]
        named |= {f"{name}/{INDEX}", *(f"{name}/{shard['name']}.{kind}" for shard in shards for kind in shard["files"])}
    return [f"rows/{name}" for name in _files(f"{corpus}/rows") if name not in named]
