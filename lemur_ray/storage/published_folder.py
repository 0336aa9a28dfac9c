"""Local preparation of folders and files that are then uploaded to a bucket, and temporary copies of objects.

An uploaded folder counts as complete once the object that is uploaded last exists."""

import contextlib
import hashlib
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from lemur_ray.host.home import lemur_home
from lemur_ray.storage.file_system import file_system, is_bucket
from lemur_ray.storage.retry_policy import missing_bucket_error

_VERSIONS = ("generation", "ETag", "mtime", "created")
"""Keys under which file systems report a value that changes with every write of an object."""
_SCRATCH = "scratch-"
_SCRATCH_LASTS_S = 86_400.0


def work_folder(url: str) -> Path:
    """Local folder below LEMUR_HOME in which to prepare ``url``; always the same for a URL; created if missing."""
    folder = lemur_home() / "copies" / f"making-{hashlib.sha256(url.encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def publish(folder: Path, url: str, *, last: str) -> None:
    """Upload all files below ``folder`` except hidden ones. The object ``last`` is removed first and uploaded last.
    Raises OSError if an upload fails."""
    fs, there = file_system(url)
    if fs.exists(f"{there}/{last}"):
        fs.rm_file(f"{there}/{last}")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in paths]
    for name in [*(name for name in names if name != last), last]:
        if not any(part.startswith(".") for part in name.split("/")):
            fs.put_file(str(folder / name), f"{there}/{name}")


@contextlib.contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Context manager: path of a new file that replaces ``path`` after the block, unless it raises. Creates folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Context manager: ``path`` itself if it is local, or for a URL a temporary copy of the object. Raises OSError if
    it cannot be downloaded."""
    if not is_bucket(path):
        yield path
        return
    fs, there = file_system(path)
    with scratch_folder() as folder:
        copy = folder / there.rsplit("/", 1)[-1]
        fs.get_file(there, str(copy))
        yield str(copy)


def version_of(path: str) -> tuple[int, str] | None:
    """(size in bytes, text that changes with every write) of a file or object; None without it. Raises OSError."""
    fs, there = file_system(path)
    try:
        about = fs.info(there)
    except FileNotFoundError:
        return None
    if about["type"] != "file":
        return None
    return int(about["size"]), next((str(about[key]) for key in _VERSIONS if about.get(key)), "")


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Context manager: a temporary folder on the disk of LEMUR_HOME, removed after the block. Folders left by killed
    processes are removed after a day."""
    shelf = lemur_home() / "copies"
    shelf.mkdir(parents=True, exist_ok=True)
    for old in shelf.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _SCRATCH_LASTS_S:
                shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=shelf, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextlib.contextmanager
def output_folder(place: str, *, last: str) -> Iterator[Path]:
    """Context manager: the local folder to write to: ``place`` (not created), or for a URL one that is uploaded
    afterwards. ``last``: name of the file to upload last. Raises OSError before the block if that is not writable."""
    if not is_bucket(place):
        yield Path(place)
        return
    check_writable(place)
    yield work_folder(place)
    publish(work_folder(place), place, last=last)


@contextlib.contextmanager
def output_file(place: str, *, beside: Sequence[str] = ()) -> Iterator[Path]:
    """Context manager: the local path to write to: ``place`` itself, or for a URL a temporary file that is uploaded
    there after the block. ``beside``: suffixes of further files to upload with it. Raises OSError before the block if a
    bucket is not writable."""
    if not is_bucket(place):
        yield Path(place)
        return
    folder, _, name = place.rpartition("/")
    check_writable(folder)
    with scratch_folder() as scratch:
        yield scratch / name
        fs, there = file_system(folder)
        for one in (*(f"{name}{more}" for more in beside), name):
            fs.put_file(str(scratch / one), f"{there}/{one}")


def check_writable(url: str) -> None:
    """Raise OSError with a reason unless a small object can be written below the folder ``url`` and removed."""
    fs, there = file_system(url)
    probe = f"{there}/.probe-{uuid.uuid4().hex[:12]}"
    try:
        fs.pipe_file(probe, b"x")
        fs.rm_file(probe)
    except FileNotFoundError as error:
        raise missing_bucket_error(url) from error
