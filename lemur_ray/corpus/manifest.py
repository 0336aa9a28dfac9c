"""Read, check and write the manifest of a corpus folder.

The folder has ``manifest.json`` (written last), ``tokenizer.json`` and one row set per source under ``rows/``. Both the
pretraining corpus and the instruction table have this layout."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lemur_ray.config import differing_fields
from lemur_ray.corpus.config import build_hash
from lemur_ray.corpus.rows import RowReader, write_atomically
from lemur_ray.corpus.sources.specs import CorpusError as CorpusError
from lemur_ray.storage.file_system import file_system, is_bucket

MANIFEST = "manifest.json"
VERSION = 1
_REQUIRED = ("version", "tokenizer", "vocab_size", "seq_len", "sources")


def local_folder(folder: str | Path) -> Path:
    """``folder`` as a Path. Raises CorpusError for the URL of a bucket."""
    if is_bucket(str(folder)):
        raise CorpusError(f"{folder}: rows are made on a disk: give a local or mounted folder")
    return Path(folder)


def is_complete(folder: str | Path) -> bool:
    """Whether a folder or bucket has a ``manifest.json``, that is, a committed corpus of any version."""
    fs, path = file_system(f"{folder}/{MANIFEST}")
    return bool(fs.isfile(path))


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Manifest of the corpus at ``folder``, a path or URL. Raises CorpusError if missing, unreadable or unsupported."""
    path = f"{str(folder).rstrip('/')}/{MANIFEST}"
    try:
        fs, inner = file_system(path)
        manifest = json.loads(fs.cat_file(inner))
    except FileNotFoundError:
        raise CorpusError(_absent(folder)) from None
    except ValueError as error:
        raise CorpusError(f"{path} cannot be read ({error}): run jobs/build_corpus.py again") from error
    except (ImportError, OSError) as error:
        raise CorpusError(f"corpus {folder} cannot be read: {error}") from error
    check_manifest(manifest, folder)
    return dict(manifest)


def check_manifest(manifest: Any, folder: str | Path) -> None:
    """Raise CorpusError unless ``manifest``, read from ``folder``, has this version and all required entries."""
    path = f"{str(folder).rstrip('/')}/{MANIFEST}"
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
        version = manifest.get("version") if isinstance(manifest, dict) else type(manifest).__name__
        raise CorpusError(f"{path} has version {version!r}, expected {VERSION}: {renewed_by(manifest, folder)}")
    missing = [name for name in _REQUIRED if name not in manifest]
    if missing:
        raise CorpusError(f"{path} lacks {', '.join(missing)}: run jobs/build_corpus.py again")


def _absent(folder: str | Path) -> str:
    if is_bucket(str(folder)):
        return f"corpus {folder} is not there (no {MANIFEST}): run jobs/build_corpus.py --out {folder}"
    state = f"is half-built (no {MANIFEST})" if Path(folder).is_dir() else "does not exist"
    return f"corpus {folder} {state}: run jobs/build_corpus.py, finished parts are kept"


def renewed_by(manifest: Any, folder: str | Path) -> str:
    """Advice with the command that rebuilds a corpus of another version: a pretraining corpus or instruction table.
    manifest: the one that is there; folder: path or URL of the corpus, for the command."""
    sources = manifest.get("sources") if isinstance(manifest, dict) else None
    if isinstance(sources, list) and any(isinstance(one, dict) and one.get("kind") == "chat" for one in sources):
        return (
            "it is an instruction table; run jobs/instruct.py with its files and without --corpus, which makes it anew"
        )
    return f"run jobs/build_corpus.py --overwrite --out {folder} with its sources, which makes it anew"


def is_current(folder: str | Path) -> bool:
    """Whether a folder or bucket has a committed corpus with a manifest of this version."""
    if not is_complete(folder):
        return False
    try:
        read_manifest(folder)
    except CorpusError:
        return False
    return True


def matches_build(
    where: str | Path,
    manifest: dict[str, Any],
    description: dict[str, Any],
    overwrite: bool,
    say: Callable[[str], None],
    allow_failed: int = 0,
) -> bool:
    """Whether the corpus at ``where`` was built from ``description``; reports the result by ``say``.
    manifest: that of the corpus, which does not match if more than ``allow_failed`` parts were left out of it. Raises
    CorpusError if it was built from something else and ``overwrite`` is False."""
    left_out = len(manifest.get("failed", ()))
    if manifest.get("build") == build_hash(description) and left_out > allow_failed:
        say(f"{where} lacks {left_out} parts that could not be read: it is built again")
        return False
    if manifest.get("build") == build_hash(description):
        say(f"{where} is complete and of this configuration" + ("" if overwrite else ": used as it is"))
        return True
    differing = differing_fields(manifest.get("config", {}), description)
    differences = "; ".join(map(str, differing)) or "made by something else"
    if not overwrite:
        raise CorpusError(
            f"{where} holds another corpus (built != requested: {differences}): choose another --out, or replace it "
            "with --overwrite (runs that were trained on it cannot be resumed then)"
        )
    say(f"{where} holds another corpus ({differences}): it is replaced")
    return False


def write_manifest(folder: str | Path, manifest: dict[str, Any]) -> None:
    """Write ``manifest.json``, which commits a corpus whose other files are complete. manifest: without the version.
    folder: of the corpus, on a disk. Raises CorpusError if a required entry is missing, RowSetError if the row set of a
    listed source is incomplete."""
    folder = local_folder(folder)
    written = manifest_bytes(folder, manifest)
    for source in manifest["sources"]:
        RowReader(row_folder(folder, source["name"]))
    write_atomically(folder / MANIFEST, written)


def manifest_bytes(folder: str | Path, manifest: dict[str, Any]) -> bytes:
    """Content of ``manifest.json`` with the version added. folder: of the corpus, for messages. Raises CorpusError if a
    required entry is missing."""
    manifest = {"version": VERSION, **manifest}
    missing = [name for name in _REQUIRED if name not in manifest]
    if missing:
        raise CorpusError(f"manifest for {folder} lacks {', '.join(missing)}")
    return json.dumps(manifest, indent=1).encode()


def row_folder(folder: str | Path, source: str) -> Path:
    """Folder of the row set of ``source`` on a disk. Raises CorpusError for a URL: use ``bucket_rows.open_rows``."""
    return local_folder(folder) / "rows" / source
