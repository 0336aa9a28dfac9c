"""Llama weights in the Hugging Face layout, in and out: one table from tree paths to tensor names.

torch keeps a linear layer as (out, in), we keep (in, out); every other difference is a name. Both directions move
slices of at most ``BLOCK_ROWS`` stored rows. Knows nothing of run folders or of training.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.weights.hf_config import HuggingFaceError, read_config
from lemur_ray.weights.param_slices import Index, leaves, normalised, transposed
from lemur_ray.weights.safetensors_reader import TensorFileError, TensorFolder
from lemur_ray.weights.safetensors_writer import FolderWriter, Tensor


class Entry(NamedTuple):
    """How one leaf of the parameter tree is stored."""

    name: str
    """Tensor name; {} stands for the layer of a stacked leaf."""
    transpose: bool

    @property
    def stacked(self) -> bool:
        return "{}" in self.name


TABLE: dict[str, Entry] = {
    "embed": Entry("model.embed_tokens.weight", False),
    "layers.attn_norm": Entry("model.layers.{}.input_layernorm.weight", False),
    "layers.wq": Entry("model.layers.{}.self_attn.q_proj.weight", True),
    "layers.wk": Entry("model.layers.{}.self_attn.k_proj.weight", True),
    "layers.wv": Entry("model.layers.{}.self_attn.v_proj.weight", True),
    "layers.wo": Entry("model.layers.{}.self_attn.o_proj.weight", True),
    "layers.mlp_norm": Entry("model.layers.{}.post_attention_layernorm.weight", False),
    "layers.gate": Entry("model.layers.{}.mlp.gate_proj.weight", True),
    "layers.up": Entry("model.layers.{}.mlp.up_proj.weight", True),
    "layers.down": Entry("model.layers.{}.mlp.down_proj.weight", True),
    "final_norm": Entry("model.norm.weight", False),
    "head": Entry("lm_head.weight", True),
}
_DERIVED = ".self_attn.rotary_emb.inv_freq"
"""Stored by older versions of transformers, computed here."""
MOST_SAID = 3
"""Tensors that are wrong; the others are counted."""
BLOCK_ROWS = 1024
"""Stored rows that are moved at once."""
BLOCK_BYTES = 2**22
"""Of a file that are read and looked at together, while they lie in the cache."""
REQUESTS = 8
"""Of a bucket that are under way at once: one of 4 MiB waits as long for its first byte as it takes."""
DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


class HuggingFaceWeights:
    """The weights of a model folder or URI as slices of the parameter tree (a ``weights.Source``).

    Raises TensorFileError (missing or truncated file, missing tensor) or HuggingFaceError (shape, NaN, tensors that our
    Llama has not): names and shapes when it is opened, NaN when the slice is read.
    """

    def __init__(self, folder: str | Path, config: ModelConfig | None = None) -> None:
        """config: of the model there, read from config.json by default."""
        self.config = read_config(folder) if config is None else config
        self.files = TensorFolder(folder)
        self._requests = ThreadPoolExecutor(REQUESTS) if is_bucket(str(folder)) else None
        known = {name for label, shape in leaves(self.config).items() for name, _ in _names(label, shape)}
        known.add(TABLE["head"].name)  # may be there even where it is tied
        strange = [name for name in self.files.names() if name not in known and not name.endswith(_DERIVED)]
        wrong: list[Exception] = []
        if strange:
            said = f"{folder} holds tensors that a model of its config.json has not: {', '.join(strange[:3])}: "
            said += "config.json and weights do not belong together, or this is not a Llama"
            wrong.append(HuggingFaceError(said))
        self._dtypes: dict[str, np.dtype[Any]] = {}
        for label, shape in leaves(self.config).items():
            found = set()
            for name, want in _names(label, shape):
                try:
                    found.add(self._checked(name, want))
                except (HuggingFaceError, TensorFileError) as error:
                    wrong.append(error)
            self._dtypes[label] = np.result_type(*found) if found else np.dtype(np.float32)
        if wrong:
            more = f" (and {len(wrong) - MOST_SAID} tensors more)" if len(wrong) > MOST_SAID else ""
            raise type(wrong[0])("; ".join(map(str, wrong[:MOST_SAID])) + more)

    def _checked(self, name: str, want: tuple[int, ...]) -> np.dtype[Any]:
        stored = self.files.stored(name)
        if stored.shape != want:
            raise HuggingFaceError(
                f"{name} in {self.files.folder} has shape {stored.shape}, the config says {want}: config.json and "
                "weights do not belong together"
            )
        return stored.dtype

    def chunk(self, label: str) -> tuple[int, ...]:
        """A stored row: of a bucket its columns come in one request, of a disk in one page after another."""
        shape = leaves(self.config)[label]
        row = len(shape) - (2 if TABLE[label].transpose else 1)
        return tuple(size if dim == row else 1 for dim, size in enumerate(shape))

    def dtype(self, label: str) -> np.dtype[Any]:
        """What a leaf is stored in."""
        return self._dtypes[label]

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        """One slice of a leaf, from the layers and the bytes that it needs, in memory as it lies in the file."""
        entry, dtype = TABLE[label], dtype or self.dtype(label)
        parts = normalised(index, leaves(self.config)[label])
        layers, inner = (parts[0], parts[1:]) if entry.stacked else (range(1), parts)
        stored = inner[::-1] if entry.transpose else inner
        out = np.empty((len(layers), *(len(part) for part in stored)), dtype)
        blocks: list[tuple[np.ndarray, str, range, range]] = []
        for place, layer in enumerate(layers):
            rows, columns = stored if len(stored) == 2 else (range(1), *stored)
            name, matrix = entry.name.format(layer), out[place].reshape(len(rows), len(columns))
            step = max(1, BLOCK_BYTES // (self.files.fetched_bytes(name, columns) or 1))
            for first in range(0, len(rows), step):
                blocks.append((matrix[first : first + step], name, rows[first : first + step], columns))
        for _ in map(self._into, blocks) if self._requests is None else self._requests.map(self._into, blocks):
            pass
        out = out if entry.stacked else out[0]
        return out.swapaxes(-1, -2) if entry.transpose else out

    def _into(self, block: tuple[np.ndarray, str, range, range]) -> None:
        out, name, rows, columns = block
        dtype = self.files.stored(name).dtype
        part = out if dtype == out.dtype else np.empty(out.shape, dtype)
        self.files.read(name, rows, columns, part)
        self._check(name, part)
        if part is not out:
            out[:] = part

    def _check(self, name: str, block: np.ndarray) -> None:
        """Raises HuggingFaceError where there is NaN or infinity.

        Those have an exponent of ones: the largest signed integers where they are positive, the largest unsigned ones
        where they are negative. Two comparisons without a copy run at the speed of memory.
        """
        exponent = {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F800000}[block.dtype.name]
        size = block.itemsize
        positive, any_sign = (int(block.view(f"{kind}{size}").max(initial=0)) for kind in "iu")
        if positive >= exponent or any_sign >= exponent + (1 << 8 * size - 1):
            raise HuggingFaceError(f"{name} in {self.files.folder} holds NaN or infinity: the file is damaged")


def _names(label: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and stored shapes of the tensors that make a leaf."""
    entry = TABLE[label]
    one = shape[1:] if entry.stacked else shape
    stored = one[::-1] if entry.transpose else one
    for layer in range(shape[0]) if entry.stacked else (None,):
        yield entry.name.format(layer), stored


