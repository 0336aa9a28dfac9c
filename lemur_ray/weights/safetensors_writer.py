"""Write safetensors files row by row, for tensors whose names, shapes and dtypes are known in advance.

On a local disk rows may be written in any order and from several threads; in a bucket in file order. A file gets its
final name once it is complete."""

import json
import math
import os
import shutil
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lemur_ray.storage.file_system import file_system
from lemur_ray.weights.safetensors_reader import DTYPES, INDEX, SINGLE

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
EVERY_BYTES = 2**26
"""Bytes written between two flushes."""


class Tensor(NamedTuple):
    """Name, dtype and shape of a tensor to be written."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row (last dimension); a vector is one row."""
        return self.shape[-1] * self.dtype.itemsize

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def size_text(size_bytes: int) -> str:
    """A size as text: ``138.50 GB``, or ``0.35 MB`` below 0.1 GB."""
    return f"{size_bytes / 1e9:,.2f} GB" if size_bytes >= 1e8 else f"{size_bytes / 1e6:,.2f} MB"


def check_space(folder: str | Path, needed_bytes: int) -> None:
    """Raise OSError if the disk of a local folder, which need not exist, lacks ``needed_bytes`` free; a URI passes."""
    if "://" in str(folder):
        return
    place = Path(folder).absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed_bytes:
        raise OSError(
            f"no space for {folder}: {size_text(needed_bytes)} are needed, {size_text(free)} are free there: "
            "make room or choose another --out"
        )


class Flusher:
    """Calls ``flush`` in a thread after every ``EVERY_BYTES`` bytes that the caller reports, one call at a time, so
    that the final flush has little left to do. The kernel otherwise keeps written data in memory until a flush or until
    a tenth of the memory is dirty."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush, self._lock, self._waiting_bytes = flush, threading.Lock(), 0
        self._pool = ThreadPoolExecutor(1, "flush")
        self._running: Future[None] | None = None

    def wrote(self, size_bytes: int) -> None:
        """Count ``size_bytes`` as written and start a flush if it is due. Raises the OSError of an earlier flush."""
        with self._lock:
            self._waiting_bytes += size_bytes
            if self._waiting_bytes < EVERY_BYTES or (self._running is not None and not self._running.done()):
                return
            if self._running is not None:
                self._running.result()
            self._waiting_bytes = 0
            self._running = self._pool.submit(self._flush)

    def close(self) -> None:
        """Wait for a running flush and flush once more. Raises OSError if this or an earlier flush failed."""
        self._pool.shutdown()
        if self._running is not None:
            self._running.result()
        self._flush()


class FolderWriter:
    """Writer of ``model.safetensors``, or of several files of at most ``max_file_bytes`` with an index. tensors: all
    that will be written; folder: path or URI."""

    def __init__(self, folder: str, tensors: list[Tensor], max_file_bytes: int) -> None:
        """A tensor larger than ``max_file_bytes`` gets a separate file. Raises OSError if a local disk lacks space."""
        self.folder = folder
        groups: list[list[Tensor]] = [[]]
        filled = 0
        for tensor in tensors:
            if groups[-1] and filled + tensor.size_bytes > max_file_bytes:
                groups.append([])
                filled = 0
            groups[-1].append(tensor)
            filled += tensor.size_bytes
        total = len(groups)
        names = [SINGLE] if total == 1 else [f"model-{i + 1:05d}-of-{total:05d}.safetensors" for i in range(total)]
        self.size_bytes = sum(tensor.size_bytes for tensor in tensors)
        self._weight_map = {tensor.name: name for name, group in zip(names, groups, strict=True) for tensor in group}
        self.in_order = "://" in folder
        """Whether rows must be written in the order of ``tensors``: in a bucket."""
        check_space(folder, self.size_bytes)
        fs, inner = file_system(folder)
        fs.makedirs(inner, exist_ok=True)
        kind = _Stream if self.in_order else _Local
        self._files = {name: kind(f"{folder}/{name}", group) for name, group in zip(names, groups, strict=True)}
        self._flusher = Flusher(self._flush)

    def write(self, name: str, first_row: int, rows: np.ndarray) -> None:
        """Write consecutive whole rows, (rows, columns) of the tensor's dtype, from row ``first_row`` on. Thread-safe
        unless ``in_order``."""
        file = self._files[self._weight_map[name]]
        tensor, begin = file.places[name]
        assert rows.dtype == tensor.dtype, (name, rows.dtype, tensor.dtype)
        assert rows.shape[1] == tensor.shape[-1], (name, rows.shape, tensor.shape)
        file.write(begin + first_row * tensor.row_bytes, np.ascontiguousarray(rows))
        self._flusher.wrote(rows.nbytes)

    def _flush(self) -> None:
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Flush all files to disk, rename them to their final names, and write the index if there are several."""
        self._flusher.close()
        for file in self._files.values():
            file.close()
        for file in self._files.values():
            file.finish()
        if len(self._files) > 1:
            index = {"metadata": {"total_size": self.size_bytes}, "weight_map": self._weight_map}
            fs, inner = file_system(f"{self.folder}/{INDEX}")
            fs.pipe_file(inner, json.dumps(index, indent=1).encode())


def _header(tensors: list[Tensor]) -> tuple[bytes, dict[str, tuple[Tensor, int]]]:
    """(first bytes of a file with its header; by name, each tensor and its offset in the file)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.size_bytes
        header[tensor.name] = {
            "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end],
        }  # fmt: skip
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = struct.pack("<Q", len(text)) + text
    places = {t.name: (t, len(head) + header[t.name]["data_offsets"][0]) for t in tensors}
    return head, places


class _Local:
    """A local safetensors file that is written at any offset."""

    def __init__(self, path: str, tensors: list[Tensor]) -> None:
        head, self.places = _header(tensors)
        self._path = Path(path)
        self._partial = self._path.with_name(f"{self._path.name}.partial")
        self._fd = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._written = False
        os.ftruncate(self._fd, len(head) + sum(tensor.size_bytes for tensor in tensors))
        self.write(0, np.frombuffer(head, np.uint8))

    def write(self, offset: int, array: np.ndarray) -> None:
        data = array.reshape(-1).view(np.uint8).data
        while data:
            done = os.pwrite(self._fd, data, offset)
            data, offset = data[done:], offset + done
        self._written = True

    def flush(self) -> None:
        if self._written:
            self._written = False  # before the flush, so that a concurrent write is not missed
            os.fdatasync(self._fd)

    def close(self) -> None:
        os.fsync(self._fd)
        os.close(self._fd)

    def finish(self) -> None:
        self._partial.replace(self._path)


class _Stream:
    """A safetensors object in a bucket, written in file order; it becomes visible when all bytes are written."""

    def __init__(self, path: str, tensors: list[Tensor]) -> None:
        self._head, self.places = _header(tensors)
        self._size = len(self._head) + sum(tensor.size_bytes for tensor in tensors)
        self._fs, self._inner = file_system(path)
        self._file: Any = None
        self._at = 0

    def write(self, offset: int, array: np.ndarray) -> None:
        if self._file is None:
            self._file = self._fs.open(self._inner, "wb")
            self._file.write(self._head)
            self._at = len(self._head)
        assert offset == self._at, f"{self._inner}: rows for byte {offset} came at byte {self._at}"
        self._file.write(array.reshape(-1).view(np.uint8).data)
        self._at += array.nbytes
        if self._at == self._size:
            self._file.close()

    def flush(self) -> None:
        pass

    def close(self) -> None:
        assert self._at == self._size, f"{self._inner} has {self._at} bytes of {self._size}"

    def finish(self) -> None:
        pass
