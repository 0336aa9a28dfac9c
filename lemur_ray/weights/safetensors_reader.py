"""Read rectangles (rows and columns) of tensors in safetensors files.

A file is eight bytes (little-endian header size), a JSON header, raw row-major tensors. Local files are read by offset,
not mapped, because mapped pages count as memory of the process. URIs go through fsspec."""

import itertools
import json
import math
import os
import struct
import threading
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from lemur_ray.storage.file_system import file_system, is_bucket

DTYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
}
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_HEADER_LIMIT = 100_000_000
"""Maximum bytes of a header, as in the safetensors library."""


class TensorFileError(Exception):
    """Raised if a safetensors file or tensor is missing, truncated, damaged or unsupported; the message names it."""


class Stored(NamedTuple):
    """Dtype, shape and location of a tensor in its file (``begin``: offset of its first byte)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    """Offset of the first byte in the file."""


class TensorFile:
    """One safetensors file (path or URI), open for reading. Thread-safe. Opening raises TensorFileError if damaged."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fs, self._inner = file_system(path)
        self.local = "://" not in path
        self.bytes_read = 0
        """Bytes of tensors read so far."""
        self._counting = threading.Lock()
        if self.local:
            self._fd = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._fd)
        size = int(self._fs.size(self._inner))
        if size < 8:
            raise TensorFileError(f"{path} has {size} bytes, not even a header: copy it again")
        (header_size,) = struct.unpack("<Q", self._bytes(0, 8))
        base = 8 + header_size
        try:
            header = json.loads(self._bytes(8, header_size)) if base <= size and header_size < _HEADER_LIMIT else None
        except ValueError:
            header = None
        if not isinstance(header, dict):
            raise TensorFileError(f"{path} is not a safetensors file or is cut inside its header: copy it again")
        header.pop("__metadata__", None)
        try:
            self.tensors = {name: self._stored(name, entry, base) for name, entry in header.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TensorFileError(f"{path}: its header is damaged ({error!r}): copy it again") from error
        spans = sorted(tuple(entry["data_offsets"]) for entry in header.values())
        if any(begin < 0 for begin, _ in spans) or any(b[0] < a[1] for a, b in itertools.pairwise(spans)):
            raise TensorFileError(f"{path}: its header names bytes twice or outside the file: copy it again")
        end = base + max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if end > size:
            raise TensorFileError(f"{path} is truncated: {size} bytes, its header promises {end}: copy it again")

    def _stored(self, name: str, entry: dict[str, Any], base: int) -> Stored:
        if entry["dtype"] not in DTYPES:
            raise TensorFileError(
                f"{self.path}: {name} has dtype {entry['dtype']}, expected one of {', '.join(DTYPES)}: convert it first"
            )
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
            raise ValueError(f"{name} of shape {list(shape)} at {begin} to {end}")
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise TensorFileError(f"{self.path}: {name} has {end - begin} bytes, {shape} {dtype} needs others: copy it")
        return Stored(dtype, shape, base + begin)

    def read(self, name: str, rows: range, columns: range, out: np.ndarray) -> None:
        """Read the rectangle ``rows`` x ``columns`` of tensor ``name`` into ``out``: (rows, columns), row-major, of the
        stored dtype. A vector is one row.
        Raises KeyError if the file has no such tensor, TensorFileError if the file became shorter."""
        stored = self.tensors[name]
        row_bytes = stored.dtype.itemsize * (stored.shape[-1] if stored.shape else 1)
        left, width = columns.start * stored.dtype.itemsize, len(columns) * stored.dtype.itemsize
        begin = stored.begin + rows.start * row_bytes
        raw = out.reshape(-1).view(np.uint8).reshape(len(rows), width)
        if not self.local:
            # A request costs as much as a megabyte, longer than any row: whole rows are read.
            whole = self._remote(begin, len(rows) * row_bytes)
            raw[:] = np.frombuffer(whole, np.uint8).reshape(len(rows), row_bytes)[:, left : left + width]
        elif width == row_bytes:
            self._fill(raw.reshape(-1), begin)
        else:
            for i, row in enumerate(raw):
                self._fill(row, begin + i * row_bytes + left)

    def _fill(self, raw: np.ndarray, offset: int) -> None:
        """Fill a byte array from a local file. Raises TensorFileError if the file ends early."""
        self._count(raw.size)
        while raw.size:  # a long read may be partial
            count = os.preadv(self._fd, [raw.data], offset)
            if count == 0:
                raise TensorFileError(f"{self.path} became shorter while it was read: copy it again")
            raw, offset = raw[count:], offset + count

    def _remote(self, offset: int, size: int) -> bytes:
        self._count(size)
        data = self._bytes(offset, size)
        if len(data) != size:
            raise TensorFileError(f"{self.path} became shorter while it was read: copy it again")
        return data

    def _count(self, size: int) -> None:
        with self._counting:
            self.bytes_read += size

    def _bytes(self, offset: int, size: int) -> bytes:
        if self.local:
            return os.pread(self._fd, size, offset)
        return bytes(self._fs.cat_file(self._inner, start=offset, end=offset + size))


class TensorFolder:
    """All tensors in the safetensors files of a model folder or URI, by name. Opening raises TensorFileError."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)
        self._files = [TensorFile(f"{self.folder}/{name}") for name in _file_names(self.folder)]
        self._where = {name: file for file in self._files for name in file.tensors}

    @property
    def bytes_read(self) -> int:
        return sum(file.bytes_read for file in self._files)

    def names(self) -> list[str]:
        return sorted(self._where)

    def stored(self, name: str) -> Stored:
        """Shape, dtype and offset of a tensor. Raises TensorFileError if no file has it."""
        return self._file(name).tensors[name]

    def read(self, name: str, rows: range, columns: range, out: np.ndarray) -> None:
        """Read a rectangle of a tensor as ``TensorFile.read`` does. Raises TensorFileError if no file has it."""
        self._file(name).read(name, rows, columns, out)

    def fetched_bytes(self, name: str, columns: range) -> int:
        """Bytes that ``read`` transfers per row for these columns of a tensor; in a bucket, those of the whole row."""
        stored = self.stored(name)
        whole = is_bucket(self.folder) and stored.shape
        return int(stored.dtype.itemsize * (stored.shape[-1] if whole else len(columns)))

    def _file(self, name: str) -> TensorFile:
        if name not in self._where:
            raise TensorFileError(
                f"no tensor {name!r} in {self.folder}: the checkpoint is incomplete or of another model"
            )
        return self._where[name]


def _file_names(folder: str) -> list[str]:
    fs, inner = file_system(folder)
    if fs.isfile(f"{inner}/{INDEX}"):
        try:
            names = sorted(set(json.loads(fs.cat_file(f"{inner}/{INDEX}"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TensorFileError(f"{folder}/{INDEX} is no index of weights ({error!r}): copy it") from error
        missing = [name for name in names if not fs.isfile(f"{inner}/{name}")]
        if missing:
            raise TensorFileError(
                f"{folder}/{INDEX} names files that are not there: {', '.join(missing)}: download them"
            )
        return names
    if fs.isfile(f"{inner}/{SINGLE}"):
        return [SINGLE]
    raise TensorFileError(f"no {SINGLE} and no {INDEX} in {folder}: expected safetensors weights")


def file_faults(folder: str | Path) -> list[str]:
    """Error messages about the safetensors files of a folder or URI, at most one per file, or one if it has none; empty
    if headers and sizes are right. Contents are not read."""
    faults = []
    try:
        names = _file_names(str(folder))
    except TensorFileError as error:
        return [str(error)]
    for name in names:
        try:
            TensorFile(f"{folder}/{name}")
        except (TensorFileError, OSError) as error:
            faults.append(str(error))
    return faults
