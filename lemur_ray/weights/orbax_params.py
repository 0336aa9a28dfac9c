"""Read and write slices of the parameters in orbax checkpoints.

Arrays are zarr inside OCDBT, orbax's layout; they are opened one by one with tensorstore, because orbax itself restores
and saves whole trees."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts

from lemur_ray.config import ModelConfig
from lemur_ray.host.exit_codes import CausedError
from lemur_ray.model.llama import abstract_params
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.health_probe import run_while_reachable
from lemur_ray.storage.retry_policy import BucketError
from lemur_ray.weights.param_slices import Index, Leaf, label, leaves, normalised
from lemur_ray.weights.safetensors_writer import Flusher

CHUNK = 1024
"""Maximum rows and columns of a written chunk; small, so that a host of a large mesh reads few unneeded bytes."""
_OF_S3 = {"endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "aws_region": ("AWS_REGION", "AWS_DEFAULT_REGION")}
"""Option of tensorstore -> environment variables of other S3 clients with the same meaning, by priority."""
_UNFINISHED = ".__lock"
"""Suffix of the name of a file that tensorstore has not finished writing."""


class CheckpointError(CausedError):
    """Raised if a checkpoint cannot be read as parameters of the model; the message gives the reason."""


class CheckpointWeights:
    """Weight source (``param_slices.Source``) of a committed checkpoint ``<run>/checkpoints/<step>``, path or URI."""

    def __init__(self, step: str | Path, config: ModelConfig, shapes: dict[str, tuple[int, ...]] | None = None) -> None:
        """shapes: of every leaf by path; default: those of the model. Raises CheckpointError if stored ones differ."""
        shapes = leaves(config) if shapes is None else shapes
        self.config, self._step = config, str(step)
        fs, inner = file_system(f"{step}/state/_METADATA")
        try:
            driver = "zarr3" if json.loads(fs.cat_file(inner)).get("use_zarr3") else "zarr"
        except (OSError, ValueError) as error:
            raise CheckpointError(f"checkpoint {step} cannot be read: {error}") from error
        context = ts.Context({"cache_pool": {"total_bytes_limit": 0}})
        opening = {
            name: ts.open(
                {"driver": driver, "kvstore": _kvstore(f"{step}/state", f"params.{name}/")},
                read=True, open=True, context=context,
            )
            for name in shapes
        }  # fmt: skip
        problem = "cannot be read: it has no params.{}, or a damaged one"
        self._arrays = {name: self._result(future.result, problem.format(name)) for name, future in opening.items()}
        for name, want in shapes.items():
            if self._arrays[name].shape != want:
                raise CheckpointError(
                    f"checkpoint {step}: {name} is {self._arrays[name].shape}, the model says {want}: it is another "
                    "model's"
                )

    def _result(self, result: Callable[[], Any], problem: str) -> Any:
        """Result of a tensorstore future. Raises CheckpointError; ``problem``: what an error of stored data means."""
        try:
            return run_while_reachable(self._step, result)
        except BucketError as error:
            raise CheckpointError(f"checkpoint {self._step} cannot be read: {error}") from error
        except (OSError, ValueError) as error:
            reason = str(error).split(" [")[0].strip()[:200]
            raise CheckpointError(f"checkpoint {self._step} {problem}: {reason}") from error

    def dtype(self, label: str) -> np.dtype[Any]:
        return np.dtype(self._arrays[label].dtype.numpy_dtype)

    def chunk(self, label: str) -> tuple[int, ...]:
        return tuple(self._arrays[label].chunk_layout.read_chunk.shape)

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        """One slice of the leaf ``label`` in ``dtype`` (default: stored), in the stored memory order. Another dtype is
        converted chunk by chunk along the first dimension, to need little more memory than the slice. index: a slice
        for each dimension."""
        array, dtype = self._arrays[label], dtype or self.dtype(label)
        parts = normalised(index, array.shape)
        if dtype == self.dtype(label):
            return self._read(array, parts)
        lengths = [len(part) for part in parts]
        columns_first = len(parts) > 1 and _order(array) == "F"
        out = np.empty([*lengths[:-2], *lengths[:-3:-1]] if columns_first else lengths, dtype)
        out = out.swapaxes(-1, -2) if columns_first else out
        depth, begin = self.chunk(label)[0], parts[0].start
        while begin < parts[0].stop:
            end = min((begin // depth + 1) * depth, parts[0].stop)
            out[begin - parts[0].start : end - parts[0].start] = self._read(array, (range(begin, end), *parts[1:]))
            begin = end
        return out

    def _read(self, array: Any, parts: tuple[range, ...]) -> np.ndarray:
        domain = tuple(slice(part.start, part.stop) for part in parts)
        return np.asarray(self._result(lambda: array[domain].read(order=_order(array)).result(), "is damaged"))


class CheckpointSink:
    """Weight sink (``param_slices.Sink``) that writes a new checkpoint of parameters only. Its folder has ``.partial``
    after its name until ``close``, so that nobody takes an incomplete one for a committed one."""

    def __init__(
        self,
        step: Path,
        config: ModelConfig,
        dtypes: dict[str, np.dtype[Any]],
        plan: dict[str, Any],
        transposes: Callable[[str], bool],
    ) -> None:
        """Begin the checkpoint ``step`` (``<run>/checkpoints/<step>``), in place of an incomplete one. plan: its JSON
        data. dtypes: dtype of every leaf by path. transposes: whether a leaf is written and stored column-major. Raises
        FileExistsError if ``step`` exists."""
        if step.exists():
            raise FileExistsError(f"{step} exists: expected a new checkpoint, choose another step")
        self._step, self._partial = step, step.with_name(f"{step.name}.partial")
        # orbax writes names, metadata and the plan for stub arrays; each array then gets its shape and data.
        shapes = leaves(config)
        stubs = jax.tree_util.tree_map_with_path(
            lambda path, leaf: np.zeros((1,) * len(leaf.shape), dtypes[label(path)]), abstract_params(config)
        )
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
            state = ocp.args.StandardSave({"params": stubs})
            items = ocp.args.Composite(state=state, plan=ocp.args.JsonSave(plan))
            checkpointer.save(self._partial, args=items, force=True)
        # Flushing once at the end, instead of after every chunk, is four times faster.
        context = ts.Context({"cache_pool": {"total_bytes_limit": 0}, "file_io_sync": False})
        opening = {
            name: ts.open(
                {
                    "driver": "zarr", "kvstore": _kvstore(f"{self._partial}/state", f"params.{name}/"), "metadata": {
                        "shape": list(shape), "chunks": _chunk(name, shape), "dtype": _zarr_name(dtypes[name]),
                        "order": "F" if transposes(name) else "C", "compressor": None,  # random mantissas do not shrink
                    },
                },
                create=True, delete_existing=True, context=context,
            )
            for name, shape in shapes.items()
        }  # fmt: skip
        self._arrays = {name: future.result() for name, future in opening.items()}
        self._flusher, self._flushed = Flusher(self._flush), set[str]()
        self.in_order = False
        self.order: list[Leaf] = [
            (name, layer)
            for name, shape in shapes.items()
            for layer in (range(shape[0]) if name.startswith("layers.") else (0,))
        ]

    def write(self, label: str, index: tuple[range, ...], array: np.ndarray) -> None:
        domain = tuple(slice(part.start, part.stop) for part in index)
        target = self._arrays[label][domain]
        target.write(array, can_reference_source_data_indefinitely=True).result()
        self._flusher.wrote(array.nbytes)

    def _flush(self) -> None:
        """Flush the files that tensorstore has finished writing to disk, each once."""
        for entry in os.scandir(f"{self._partial}/state/d"):
            if entry.name not in self._flushed and not entry.name.endswith(_UNFINISHED):
                self._flushed.add(entry.name)
                _to_disk(entry.path)

    def close(self) -> None:
        self._arrays.clear()
        self._flusher.close()
        for folder, _, names in os.walk(self._partial):
            for name in (*names, "."):
                _to_disk(f"{folder}/{name}")
        self._partial.rename(self._step)
        _to_disk(f"{self._step.parent}")


def _to_disk(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _order(array: Any) -> Literal["C", "F"]:
    """Memory order of the chunks of an array: C if the last dimension varies fastest, F if the first does."""
    return "F" if tuple(array.chunk_layout.inner_order) == tuple(range(array.rank))[::-1] else "C"


def _chunk(name: str, shape: tuple[int, ...]) -> list[int]:
    """Shape of the chunks in which a leaf is written; a chunk has one layer only."""
    if name.startswith("layers."):
        return [1, *(min(size, CHUNK) for size in shape[1:])]
    return [min(size, CHUNK) for size in shape]


def _zarr_name(dtype: np.dtype[Any]) -> str:
    return "bfloat16" if dtype.name == "bfloat16" else dtype.str


def _kvstore(folder: str, inside: str) -> dict[str, Any]:
    """tensorstore spec of the array ``inside`` the OCDBT database in ``folder``, on a disk or in a bucket."""
    scheme, _, rest = folder.rpartition("://")
    bucket, _, path = rest.partition("/")
    if scheme in ("", "file"):
        base: dict[str, Any] = {"driver": "file", "path": f"{rest}/"}
    elif scheme in ("gs", "gcs"):
        base = {"driver": "gcs", "bucket": bucket, "path": f"{path}/"}
    elif scheme == "s3":
        base = {"driver": "s3", "bucket": bucket, "path": f"{path}/"}
        for key, names in _OF_S3.items():  # tensorstore reads none of these itself
            if value := next(filter(None, map(os.environ.get, names)), None):
                base[key] = value
    else:
        raise CheckpointError(f"{folder}: checkpoints are read from a folder, gs or s3")
    return {"driver": "ocdbt", "base": base, "path": inside}
