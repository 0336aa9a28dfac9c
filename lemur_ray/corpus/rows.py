"""Row sets: packed token rows on disk with random access by memory map.

A row set is a folder of shards and a ``rows.json`` that is written last: without it the set does not exist. A shard is
flat little-endian arrays: tokens (rows x seq_len, uint16, or uint32 where the vocabulary needs it), lengths of the
packed pieces (uint32), where each row's pieces begin (int64, rows + 1), and for chat one bit per token: is it trained?
"""

import contextlib
import json
import os
import shutil
import threading
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from lemur_ray.corpus.packing import PackedRow, expand
from lemur_ray.host.exit_codes import CausedError

INDEX = "rows.json"
VERSION = 1
SHARD_ROWS = 8192
"""Rows of a shard written by RowWriter: 16 MiB of uint16 tokens at 1,024 tokens a row."""
PROVENANCE = ("numbers", "documents")
"""Files of a shard that training does not read: document of each piece (uint32), and parquet table of the documents."""

_MAPPED_SHARDS = 32
"""Shards that a process keeps mapped, by three open files each: a corpus has more files than a process may open."""
_mapped: OrderedDict[tuple[Any, ...], dict[str, np.ndarray]] = OrderedDict()
"""Maps of shards by folder, number and checksums, the one used last at the end."""
_mapping = threading.Lock()

Arrays = dict[str, np.ndarray]
"""Arrays of a shard by kind: tokens (rows, seq_len), lengths of pieces (pieces,), starts (rows + 1,): index of each
row's first piece, and for chat trained (rows, bytes): one bit per token, most significant first."""


class RowSetError(CausedError):
    """Raised if a row set is missing, half-written, damaged or unreadable; the message names its file or folder."""


