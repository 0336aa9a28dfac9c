"""Converts a download to its stored form (gzip, a tar of some members, an unpacked archive) and computes checksums.

The caller moves the result to its final path. Knows no network and no data set."""

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from lemur_ray.host.file_lock import take
from lemur_ray.host.json_files import DAMAGED, is_gzip, open_bytes
from lemur_ray.outside_data.source import FetchError, Source

_CHUNK = 1 << 20


def content_sum(path: Path, *, packed: bool) -> tuple[str, int]:
    """SHA-256 (hex) and bytes of a file's content, decompressed if ``packed``. Raises ValueError for a broken gzip."""
    try:
        with open_bytes(path) if packed else path.open("rb") as data:
            return _sum(data)
    except DAMAGED as error:
        raise ValueError(f"{path}: cut short or no gzip ({error})") from error


def tree_sum(path: Path) -> tuple[str, int]:
    """SHA-256 over names and contents of a tar's files, in order of name, and their total size in bytes.
    Raises ValueError for an incomplete tar."""
    lines, total = [], 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if (data := archive.extractfile(member)) is not None:
                    digest, size = _sum(data)
                    lines.append(f"{digest}  {member.name}\n")
                    total += size
    except (tarfile.TarError, *DAMAGED) as error:
        raise ValueError(f"{path}: cut short or no tar ({error})") from error
    return hashlib.sha256("".join(sorted(lines, key=lambda line: line[66:])).encode()).hexdigest(), total


def folder_sum(path: Path) -> tuple[str, int]:
    """SHA-256 (hex) over names and contents of a folder's files, in order of name, and the number of files."""
    together, files = hashlib.sha256(), sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        with file.open("rb") as data:
            together.update(f"{_sum(data)[0]}  {file.relative_to(path).as_posix()}\n".encode())
    return together.hexdigest(), len(files)


def unpacked(packed: Path, into: Path, left_out: str = "") -> Path:
    """The folder below ``into`` with the content of a tar, unpacked once for each content. ``left_out``: name of the
    files and folders to leave out, empty: none. Raises ValueError for an incomplete tar, OSError."""
    folder = into / hashlib.sha256(packed.read_bytes()).hexdigest()[:16]
    if not (folder / ".done").is_file():
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=into) as scratch:
            complete = Path(scratch) / "complete"
            complete.mkdir()
            try:
                with tarfile.open(packed) as archive:
                    members = [m for m in archive.getmembers() if not left_out or left_out not in m.name.split("/")]
                    archive.extractall(complete, members, filter="data")
            except (tarfile.TarError, *DAMAGED) as error:
                raise ValueError(f"{packed}: {error}; fetch the file again") from error
            (complete / ".done").touch()
            lock = os.open(into, os.O_RDONLY)
            try:
                take(lock, wait_s=None)
                if not (folder / ".done").is_file():  # otherwise another process was first
                    if folder.exists():  # an interrupted process left it
                        shutil.rmtree(folder)
                    os.rename(complete, folder)
            finally:
                os.close(lock)
    return folder


def make(source: Source, download: Path, out: Path) -> None:
    """Convert ``download`` to the form ``source.stored`` (plain, gzip, tar, unzipped) at the path ``out``, which must
    not exist if unzipped; may move the download there. A gzip is not verified. Raises FetchError for a damaged archive
    or one that lacks a wanted member, OSError."""
    if source.stored == "plain" or (source.stored == "gzip" and is_gzip(download)):
        os.replace(download, out)
    elif source.stored == "gzip":
        with download.open("rb") as data, out.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            shutil.copyfileobj(data, packed, _CHUNK)
    else:
        try:
            _pack(source, download, out) if source.stored == "tar" else _unpack(download, out)
        except (tarfile.TarError, zipfile.BadZipFile, *DAMAGED) as error:
            raise FetchError(f"{source.url}: what was served is no whole archive ({error})") from error


def _pack(source: Source, archive: Path, out: Path) -> None:
    """Write a .tar.gz of the wanted members of a repository's archive, without the archive's top folder."""
    root = source.address.file.rstrip("/")
    with tarfile.open(archive) as inside, out.open("wb") as file:
        members = sorted(_wanted_members(source, inside, root), key=lambda pair: pair[0])
        missing = [m for m in source.members if not any(PurePosixPath(n).is_relative_to(m) for n, _ in members)]
        if missing:
            raise FetchError(f"{source.url}: has no {', '.join(missing)}; upstream has moved it")
        with gzip.GzipFile("", "wb", 9, file, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as made:
            for name, member in members:
                kept = tarfile.TarInfo(name)
                kept.size, kept.mode = member.size, member.mode
                made.addfile(kept, inside.extractfile(member))


def _wanted_members(source: Source, archive: tarfile.TarFile, root: str) -> Iterator[tuple[str, tarfile.TarInfo]]:
    for member in archive:
        path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
        if not member.isfile() or not path.is_relative_to(root):
            continue
        name = path.relative_to(root)
        wanted = not source.members or any(name.is_relative_to(one) for one in source.members)
        if wanted and not any(fnmatch(part, pattern) for part in name.parts for pattern in source.left_out):
            yield name.as_posix(), member


def _unpack(archive: Path, out: Path) -> None:
    """Unpack an archive into ``out`` and nowhere else; a single top folder is dropped."""
    out.mkdir()
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(out)  # drops leading slashes and ".." of its own accord
    else:
        with tarfile.open(archive) as packed_tar:
            packed_tar.extractall(out, filter="data")
    tops = [path for path in out.iterdir() if path.name != "__MACOSX"]
    if len(tops) == 1 and tops[0].is_dir():
        inner = out.with_name(f"{out.name}.inner")
        os.replace(tops[0], inner)
        shutil.rmtree(out)
        os.replace(inner, out)


def _sum(data: BinaryIO | object) -> tuple[str, int]:
    digest, total = hashlib.sha256(), 0
    while chunk := data.read(_CHUNK):  # type: ignore[union-attr]
        digest.update(chunk)
        total += len(chunk)
    return digest.hexdigest(), total
