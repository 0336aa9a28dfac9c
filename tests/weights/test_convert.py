"""The job that converts models: buckets, kills, full disks, folders that are no models; runs that start from them."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import jax
import numpy as np
import pytest

from lemur_ray.config import MeshConfig, ModelConfig, Recipe
from lemur_ray.model.llama import Params, abstract_params, init_params
from lemur_ray.model.sharding import make_mesh
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.train.checkpoint import Checkpoints
from lemur_ray.train.initial_state import initial_params
from lemur_ray.train.run.folder import RunFolderError
from lemur_ray.train.step import init_state
from lemur_ray.weights import convert as conversion
from lemur_ray.weights import safetensors_writer
from lemur_ray.weights.convert import Convert, convert
from lemur_ray.weights.hf_config import HuggingFaceError
from lemur_ray.weights.open_model import ModelNotFound, open_model
from lemur_ray.weights.orbax_params import CheckpointWeights
from lemur_ray.weights.param_slices import leaves
from lemur_ray.weights.safetensors_reader import INDEX, SINGLE, TensorFileError
from tests.weights.whole_models import params_of, write_model

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ModelConfig(
    vocab_size=264, num_layers=2, dim=32, ffn_dim=48, num_heads=4, num_kv_heads=2, head_dim=8, max_seq_len=64
)


@pytest.fixture(scope="module")
def params() -> Params:
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape, np.float32), abstract_params(CONFIG))


@pytest.fixture
def model(params: Params, tmp_path: Path) -> Path:
    """A bfloat16 model folder of several files."""
    write_model(params, CONFIG, Tokenizer.bytes_only(), tmp_path / "hf", dtype="bfloat16", max_file_bytes=30_000)
    return tmp_path / "hf"


@pytest.fixture
def bucket() -> Iterator[str]:
    """A bucket in memory."""
    yield "memory://bucket"
    fs = fsspec.filesystem("memory")
    if fs.exists("/bucket"):
        fs.rm("/bucket", recursive=True)


def run(source: Path | str, out: Path | str, to: str = "hf", **options: object) -> str:
    return convert(Convert(str(source), str(out), to, **options), str(out))  # type: ignore[arg-type]


def weights(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_a_model_goes_through_a_run_folder_and_buckets_bit_for_bit(model: Path, tmp_path: Path, bucket: str) -> None:
    small = {"max_file_gb": 3e-5}
    run(model, tmp_path / "run", "run")
    run(tmp_path / "run", f"{bucket}/hf", **small)
    run(f"{bucket}/hf", tmp_path / "back", **small)
    assert weights(tmp_path / "back") == weights(model)
    for name in (INDEX, "tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"):
        assert json.loads((tmp_path / "back" / name).read_text()) == json.loads((model / name).read_text()), name
    run(f"{bucket}/hf", f"{bucket}/run", "run")
    fsspec.filesystem("memory").get("/bucket/run", str(tmp_path / "fetched"), recursive=True)
    run(f"{tmp_path}/fetched", tmp_path / "again", **small)
    assert weights(tmp_path / "again") == weights(model)
    with pytest.raises(FileExistsError, match="is not empty"):
        run(model, f"{bucket}/hf")


def test_a_run_in_a_bucket_is_read_where_it_lies(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path / "run", "run")
    uri = f"file://{tmp_path}/run"
    run(uri, tmp_path / "back", max_file_gb=3e-5)
    assert weights(tmp_path / "back") == weights(model)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["hf", "run"])
def test_a_conversion_that_is_killed_leaves_nothing_that_looks_whole(model: Path, tmp_path: Path, to: str) -> None:
    out = tmp_path / "out"
    code = (
        "import sys, time; from lemur_ray.weights import convert as c, param_slices\n"
        "settle = param_slices._finish\n"
        "def slow(*given): settle(*given); print('moved', flush=True); time.sleep(600)\n"
        "param_slices._finish = slow\n"
        f"c.convert(c.Convert({str(model)!r}, {str(out)!r}, {to!r}), {str(out)!r})"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert "moved" in worker.stdout.readline()
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    assert not out.exists()
    assert (tmp_path / "out.partial").is_dir()
    with pytest.raises(ModelNotFound, match="expected recipe"):
        open_model(str(tmp_path / "out.partial"))
    run(model, out, to)
    assert open_model(str(out)).source.config == CONFIG
    assert not (tmp_path / "out.partial").exists()


def test_of_two_conversions_into_one_folder_the_second_is_refused(model: Path, tmp_path: Path) -> None:
    with conversion._renamed_when_complete(str(tmp_path / "out")) as folder:
        (Path(folder) / "mine").write_text("first")
        with pytest.raises(FileExistsError, match="being written by another conversion"):
            run(model, tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "first"
    assert not (tmp_path / "out.partial").exists()


def test_a_bucket_left_behind_by_a_kill_is_no_model_and_is_written_again(
    model: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(conversion, "write_small_files", killed)
        with pytest.raises(KeyboardInterrupt):
            run(model, f"{bucket}/hf")
    assert fsspec.filesystem("memory").exists(f"/bucket/hf/{SINGLE}")
    with pytest.raises(ModelNotFound, match="expected recipe"):
        open_model(f"{bucket}/hf")
    run(model, f"{bucket}/hf")
    assert open_model(f"{bucket}/hf").source.config == CONFIG


@pytest.mark.parametrize("to", ["hf", "run"])
def test_a_disk_without_room_is_named_with_the_room_that_is_needed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    usage = type("Usage", (), {"free": 1000})
    with monkeypatch.context() as patch:
        patch.setattr(safetensors_writer.shutil, "disk_usage", lambda path: usage)
        with pytest.raises(OSError, match=r"no space for .*/out.*: [\d.]+ MB are needed, 0.00 MB are free"):
            run(model, tmp_path / "out", to)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("out")]

    def full(descriptor: int, data: object, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    if to == "hf":  # it fills up on the way
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match=r"no space for .*/out: [\d.]+ MB are needed, the disk filled up"):
            run(model, tmp_path / "out", to)
        assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("out")]


def test_what_is_no_model_is_named_before_anything_is_written(model: Path, params: Params, tmp_path: Path) -> None:
    def refused(error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            run(model, tmp_path / "out", "run")
        assert not (tmp_path / "out").exists()

    files = sorted(model.glob("*.safetensors"))
    raw = files[1].read_bytes()
    files[1].write_bytes(raw[:-10])
    refused(TensorFileError, f"{files[1].name} is truncated")
    files[1].unlink()
    refused(TensorFileError, f"names files that are not there: {files[1].name}")
    files[1].write_bytes(raw)
    first = files[0].read_bytes()
    files[0].write_bytes(first[:-2] + np.array([0x7FC0], np.uint16).tobytes())
    refused(HuggingFaceError, "holds NaN or infinity")
    files[0].write_bytes(first)
    index = (model / INDEX).read_text()
    (model / INDEX).write_text("{}")
    refused(TensorFileError, "is no index of weights")
    (model / INDEX).write_text(index)
    large = Tokenizer.train(["the cat sat on the mat and the dog on the log"] * 9, 290)
    large.save(model / "tokenizer.json")
    refused(HuggingFaceError, "do not belong together")
    (model / "tokenizer.json").write_text("{")
    refused(ValueError, r"is not a tokenizer\.json")


def test_a_run_starts_from_hugging_face_weights_and_from_what_they_were_converted_to(
    model: Path, tmp_path: Path
) -> None:
    run(model, tmp_path / "run", "run")
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    recipe = Recipe(model=CONFIG)
    expected = params_of(model)
    for spec in (model, tmp_path / "run", tmp_path / "run" / "checkpoints" / "0"):
        found = initial_params(str(spec), recipe, mesh)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((np.asarray(a) == b).all()), found, expected))
        assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(found))
    grown = Recipe(model=ModelConfig(**{**vars(CONFIG), "vocab_size": 320}))
    assert initial_params(str(tmp_path / "run"), grown, mesh)["embed"].shape == (320, 32)
    cut = {**expected, "embed": expected["embed"][:-2], "head": expected["head"][:, :-2]}
    write_model(cut, ModelConfig(**{**vars(CONFIG), "vocab_size": 262}), None, tmp_path / "cut")
    found = initial_params(str(tmp_path / "cut"), recipe, mesh)
    assert np.allclose(found["embed"][-1], cut["embed"].mean(0), atol=1e-5)
    for change, named in (({"ffn_dim": 64}, "ffn_dim: 48 != 64"), ({"vocab_size": 4096}, "vocab_size: 264 != 4096")):
        other = Recipe(model=ModelConfig(**{**vars(CONFIG), **change}))
        with pytest.raises(RunFolderError, match=f"is another model .*\n.*{named}"):
            initial_params(str(model), other, mesh)


def test_a_checkpoint_of_training_is_exported_layer_by_layer(tmp_path: Path) -> None:
    recipe = Recipe(model=CONFIG)
    state = init_state(recipe, jax.tree.map(jax.numpy.asarray, init_params(CONFIG, 2)))
    with Checkpoints(str(tmp_path / "run" / "checkpoints"), keep=1) as checkpoints:
        checkpoints.save(3, state, {"rows": 6})
        checkpoints.wait()
    source = CheckpointWeights(tmp_path / "run" / "checkpoints" / "3", CONFIG)
    assert all(source.chunk(name)[0] == 1 for name in leaves(CONFIG) if name.startswith("layers."))
    recorded = {"recipe": dataclasses.asdict(recipe)}
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(recorded))
    Tokenizer.bytes_only().save(tmp_path / "run" / "tokenizer.json")
    run(tmp_path / "run", tmp_path / "hf")
    found = params_of(tmp_path / "hf")
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((np.asarray(a) == b).all()), state.params, found))