class HuggingFaceSink:
    """Slices of the parameter tree into the safetensors of a folder or URI (a ``weights.Sink``)."""

    def __init__(
        self,
        folder: str | Path,
        config: ModelConfig,
        dtypes: dict[str, np.dtype[Any]],
        max_file_bytes: int,
    ) -> None:
        """dtypes: of every leaf as it is to be written. Layers come one after another in the files."""
        shapes = leaves(config)
        stacked = [label for label in shapes if TABLE[label].stacked]
        order = [("embed", 0), *((label, layer) for layer in range(config.num_layers) for label in stacked)]
        order += [(label, 0) for label in ("final_norm", "head") if label in shapes]
        tensors = []
        for label, layer in order:
            name, shape = list(_names(label, shapes[label]))[layer]
            tensors.append(Tensor(name, dtypes[label], shape))
        self._dtypes = dtypes
        self.writer = FolderWriter(str(folder), tensors, max_file_bytes)
        self.in_order = self.writer.in_order
        self.order = order

    def write(self, label: str, index: tuple[range, ...], array: np.ndarray) -> None:
        """One slice of whole stored rows."""
        entry = TABLE[label]
        layers = index[0] if entry.stacked else range(1)
        for place, layer in enumerate(layers):
            part, parts = (array[place], index[1:]) if entry.stacked else (array, index)
            if len(parts) == 1:
                part, parts = part[None], (range(1), *parts)
            stored_rows = parts[1] if entry.transpose else parts[0]
            for first in range(0, len(stored_rows), BLOCK_ROWS):
                block = part[:, first : first + BLOCK_ROWS] if entry.transpose else part[first : first + BLOCK_ROWS]
                block = block.astype(self._dtypes[label], copy=False)
                rows = transposed(block) if entry.transpose else block
                self.writer.write(entry.name.format(layer), stored_rows.start + first, rows)

    def close(self) -> None:
        """Make sure that everything lies on the disk, and name the files."""
        self.writer.close()


def transposes(label: str) -> bool:
    """Whether a leaf is stored the other way round."""
    return TABLE[label].transpose
