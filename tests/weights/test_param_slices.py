"""Weights in slices: every byte at most once, only a process's own, the same numbers whatever the mesh."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lemur_ray.config import ModelConfig
from lemur_ray.host.ports import free_port
from lemur_ray.model.llama import Params, abstract_params
from lemur_ray.weights.checkpoints import newest_commit
from lemur_ray.weights.hf_config import HuggingFaceError
from lemur_ray.weights.hf_tensors import HuggingFaceSink, HuggingFaceWeights, transposes
from lemur_ray.weights.mesh_loading import place
from lemur_ray.weights.orbax_params import CheckpointError, CheckpointSink, CheckpointWeights
from lemur_ray.weights.param_slices import leaves, stream, transposed
from lemur_ray.weights.safetensors_reader import SINGLE
from lemur_ray.weights.vocabulary_growth import GrownWeights
from tests.weights.whole_models import whole, write_model

HERE = Path(__file__).parent
CONFIG = ModelConfig(
    vocab_size=264, num_layers=3, dim=32, ffn_dim=48, num_heads=4, num_kv_heads=2, head_dim=8, max_seq_len=64
)


@pytest.fixture(scope="module")
def params() -> Params:
    rng = np.random.default_rng(1)
    rounded = jax.tree.map(
        lambda leaf: rng.standard_normal(leaf.shape, np.float32).astype(ml_dtypes.bfloat16), abstract_params(CONFIG)
    )
    return jax.tree.map(lambda x: x.astype(np.float32), rounded)


@pytest.fixture(scope="module")
def folder(params: Params, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bfloat16 model in several files."""
    out = tmp_path_factory.mktemp("hf")
    write_model(params, CONFIG, None, out, dtype="bfloat16", max_file_bytes=20_000)
    return out


def same(a: Params, b: Params) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(np.asarray(x), np.asarray(y)), a, b))


SIZE_BYTES = sum(int(np.prod(shape)) * 2 for shape in leaves(CONFIG).values())


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_any_slice_of_any_leaf_is_read_without_the_rest(params: Params, folder: Path) -> None:
    source = HuggingFaceWeights(folder)
    part = source.read("layers.wq", (slice(1, 2), slice(0, 8), slice(16, 32)))
    assert part.dtype == ml_dtypes.bfloat16
    assert np.array_equal(part.astype(np.float32), params["layers"]["wq"][1:2, :8, 16:])
    assert source.files.bytes_read == 8 * 16 * 2
    part = source.read("embed", (slice(3, 5), slice(None)), np.dtype(np.float32))
    assert np.array_equal(part, params["embed"][3:5])
    assert source.files.bytes_read == 8 * 16 * 2 + 2 * 32 * 2


def test_a_slice_that_several_devices_hold_is_read_once(params: Params, folder: Path) -> None:
    mesh = Mesh(np.asarray(jax.devices()[:1]), ("x",))
    source = HuggingFaceWeights(folder)
    found = place(source, CONFIG, jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec()), params))
    assert same(found, params)
    assert source.files.bytes_read == SIZE_BYTES


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_every_number_that_is_not_finite_is_found_and_the_largest_are_let_through(tmp_path: Path, dtype: type) -> None:
    largest = float(ml_dtypes.finfo(dtype).max)

    def written(value: float) -> HuggingFaceWeights:
        sink = HuggingFaceSink(tmp_path, CONFIG, dict.fromkeys(leaves(CONFIG), np.dtype(dtype)), 10**9)
        sink.write("final_norm", (range(32),), np.asarray([largest, -largest, value] + [0.0] * 29, dtype))
        sink.close()
        return HuggingFaceWeights(tmp_path, CONFIG)

    assert float(written(-0.0).read("final_norm", (slice(None),))[1]) == -largest
    for value in (np.nan, -np.nan, np.inf, -np.inf):
        with pytest.raises(HuggingFaceError, match=r"norm.weight .* holds NaN or infinity"):
            written(value).read("final_norm", (slice(None),))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.sweep), 2])
