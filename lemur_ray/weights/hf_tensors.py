"""Read and write weights in the Hugging Face layout, by one table from tree paths to tensor names.

torch stores a linear layer as (out, in), this project as (in, out); all other differences are names. A leaf is an array
of the parameter tree, a label its dotted path."""

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
    """Location of a leaf of the parameter tree in safetensors: the tensor's name, and whether it is transposed."""

    name: str
    """Tensor name; {} is the layer number of a stacked leaf."""
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
    "layers.bq": Entry("model.layers.{}.self_attn.q_proj.bias", False),
    "layers.bk": Entry("model.layers.{}.self_attn.k_proj.bias", False),
    "layers.bv": Entry("model.layers.{}.self_attn.v_proj.bias", False),
    "layers.q_norm": Entry("model.layers.{}.self_attn.q_norm.weight", False),
    "layers.k_norm": Entry("model.layers.{}.self_attn.k_norm.weight", False),
    "layers.mlp_norm": Entry("model.layers.{}.post_attention_layernorm.weight", False),
    "layers.post_attn_norm": Entry("model.layers.{}.post_attention_layernorm.weight", False),
    "layers.post_mlp_norm": Entry("model.layers.{}.post_feedforward_layernorm.weight", False),
    "layers.gate": Entry("model.layers.{}.mlp.gate_proj.weight", True),
    "layers.up": Entry("model.layers.{}.mlp.up_proj.weight", True),
    "layers.down": Entry("model.layers.{}.mlp.down_proj.weight", True),
    "final_norm": Entry("model.norm.weight", False),
    "head": Entry("lm_head.weight", True),
}
_MLP_NORM_OF_FOUR = Entry("model.layers.{}.pre_feedforward_layernorm.weight", False)
"""The entry of layers.mlp_norm in families with ``post_norms``, where its name in ``TABLE`` is post_attn_norm's."""
_DERIVED = ".self_attn.rotary_emb.inv_freq"
"""Suffix of the names of tensors that older versions of transformers stored and that are ignored."""
MOST_LISTED = 3
"""Maximum number of wrong tensors listed in an error; the rest are counted."""
BLOCK_ROWS = 1024
"""Maximum number of stored rows that are copied at once."""
BLOCK_BYTES = 2**22
"""Bytes that are read and checked together, while they are in the CPU cache."""
REQUESTS = 8
"""Concurrent requests to a bucket: one of 4 MiB takes as long to its first byte as to transfer."""
DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


class HuggingFaceWeights:
    """Weight source (``param_slices.Source``) that reads slices from a Hugging Face folder or URI.
    Raises TensorFileError (missing or truncated file, missing tensor) or HuggingFaceError (wrong shape, NaN, unknown
    tensors): names and shapes on opening, NaN when a slice is read."""

    def __init__(self, folder: str | Path, config: ModelConfig | None = None) -> None:
        """config: model configuration; default: read from ``config.json``."""
        self.config = read_config(folder) if config is None else config
        self.files = TensorFolder(folder)
        self._requests = ThreadPoolExecutor(REQUESTS) if is_bucket(str(folder)) else None
        known = {name for label, shape in leaves(self.config).items() for name, _ in _names(label, shape, self.config)}
        known.add(TABLE["head"].name)  # may be stored even if it is tied
        strange = [name for name in self.files.names() if name not in known and not name.endswith(_DERIVED)]
        wrong: list[Exception] = []
        if strange:
            why = "config.json and weights do not belong together, or its family has other weights"
            what = f"tensors that a model of its config.json has not: {', '.join(strange[:3])}"
            wrong.append(HuggingFaceError(f"{folder} holds {what}: {why}"))
        self._dtypes: dict[str, np.dtype[Any]] = {}
        for label, shape in leaves(self.config).items():
            dtypes = set()
            for name, want in _names(label, shape, self.config):
                try:
                    dtypes.add(self._checked(name, want))
                except (HuggingFaceError, TensorFileError) as error:
                    wrong.append(error)
            self._dtypes[label] = np.result_type(*dtypes) if dtypes else np.dtype(np.float32)
        if wrong:
            more = f" (and {len(wrong) - MOST_LISTED} tensors more)" if len(wrong) > MOST_LISTED else ""
            raise type(wrong[0])("; ".join(map(str, wrong[:MOST_LISTED])) + more)

    def _checked(self, name: str, want: tuple[int, ...]) -> np.dtype[Any]:
        stored = self.files.stored(name)
        if stored.shape != want:
            raise HuggingFaceError(
                f"{name} in {self.files.folder} has shape {stored.shape}, the config says {want}: config.json and "
                "weights do not belong together"
            )
        return stored.dtype

    def chunk(self, label: str) -> tuple[int, ...]:
        """Shape of the smallest block of the leaf ``label`` to read: one stored row, contiguous in the file."""
        shape = leaves(self.config)[label]
        row = len(shape) - (2 if TABLE[label].transpose else 1)
        return tuple(size if dim == row else 1 for dim, size in enumerate(shape))

    def dtype(self, label: str) -> np.dtype[Any]:
        return self._dtypes[label]

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        """One slice of the leaf ``label`` in ``dtype`` (default: stored), in the memory order of the file; reads only
        its bytes (in a bucket, whole rows). index: a slice for each dimension. Raises HuggingFaceError for NaN or
        infinity."""
        entry, dtype = entry_of(label, self.config), dtype or self.dtype(label)
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
        """Raise HuggingFaceError if a block of tensor ``name`` has NaN or infinity.
        Their exponent bits are all ones: as integers they are the largest signed values if positive, the largest
        unsigned ones if negative. Two maxima without a copy run at memory speed."""
        exponent = {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F800000}[block.dtype.name]
        size = block.itemsize
        positive, any_sign = (int(block.view(f"{kind}{size}").max(initial=0)) for kind in "iu")
        if positive >= exponent or any_sign >= exponent + (1 << 8 * size - 1):
            raise HuggingFaceError(f"{name} in {self.files.folder} holds NaN or infinity: the file is damaged")


