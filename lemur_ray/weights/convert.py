"""Convert a model to the Hugging Face format or to a run folder of this project.

Weights are copied in blocks, so the model may be larger than memory. A folder is called ``.partial`` until it is
complete; in a bucket, which has no rename, the file that identifies a model is written last."""

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lemur_ray.config import ModelConfig, Recipe, identity
from lemur_ray.host.file_lock import take
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.storage.file_system import COMMIT_MARKER, file_system
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import save_folder
from lemur_ray.weights.checkpoints import CHECKPOINTS
from lemur_ray.weights.hf_config import HuggingFaceError, config_files, tokenizer_files
from lemur_ray.weights.hf_tensors import BLOCK_ROWS, DTYPES, HuggingFaceSink, transposes
from lemur_ray.weights.open_model import OpenModel, open_model
from lemur_ray.weights.orbax_params import CHUNK, CheckpointSink
from lemur_ray.weights.param_slices import Source, leaves, stream
from lemur_ray.weights.safetensors_writer import check_space, size_text

_LAST = {"hf": "config.json", "run": "recipe.json"}
"""Target format -> file that identifies a folder as a model, which is written last."""


@dataclasses.dataclass(frozen=True)
class Convert:
    """Convert a model between this project's run folders and the Hugging Face format."""

    model: str
    """Run folder or its name, checkpoint, Hugging Face folder, random:nano or random:nano@RUN; a path or gs:// or s3://
    URI."""
    out: str
    """Folder to write, path or URI; relative paths lie in LEMUR_HOME."""
    to: Literal["hf", "run"] = "hf"
    """hf: safetensors, configs and tokenizer. run: a run folder with one checkpoint at step 0."""
    dtype: Literal["stored", "float32", "bfloat16"] = "stored"
    """Type of the weights that are written; stored: what they have, bit for bit (runs of this project: float32)."""
    max_file_gb: float = 5.0
    """Size of one weight file in Hugging Face format at most, in 10^9 bytes."""


def convert(job: Convert, out: str) -> str:
    """Convert the model ``job.model`` into the folder ``out`` (path or URI); returns ``out``.
    Raises FileExistsError if ``out`` is not empty, OSError if there is no space, and the errors of ``open_model``."""
    fs, inner = file_system(out)
    occupied = fs.exists(inner) and fs.ls(inner, detail=False)
    if occupied and ("://" not in out or fs.exists(f"{inner}/{_LAST[job.to]}")):
        raise FileExistsError(f"{out} is not empty: choose another --out")
    model = open_model(job.model)
    config = model.source.config
    dtypes = {
        label: model.source.dtype(label) if job.dtype == "stored" else DTYPES[job.dtype] for label in leaves(config)
    }
    needed = sum(int(np.prod(shape)) * dtypes[label].itemsize for label, shape in leaves(config).items())
    with _full_disk_named(out, needed):
        if job.to == "hf":
            with _renamed_when_complete(out) as folder:
                export(model.source, model.tokenizer, folder, dtypes, int(job.max_file_gb * 10**9))
        elif "://" not in out:
            with _renamed_when_complete(out) as folder:
                check_space(folder, needed)
                _write_run(model, Path(folder), dtypes, job)
        else:  # a checkpoint is not written in one pass, so orbax needs a local disk
            check_space(tempfile.gettempdir(), needed)
            with tempfile.TemporaryDirectory(prefix="lemur-convert-") as folder:
                _write_run(model, Path(folder), dtypes, job)
                _upload(Path(folder), out)
    return out


def export(
    source: Source,
    tokenizer: Tokenizer | None,
    folder: str | Path,
    dtypes: dict[str, np.dtype[Any]],
    max_file_bytes: int,
) -> None:
    """Write weights, configs and tokenizer with chat template to a folder or URI, as ``transformers`` loads them.
    dtypes: dtype of every written leaf by path; with the stored dtypes, import and export are bit-exact.
    max_file_bytes: of one safetensors file. Raises HuggingFaceError if the tokenizer is larger than the model, before
    anything is written; OSError if there is no space; the errors of reading the source."""
    config = source.config
    if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
        raise HuggingFaceError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model {config.vocab_size} rows: they do not fit"
        )
    sink = HuggingFaceSink(folder, config, dtypes, max_file_bytes)
    stream(source, sink, transposes, block_rows=BLOCK_ROWS)
    sink.close()
    write_small_files(str(folder), config, tokenizer, dtypes["embed"].name)


def write_small_files(folder: str, config: ModelConfig, tokenizer: Tokenizer | None, dtype: str) -> None:
    """Write tokenizer and configs to a folder or URI; ``config.json`` last, as it identifies a complete model. dtype:
    of the weights, as "bfloat16"."""
    texts = tokenizer_files(tokenizer) if tokenizer is not None else {}
    fs, inner = file_system(folder)
    for name, text in (texts | config_files(config, tokenizer, dtype)).items():
        fs.pipe_file(f"{inner}/{name}", text.encode())


def _write_run(model: OpenModel, folder: Path, dtypes: dict[str, np.dtype[Any]], job: Convert) -> None:
    """Write a run folder with a checkpoint at step 0 without optimizer state, for other runs to start from."""
    recipe = Recipe(name=model.name, source=f"converted from {job.model}", model=model.source.config)
    plan = {"rows": 0, "recipe": identity(recipe), "hash": recipe.hash, "init_from": model.version}
    sink = CheckpointSink(folder / CHECKPOINTS / "0", model.source.config, dtypes, plan, transposes)
    stream(model.source, sink, transposes, block_rows=CHUNK)
    sink.close()
    if model.tokenizer is not None:
        save_folder(model.tokenizer, folder)
    full = {"recipe": dataclasses.asdict(recipe), "hash": recipe.hash, "identity": identity(recipe)}
    (folder / "recipe.json").write_text(json.dumps(full, indent=1))


@contextlib.contextmanager
def _renamed_when_complete(out: str) -> Iterator[str]:
    """Folder to write to in the block: ``<out>.partial``, locked and finally renamed to ``out``; ``out`` in a bucket.
    Raises FileExistsError if another conversion holds the lock."""
    if "://" in out:
        yield out
        return
    partial = Path(f"{out}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    folder = os.open(partial, os.O_RDONLY)
    try:
        if not take(folder):  # a lock on the folder itself leaves no file
            raise FileExistsError(f"{out} is just being written by another conversion: wait for it")
        for entry in partial.iterdir():  # of a killed conversion
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        try:
            yield str(partial)
            if Path(out).exists():
                Path(out).rmdir()  # known to be empty
            partial.rename(out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    finally:
        os.close(folder)


def _upload(folder: Path, out: str) -> None:
    """Upload a run folder. Markers of commits come after all data, and the file that identifies a run comes last."""
    fs, inner = file_system(out)
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: -len(path.parts))
    for path in sorted(files, key=lambda path: (path.name == _LAST["run"], path.name == COMMIT_MARKER)):
        fs.put_file(str(path), f"{inner}/{path.relative_to(folder).as_posix()}")


@contextlib.contextmanager
def _full_disk_named(out: str, needed: int) -> Iterator[None]:
    """Context manager that turns an error about a full disk into an OSError with the ``needed`` bytes."""
    try:
        yield
    except (OSError, ValueError) as error:
        if is_full_disk(error) or "No space left on device" in str(error):
            raise OSError(
                f"no space for {out}: {size_text(needed)} are needed, the disk filled up on the way: make room or "
                "choose another --out"
            ) from error
        raise
