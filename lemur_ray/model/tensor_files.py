"""Safetensors files through a memory map: read any slice of any tensor, write tensor by tensor.

A file is eight bytes (little-endian header size), a JSON header, raw row-major tensors. Only the bytes that are asked
for are read, and a writer holds one tensor at a time. Knows nothing of models.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

DTYPES: dict[str, Any] = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}
_NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


class TensorFileError(Exception):
    """A file is missing, torn or lacks a tensor; the message says which and what to do."""


class TensorFile:
    """One safetensors file, open for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        if size < 8:
            raise TensorFileError(f"{path} has {size} bytes, not even a header: copy it again")
        self._raw = np.memmap(path, np.uint8, "r")
        (header_size,) = struct.unpack("<Q", self._raw[:8].tobytes())
        self._base = 8 + header_size
        try:
            header = json.loads(self._raw[8 : self._base].tobytes()) if self._base <= size else None
        except ValueError:
            header = None
        if not isinstance(header, dict):
            raise TensorFileError(f"{path} is not a safetensors file or is cut inside its header: copy it again")
        self.header: dict[str, Any] = {name: entry for name, entry in header.items() if name != "__metadata__"}
        end = self._base + max((entry["data_offsets"][1] for entry in self.header.values()), default=0)
        if end > size:
            raise TensorFileError(f"{path} is truncated: {size} bytes, its header promises {end}: copy it again")

    def view(self, name: str) -> np.ndarray:
        """A tensor as a view of the file: nothing is read before it is indexed."""
        entry = self.header[name]
        if entry["dtype"] not in DTYPES:
            raise TensorFileError(
                f"{self.path}: {name} has dtype {entry['dtype']}, expected one of {', '.join(DTYPES)}: convert it first"
            )
        begin, end = (self._base + offset for offset in entry["data_offsets"])
        return self._raw[begin:end].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])


class TensorFolder:
    """All safetensors files of a folder as one mapping of names to views."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._files = [TensorFile(path) for path in self._paths()]
        self._where = {name: file for file in self._files for name in file.header}

    def _paths(self) -> list[Path]:
        index = self.folder / INDEX
        if index.is_file():
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            missing = [name for name in names if not (self.folder / name).is_file()]
            if missing:
                raise TensorFileError(f"{index} names files that are not there: {', '.join(missing)}: download them")
            return [self.folder / name for name in names]
        if (self.folder / SINGLE).is_file():
            return [self.folder / SINGLE]
        raise TensorFileError(f"no {SINGLE} and no {INDEX} in {self.folder}: expected safetensors weights")

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def names(self) -> list[str]:
        """All tensor names."""
        return sorted(self._where)

    def view(self, name: str) -> np.ndarray:
        """A tensor as a view of its file. Raises TensorFileError when no file has it."""
        if name not in self._where:
            raise TensorFileError(
                f"no tensor {name!r} in {self.folder}: the checkpoint is incomplete or of another model"
            )
        return self._where[name].view(name)


Tensor = tuple[str, tuple[int, ...], Callable[[], np.ndarray]]
"""Name, shape, and a function that makes the array when its turn has come."""


def write_folder(folder: str | Path, tensors: Iterable[Tensor], dtype: Any, max_file_bytes: int = 5 * 10**9) -> None:
    """Write tensors in ``dtype`` into files of at most ``max_file_bytes`` (a larger tensor has a file of its own).

    Several files get an index. Every file appears under its name only when it is complete.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    width = np.dtype(dtype).itemsize
    groups: list[list[Tensor]] = [[]]
    filled = 0
    for tensor in tensors:
        size = int(np.prod(tensor[1])) * width
        if groups[-1] and filled + size > max_file_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(tensor)
        filled += size
    total = len(groups)
    names = [SINGLE] if total == 1 else [f"model-{i + 1:05d}-of-{total:05d}.safetensors" for i in range(total)]
    for name, group in zip(names, groups, strict=True):
        _write_file(folder / name, group, np.dtype(dtype))
    if total > 1:
        weight_map = {tensor[0]: name for name, group in zip(names, groups, strict=True) for tensor in group}
        size = sum(int(np.prod(tensor[1])) * width for group in groups for tensor in group)
        (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}, indent=1))


def _write_file(path: Path, tensors: list[Tensor], dtype: np.dtype[Any]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape, _ in tensors:
        size = int(np.prod(shape)) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape, make in tensors:
            array = np.ascontiguousarray(make().astype(dtype, copy=False))
            if array.shape != tuple(shape):
                raise TensorFileError(f"{name} has shape {array.shape}, announced was {tuple(shape)}")
            file.write(array.tobytes())
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
