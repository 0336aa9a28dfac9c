"""A text file in a bucket to which lines are only appended, stored as immutable pieces and an index of the valid ones.

Below ``<url>.pieces/`` lie the pieces and ``index.json``. A commit replaces the index by compare-and-swap, so it is
atomic. The index holds the number of the attempt (writing process) that wrote it: a later attempt first writes a higher
number, after which earlier attempts can no longer commit. Small pieces are merged as the file grows."""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from lemur_ray.storage.bucket_lease import LeaseConflict, decode_record
from lemur_ray.storage.conditional_writes import VersionConflict, read_version, write_if
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.published_folder import replaced_file

PIECES, INDEX = ".pieces", "index.json"
PIECE_BYTES = 2 << 20
"""Maximum size of a piece, unless a single line is longer."""


@dataclass(frozen=True)
class Piece:
    """A contiguous byte range of the file, stored as an object: its name, size in bytes and SHA-256."""

    name: str
    size: int
    sha256: str


class GrowingFile:
    """Uploader of a local file that grows: tracks which first part of it is already in the bucket."""

    def __init__(self, url: str, path: Path, number: int, mine: Mapping[str, Any]) -> None:
        """Claim the file. url: in the bucket; path: local. number: of this attempt, larger than those of earlier ones.
        mine: id, host and pid of this process. Raises LeaseConflict if a later attempt has claimed it, OSError."""
        self.url, self.path = url, path
        self._mine, self._attempt = dict(mine), number
        self._version: str | None = None
        self.pieces: tuple[Piece, ...] = ()
        while (index := read_version(f"{url}{PIECES}/{INDEX}")) is not None:
            value = decode_record(index)
            self._attempt = max(number, int(value.get("attempt", 0)) + 1)
            self._version, self.pieces = index[1], _pieces(value)
            if self._commit(self.pieces):
                return

    @property
    def size(self) -> int:
        """Bytes stored in the bucket by the index that this process last read or wrote. Makes no request."""
        return sum(piece.size for piece in self.pieces)

    def upload_next(self) -> bool:
        """Upload one piece of complete lines that the bucket lacks, perhaps merged with small earlier pieces. Returns
        False if there was nothing to upload. Raises LeaseConflict if a later attempt has begun, OSError."""
        start, grown, kept = self.size, _size(self.path) - self.size, list(self.pieces)
        if grown <= 0:
            return False
        while kept and kept[-1].size <= grown and kept[-1].size + grown <= PIECE_BYTES:
            start, grown = start - kept[-1].size, grown + kept.pop().size
        with self.path.open("rb") as file:
            file.seek(start)
            data = file.read(PIECE_BYTES) + file.readline()
        data = data[: data.rfind(b"\n") + 1]
        if start + len(data) <= self.size:
            return False  # the last line is being written
        name = f"{self._attempt:06d}-{start:012d}-{start + len(data):012d}{self.path.suffix}"
        fs, there = file_system(f"{self.url}{PIECES}")
        fs.pipe_file(f"{there}/{name}", data)
        before = self.pieces
        while not self._commit((*kept, Piece(name, len(data), hashlib.sha256(data).hexdigest()))):
            pass
        for piece in before[len(kept) :]:
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(f"{there}/{piece.name}")
        return True

    def _commit(self, pieces: Sequence[Piece]) -> bool:
        """Write the index; False if it had changed meanwhile, so that the caller must retry. Raises LeaseConflict."""
        value = {"attempt": self._attempt, **self._mine, "pieces": [astuple(piece) for piece in pieces]}
        url = f"{self.url}{PIECES}/{INDEX}"
        try:
            self._version = write_if(url, json.dumps(value).encode(), self._version)
        except VersionConflict as error:
            now = read_version(url)
            holder = decode_record(now)
            if holder.get("id") != self._mine["id"] and int(holder.get("attempt", 0)) >= self._attempt:
                raise LeaseConflict(holder) from error
            self._version = now[1] if now else None
            return False
        self.pieces = tuple(pieces)
        return True


def read_growing(url: str, path: Path) -> bool:
    """Download the current content of the growing file ``url`` to ``path``; False if the bucket does not have it.
    Raises OSError, also if a piece is missing or damaged."""
    seen: tuple[bytes, str] | None = None
    while (index := read_version(f"{url}{PIECES}/{INDEX}")) is not None:
        pieces = _pieces(decode_record(index))
        try:
            if not (starts_with_pieces(path, pieces) and _size(path) == sum(piece.size for piece in pieces)):
                assemble(url, pieces, path)
            return True
        except FileNotFoundError as error:  # pieces may have been merged meanwhile
            if index == seen:
                raise OSError(f"{url}: a piece that its index names is not there ({error})") from error
            seen = index
    return False


def list_growing_files(url: str, growing: str) -> tuple[list[str], list[str]]:
    """List a bucket folder recursively, as two lists of names relative to ``url``: the growing files with the base name
    ``growing`` (their own names, not those of pieces), and all other objects. Empty lists if nothing is there."""
    fs, there = file_system(url)
    names = [str(path).removeprefix(there).lstrip("/") for path in fs.find(there)]
    names = [name for name in names if ".." not in name.split("/")]  # names become local paths
    index = f"{growing}{PIECES}/{INDEX}"
    indexed = [name.removesuffix(f"{PIECES}/{INDEX}") for name in names if f"/{name}".endswith(f"/{index}")]
    return indexed, [name for name in names if f"{growing}{PIECES}/" not in name]


def starts_with_pieces(path: Path, pieces: Sequence[Piece]) -> bool:
    """Whether a local file begins with the content of all these pieces, in order."""
    if not pieces or _size(path) < sum(piece.size for piece in pieces):
        return not pieces
    with path.open("rb") as file:
        return all(hashlib.sha256(file.read(piece.size)).hexdigest() == piece.sha256 for piece in pieces)


def assemble(url: str, pieces: Sequence[Piece], path: Path) -> None:
    """Write the concatenated pieces of the growing file ``url`` to ``path`` atomically. Raises FileNotFoundError for a
    missing piece, OSError for a damaged one."""
    fs, there = file_system(f"{url}{PIECES}")
    with replaced_file(path) as partial, partial.open("wb") as file:
        for piece in pieces:
            data = fs.cat_file(f"{there}/{piece.name}")
            if hashlib.sha256(data).hexdigest() != piece.sha256:
                raise OSError(f"{url}{PIECES}/{piece.name} is damaged: it is not what its index says")
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _pieces(index: Mapping[str, Any]) -> tuple[Piece, ...]:
    return tuple(Piece(str(name), int(size), str(digest)) for name, size, digest in index.get("pieces", ()))


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