def entry_of(label: str, config: ModelConfig) -> Entry:
    """Name of the tensor in Hugging Face files, and whether it is transposed, for a leaf of the parameter tree.
    label: its dotted path, such as "layers.wq". Raises KeyError for an unknown one."""
    return _MLP_NORM_OF_FOUR if config.post_norms and label == "layers.mlp_norm" else TABLE[label]


def _names(label: str, shape: tuple[int, ...], config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (name, stored shape) of each tensor of the leaf ``label``: one per layer if it is stacked."""
    entry = entry_of(label, config)
    one = shape[1:] if entry.stacked else shape
    stored = one[::-1] if entry.transpose else one
    for layer in range(shape[0]) if entry.stacked else (None,):
        yield entry.name.format(layer), stored


class HuggingFaceSink:
    """Weight sink (``param_slices.Sink``) that writes parameters to safetensors files in a folder or at a URI, under
    the names and in the layout of Hugging Face's models. The files are valid only after ``close``."""

    def __init__(
        self, folder: str | Path, config: ModelConfig, dtypes: dict[str, np.dtype[Any]], max_file_bytes: int
    ) -> None:
        """folder: path or URI. dtypes: dtype in which each parameter is stored, by its label (``param_slices.leaves``).
        max_file_bytes: size at which the next file begins. Tensors are in the order of the layers. Raises OSError if a
        local disk lacks space."""
        shapes = leaves(config)
        stacked = [label for label in shapes if TABLE[label].stacked]
        order = [("embed", 0), *((label, layer) for layer in range(config.num_layers) for label in stacked)]
        order += [(label, 0) for label in ("final_norm", "head") if label in shapes]
        tensors = []
        for label, layer in order:
            name, shape = list(_names(label, shapes[label], config))[layer]
            tensors.append(Tensor(name, dtypes[label], shape))
        self._dtypes, self._config = dtypes, config
        self.writer = FolderWriter(str(folder), tensors, max_file_bytes)
        self.in_order = self.writer.in_order
        self.order = order

    def write(self, label: str, index: tuple[range, ...], array: np.ndarray) -> None:
        """Write a slice of the parameter ``label``, cast to its stored dtype. index: the slice's range in each
        dimension; it must consist of whole rows of the stored tensor. array: content of the slice."""
        entry = entry_of(label, self._config)
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
        self.writer.close()


def transposes(label: str) -> bool:
    """Whether the leaf ``label`` is stored transposed in Hugging Face folders."""
    return TABLE[label].transpose