def token_dtype(vocab_size: int) -> np.dtype:
    """Little-endian dtype in which token ids are stored: uint16 for a vocabulary of up to 65,536 ids, uint32 above."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def write_atomically(path: Path, data: bytes | Iterable[bytes], *, durable: bool = True) -> dict[str, int]:
    """Write a file so that a killed process leaves it complete or unchanged; with ``durable``, a power cut, too. An
    error, for example a full disk, leaves nothing else. data: the content, or its parts in order. Returns its number of
    ``bytes`` and its ``crc32``. An fsync may take seconds; files whose size is checked later do not need it."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")
    size = crc32 = 0
    try:
        with open(temporary, "wb") as f:
            for part in [data] if isinstance(data, bytes) else data:
                f.write(part)
                size, crc32 = size + len(part), zlib.crc32(part, crc32)
            if durable:
                f.flush()
                os.fsync(f.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return {"bytes": size, "crc32": crc32}


def write_shard(
    folder: Path,
    name: str,
    tokens: np.ndarray | Iterable[np.ndarray],
    piece_lengths: np.ndarray,
    pieces_per_row: np.ndarray,
    trained: np.ndarray | None = None,
    provenance: tuple[np.ndarray, bytes] | None = None,
) -> dict[str, Any]:
    """Write the files of one shard to ``folder``, and return its entry in ``rows.json`` (JSON values: name, rows,
    tokens, files). The row set is not complete until ``commit_row_set``.
    tokens: (rows, seq_len) uint16 or uint32, or several such arrays in order; piece_lengths flat; pieces_per_row
    (rows,); trained: (rows, seq_len) bool. provenance: document of each piece (pieces,), parquet table of documents."""
    contents: dict[str, bytes | Iterable[bytes]] = {
        "tokens": (
            part.astype(part.dtype.newbyteorder("<")).tobytes()
            for part in ([tokens] if isinstance(tokens, np.ndarray) else tokens)
        ),
        "lengths": np.asarray(piece_lengths, "<u4").tobytes(),
        "starts": np.concatenate([[0], np.cumsum(pieces_per_row)]).astype("<i8").tobytes(),
    }
    if trained is not None:
        contents["trained"] = np.packbits(trained, axis=1).tobytes()
    if provenance is not None:
        contents |= zip(PROVENANCE, (np.asarray(provenance[0], "<u4").tobytes(), provenance[1]), strict=True)
    files = {kind: write_atomically(folder / f"{name}.{kind}", data) for kind, data in contents.items()}
    num_tokens = int(np.sum(piece_lengths, dtype=np.int64))
    return {"name": name, "rows": len(pieces_per_row), "tokens": num_tokens, "files": files}


def commit_row_set(
    folder: Path,
    shards: Sequence[dict[str, Any]],
    *,
    seq_len: int,
    vocab_size: int,
    documents: int,
    text_bytes: int = 0,
) -> dict[str, Any]:
    """Write ``rows.json``, which completes the row set of these results of ``write_shard``; returns it. folder: of the
    row set; seq_len: tokens of a row; documents, text_bytes: for the record. vocab_size: ids are below it."""
    index = {
        "version": VERSION,
        "seq_len": seq_len,
        "dtype": token_dtype(vocab_size).str,
        "rows": sum(shard["rows"] for shard in shards),
        "tokens": sum(shard["tokens"] for shard in shards),
        "documents": documents,
        "text_bytes": text_bytes,
        "shards": list(shards),
    }
    write_atomically(folder / INDEX, json.dumps(index, indent=1, sort_keys=True).encode())
    return index


class RowWriter:
    """Writer of a row set, one row at a time; ``close`` commits it. Usable as a context manager: leaving it by an
    exception commits nothing. Deletes ``folder``, with any older set in it, and makes it anew. shard_rows: rows of a
    shard. seq_len: tokens of a row; vocab_size: ids are below it; pad_id: fills rows."""

    def __init__(
        self, folder: str | Path, seq_len: int, *, vocab_size: int, pad_id: int = 0, shard_rows: int = SHARD_ROWS
    ) -> None:
        self.folder = Path(folder)
        self.seq_len, self.vocab_size, self.pad_id, self.shard_rows = seq_len, vocab_size, pad_id, shard_rows
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._shards: list[dict[str, Any]] = []
        self._rows: list[tuple[np.ndarray, np.ndarray, list[int]]] = []
        """Of each row that is not yet written: token ids, whether each is trained, lengths of its pieces."""
        self._num_pieces = 0
        self._has_trained: bool | None = None

    def write(self, pieces: Sequence[np.ndarray], trained: Sequence[np.ndarray] | None = None) -> None:
        """Add one row; a shard is written when it is full. pieces: token ids of its documents, together at most
        seq_len. trained: for chat, bool of each token, whether it is trained; for all rows or none. Raises ValueError
        for no piece, empty or too long pieces, ids outside the vocabulary, or ``trained`` of other lengths."""
        lengths = [len(piece) for piece in pieces]
        if not lengths or min(lengths) < 1 or sum(lengths) > self.seq_len:
            raise ValueError(
                f"a row of pieces of {lengths} tokens: expected 1 to {self.seq_len} tokens, no empty piece"
            )
        if self._has_trained is None:
            self._has_trained = trained is not None
        if self._has_trained != (trained is not None):
            raise ValueError("trained marks are given for some rows and not for others: give them for all or for none")
        row = np.full(self.seq_len, self.pad_id, np.int64)
        row[: sum(lengths)] = np.concatenate(pieces)
        if row.min() < 0 or row.max() >= self.vocab_size:
            raise ValueError(f"token ids {row.min()} to {row.max()}: expected 0 to {self.vocab_size - 1}")
        marks = np.zeros(self.seq_len, bool)
        if trained is not None:
            if [len(of_piece) for of_piece in trained] != lengths:
                raise ValueError(f"trained marks of lengths {[len(m) for m in trained]}: expected {lengths}")
            marks[: sum(lengths)] = np.concatenate(trained)
        self._rows.append((row.astype(token_dtype(self.vocab_size)), marks, lengths))
        self._num_pieces += len(lengths)
        if len(self._rows) == self.shard_rows:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        tokens, marks, lengths = zip(*self._rows, strict=True)
        arrays = np.stack(tokens), np.concatenate(lengths), np.array(list(map(len, lengths)))
        trained = np.stack(marks) if self._has_trained else None
        self._shards.append(write_shard(self.folder, f"{len(self._shards):05d}", *arrays, trained))
        self._rows = []

    def close(self, *, documents: int | None = None) -> dict[str, Any]:
        """Write the last shard, commit the set and return its index, the content of ``rows.json``. documents: their
        number, by default that of the pieces."""
        self._flush()
        documents = self._num_pieces if documents is None else documents
        shape = {"seq_len": self.seq_len, "vocab_size": self.vocab_size}
        return commit_row_set(self.folder, self._shards, documents=documents, **shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not (self.folder / INDEX).exists():
            self.close()


class Rows(Protocol):
    """Random access to a committed row set on a disk or in a bucket."""

    index: dict[str, Any]
    """Content of ``rows.json``."""
    seq_len: int

    def __len__(self) -> int: ...

    def read(self, indices: np.ndarray) -> PackedRow:
        """Rows with the given numbers (any order, repeats allowed). Raises IndexError for one outside [0, len)."""


class RowReader:
    """Random access to a row set on a disk through memory maps, shared within the process; cheap to pickle. folder: of
    the row set. Raises RowSetError if a file is missing or has a wrong size."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.index = read_index(self.folder)
        self.seq_len: int = self.index["seq_len"]
        self.num_tokens: int = self.index["tokens"]
        check_sizes(self.index, str(self.folder), lambda name: _size_of(self.folder / name))

    def __len__(self) -> int:
        return int(self.index["rows"])

    def read(self, indices: np.ndarray) -> PackedRow:
        """Rows with the given numbers (any order, repeats allowed). Raises IndexError for one outside [0, len)."""
        return gather_rows(self.index, *locate_rows(self.index, indices, str(self.folder)), self._opened)

    def _opened(self, shard: int) -> contextlib.nullcontext[Arrays]:
        files = self.index["shards"][shard]["files"].values()
        key = self.folder, shard, *(file["crc32"] for file in files)
        with _mapping:
            _mapped[key] = _mapped.pop(key) if key in _mapped else map_shard(self.folder, self.index, shard)
            if len(_mapped) > _MAPPED_SHARDS:
                _mapped.popitem(last=False)
            return contextlib.nullcontext(_mapped[key])

    def verify(self) -> None:
        """Compare every file with its checksum. Raises RowSetError naming the first damaged file."""
        for shard in self.index["shards"]:
            for kind, expected in shard["files"].items():
                path = self.folder / f"{shard['name']}.{kind}"
                if zlib.crc32(np.memmap(path, "u1", "r").data) != expected["crc32"]:
                    raise RowSetError(f"{path}: its content differs from what was written; build this corpus again")


def map_shard(folder: Path, index: dict[str, Any], number: int) -> Arrays:
    """Memory maps of the arrays of shard ``number``, whose files lie in ``folder``; each keeps its file open. index:
    content of ``rows.json``."""
    shard, seq_len = index["shards"][number], index["seq_len"]
    forms = {"tokens": (index["dtype"], (-1, seq_len)), "lengths": ("<u4", (-1,)), "starts": ("<i8", (-1,))}
    forms |= {"trained": ("u1", (-1, -(-seq_len // 8)))} if "trained" in shard["files"] else {}
    paths = {kind: folder / f"{shard['name']}.{kind}" for kind in forms}
    return {kind: np.memmap(paths[kind], dtype, "r").reshape(form) for kind, (dtype, form) in forms.items()}


def locate_rows(index: dict[str, Any], indices: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    """(shard number, index in the shard) of each row number in ``indices``, as int64 arrays. index: content of
    ``rows.json``. Raises IndexError, naming ``where``, for a number outside of the set."""
    indices = np.asarray(indices, np.int64).reshape(-1)
    ends = np.cumsum([0, *(shard["rows"] for shard in index["shards"])], dtype=np.int64)
    if indices.size and (indices.min() < 0 or indices.max() >= ends[-1]):
        raise IndexError(f"rows {indices.min()} to {indices.max()} of {where}: it has rows 0 to {ends[-1] - 1}")
    shards = np.searchsorted(ends, indices, side="right") - 1
    return shards, indices - ends[shards]


def gather_rows(
    index: dict[str, Any],
    shards: np.ndarray,
    within: np.ndarray,
    opened: Callable[[int], contextlib.AbstractContextManager[Arrays]],
) -> PackedRow:
    """Model input for rows at (``shards``, ``within``). opened: function from a shard number to a context with the
    shard's arrays. index: content of ``rows.json``. shards, within: (rows,) shard number, and index in it."""
    tokens = np.empty((len(within), index["seq_len"]), np.dtype(index["dtype"]))
    trained: np.ndarray | None = None
    pieces = [np.zeros(0, np.int64)] * len(within)
    for shard in np.unique(shards).tolist():
        at = np.flatnonzero(shards == shard)
        with opened(shard) as arrays:
            tokens[at] = arrays["tokens"][within[at]]
            for i in at.tolist():
                begin, end = arrays["starts"][within[i] : within[i] + 2]
                pieces[i] = np.array(arrays["lengths"][begin:end])
            if "trained" in arrays:
                trained = np.zeros(tokens.shape, bool) if trained is None else trained
                trained[at] = np.unpackbits(arrays["trained"][within[at]], axis=1, count=tokens.shape[1])
    return packed_rows(tokens, pieces, trained)


def packed_rows(tokens: np.ndarray, pieces: Sequence[np.ndarray], trained: np.ndarray | None) -> PackedRow:
    """Model input from tokens (rows, seq_len), the piece lengths of each row, and trained (rows, seq_len) or None."""
    counts = np.array([len(piece) for piece in pieces], np.int64)
    return expand(tokens, np.concatenate(pieces) if len(pieces) else np.zeros(0, np.int64), counts, trained)


def read_index(folder: Path) -> dict[str, Any]:
    """Content of ``folder/rows.json``. Raises RowSetError if it is missing, invalid or of another version."""
    path = folder / INDEX
    try:
        return parse_index(path.read_bytes(), str(path))
    except FileNotFoundError:
        state = "half-written (shards, but no rows.json)" if folder.is_dir() and any(folder.iterdir()) else "not there"
        raise RowSetError(f"row set {folder} is {state}: build the corpus again, finished parts are kept") from None


def parse_index(content: bytes, path: str) -> dict[str, Any]:
    """Parse the bytes of a ``rows.json``. Raises RowSetError naming ``path`` if it is invalid or of another version."""
    try:
        index = json.loads(content)
    except ValueError as error:
        raise RowSetError(f"{path} is not JSON ({error}): build the corpus again") from error
    if not isinstance(index, dict) or index.get("version") != VERSION:
        version = index.get("version") if isinstance(index, dict) else type(index).__name__
        raise RowSetError(f"{path} has version {version!r}, expected {VERSION}: build the corpus again")
    return index


def check_size(path: str, size: int | None, expected: int) -> None:
    """Raise RowSetError unless ``size``, the bytes of the file ``path``, is as expected; None means it is missing."""
    if size is None:
        raise RowSetError(f"{path} is missing: build the corpus again")
    if size != expected:
        raise RowSetError(f"{path} has {size} bytes, expected {expected} (cut short?): build the corpus again")


def check_sizes(index: dict[str, Any], where: str, size_of: Callable[[str], int | None]) -> None:
    """Raise RowSetError unless the folder ``where`` has all files of a row set. index: content of ``rows.json``;
    size_of: returns the bytes of a file there by its name, None for a missing one."""
    for shard in index["shards"]:
        for kind, expected in shard["files"].items():
            name = f"{shard['name']}.{kind}"
            check_size(f"{where}/{name}", size_of(name), expected["bytes"])


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