def test_processes_of_four_devices_read_only_their_share_and_hold_it_bit_for_bit(
    params: Params, folder: Path, processes: int
) -> None:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, str(HERE / "import_bytes.py"), str(free_port())]
    workers = [
        subprocess.Popen(
            [*command, str(rank), str(processes), str(folder)],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    told = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * processes
    norms = sum(leaf.size for leaf in (params["final_norm"], *(params["layers"][n] for n in ("attn_norm", "mlp_norm"))))
    share = (SIZE_BYTES - 2 * norms) // processes + 2 * norms
    assert [re.findall(r"read (\d+)", text) for text in told] == [[str(share)]] * processes
    assert all("every bit" in text for text in told)


@pytest.mark.parametrize("from_run", [False, True])
def test_bfloat16_goes_through_a_checkpoint_and_back_bit_for_bit(folder: Path, tmp_path: Path, from_run: bool) -> None:
    source = HuggingFaceWeights(folder)
    dtypes = {name: source.dtype(name) for name in leaves(CONFIG)}
    if from_run:
        sink = CheckpointSink(tmp_path / "0", CONFIG, dtypes, {"rows": 0}, transposes)
        stream(source, sink, transposes, block_rows=1024)
        sink.close()
        assert same(whole(CheckpointWeights(tmp_path / "0", CONFIG)), whole(source))
    middle = CheckpointWeights(tmp_path / "0", CONFIG) if from_run else source
    back = HuggingFaceSink(tmp_path / "hf", CONFIG, dtypes, 20_000)
    stream(middle, back, transposes, block_rows=16)
    back.close()
    assert files(tmp_path / "hf") == files(folder)


def test_a_checkpoint_is_committed_once_all_weights_are_written(folder: Path, tmp_path: Path) -> None:
    source, plan = HuggingFaceWeights(folder), {"rows": 0}
    dtypes = {name: source.dtype(name) for name in leaves(CONFIG)}
    CheckpointSink(tmp_path / "7", CONFIG, dtypes, plan, transposes)  # of a process that was killed
    sink = CheckpointSink(tmp_path / "7", CONFIG, dtypes, plan, transposes)
    assert newest_commit(str(tmp_path)) is None
    stream(source, sink, transposes, block_rows=1024)
    assert newest_commit(str(tmp_path)) is None
    sink.close()
    commit = newest_commit(str(tmp_path))
    assert commit is not None
    assert (commit.step, os.listdir(tmp_path)) == (7, ["7"])
    assert same(whole(CheckpointWeights(commit.folder, CONFIG)), whole(source))
    with pytest.raises(FileExistsError, match="7 exists: expected a new checkpoint"):
        CheckpointSink(tmp_path / "7", CONFIG, dtypes, plan, transposes)


def test_the_checkpoint_of_another_model_is_refused_with_both_shapes(folder: Path, tmp_path: Path) -> None:
    source = HuggingFaceWeights(folder)
    dtypes = {name: source.dtype(name) for name in leaves(CONFIG)}
    sink = CheckpointSink(tmp_path / "0", CONFIG, dtypes, {"rows": 0}, transposes)
    stream(source, sink, transposes, block_rows=1024)
    sink.close()
    with pytest.raises(CheckpointError, match=r"layers.down is \(3, 48, 32\), the model says \(3, 64, 32\)"):
        CheckpointWeights(tmp_path / "0", dataclasses.replace(CONFIG, ffn_dim=64))
    tied = dataclasses.replace(CONFIG, tie_embeddings=True)
    assert CheckpointWeights(tmp_path / "0", tied).config == tied
    with pytest.raises(CheckpointError, match="cannot be read"):
        CheckpointWeights(tmp_path / "1", CONFIG)


def test_vocabulary_grows_by_the_mean_row_on_the_mesh_as_on_the_host(params: Params, folder: Path) -> None:
    mesh = Mesh(np.asarray(jax.devices()[:1]), ("x",))
    config = dataclasses.replace(CONFIG, vocab_size=270)
    shardings = jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec()), params)
    found = place(HuggingFaceWeights(folder), config, shardings)
    host = whole(GrownWeights(HuggingFaceWeights(folder), 270))
    for grown in (found, host):
        assert np.array_equal(grown["embed"][:264], params["embed"])
        assert np.array_equal(grown["head"][:, :264], params["head"])
        assert np.allclose(grown["embed"][264:], params["embed"].mean(0), atol=2e-3)
        assert np.allclose(grown["head"][:, 264:], params["head"].mean(1, keepdims=True), atol=2e-3)
    assert np.allclose(found["embed"], host["embed"], atol=2e-3)


@pytest.mark.parametrize("shape", [(7, 5), (256, 512), (300, 1024)])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32])
def test_a_transposed_matrix_is_transposed(shape: tuple[int, int], dtype: type) -> None:
    matrix = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape).astype(dtype)
    found = transposed(matrix)
    assert found.flags.c_contiguous
    assert np.array_equal(found, matrix.T)


def test_a_model_file_is_whole_or_not_there(params: Params, tmp_path: Path) -> None:
    sink = HuggingFaceSink(tmp_path, CONFIG, dict.fromkeys(leaves(CONFIG), np.dtype(np.float32)), 10**9)
    assert [path.name for path in tmp_path.iterdir()] == [f"{SINGLE}.partial"]
    sink.close()
    assert [path.name for path in tmp_path.iterdir()] == [SINGLE]
