"""Weights in a bucket: a host asks for as many bytes as its devices hold, in few requests; each fault is a sentence."""

import json
import math
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from lemur_ray.config import ModelConfig
from lemur_ray.host.ports import free_port
from lemur_ray.model.layout import MESH_AXES
from lemur_ray.model.llama import Params, abstract_params
from lemur_ray.model.sharding import param_shardings
from lemur_ray.recipes import get_recipe
from lemur_ray.storage.file_system import file_system
from lemur_ray.weights.hf_config import HuggingFaceError
from lemur_ray.weights.hf_tensors import BLOCK_BYTES, HuggingFaceWeights, transposes
from lemur_ray.weights.mesh_loading import read_by_rows
from lemur_ray.weights.param_slices import label, leaves
from lemur_ray.weights.safetensors_reader import INDEX, TensorFileError
from tests.storage.bucket_server import Service
from tests.weights.whole_models import whole, write_model

CONFIG = ModelConfig(
    vocab_size=264, num_layers=3, dim=32, ffn_dim=48, num_heads=4, num_kv_heads=2, head_dim=8, max_seq_len=64
)
IMPORT = Path(__file__).resolve().parents[1] / "weights" / "import_bytes.py"


@pytest.fixture(scope="module")
def params() -> Params:
    rng = np.random.default_rng(1)
    rounded = jax.tree.map(
        lambda leaf: rng.standard_normal(leaf.shape, np.float32).astype(ml_dtypes.bfloat16), abstract_params(CONFIG)
    )
    return jax.tree.map(lambda x: x.astype(np.float32), rounded)


@pytest.fixture
def url(google: Service, params: Params, tmp_path: Path) -> str:
    """A bfloat16 model in several files, in a bucket; a copy is in ``tmp_path / "bfloat16"``."""
    return stored(params, tmp_path, "bfloat16")


def stored(params: Params, folder: Path, dtype: str) -> str:
    write_model(params, CONFIG, None, folder / dtype, dtype=dtype, max_file_bytes=20_000)
    fs, bucket = file_system(f"gs://bucket/{dtype}")
    for path in (folder / dtype).iterdir():
        fs.pipe_file(f"{bucket}/{path.name}", path.read_bytes())
    return f"gs://bucket/{dtype}"


def test_slices_come_by_ranges_and_are_those_of_a_disk(google: Service, url: str, tmp_path: Path) -> None:
    source, before = HuggingFaceWeights(url), google.bytes_out
    rows = source.read("layers.wq", (slice(1, 3), slice(None), slice(8, 24)))
    assert google.bytes_out - before == source.files.bytes_read == 2 * 16 * 32 * 2
    on_disk = HuggingFaceWeights(tmp_path / "bfloat16")
    assert np.array_equal(rows, on_disk.read("layers.wq", (slice(1, 3), slice(None), slice(8, 24))))
    columns = source.read("layers.wq", (slice(0, 1), slice(0, 8), slice(None)))
    assert np.array_equal(columns, on_disk.read("layers.wq", (slice(0, 1), slice(0, 8), slice(None))))
    assert jax.tree.all(jax.tree.map(np.array_equal, whole(source), whole(on_disk)))


@pytest.mark.parametrize(("name", "fsdp", "tp"), [("lemur-70b", 64, 4), ("llama2-70b", 8, 32), ("llama2-7b", 16, 1)])
def test_a_host_of_a_pod_reads_what_its_devices_hold_in_few_requests(name: str, fsdp: int, tp: int) -> None:
    """By the plan alone: four devices that stand one after another in the mesh are a host."""
    config = get_recipe(name).model
    mesh = AbstractMesh((1, fsdp, tp), MESH_AXES, axis_types=(AxisType.Auto,) * 3)
    shapes = leaves(config)
    placed = {label(path): found for path, found in jax.tree_util.tree_leaves_with_path(param_shardings(config, mesh))}
    held = read = 0.0
    requests = 0
    for leaf, sharding in placed.items():
        shape = shapes[leaf]
        row = len(shape) - (2 if transposes(leaf) else 1)
        by_rows = read_by_rows(shape, sharding, tuple(n if dim == row else 1 for dim, n in enumerate(shape)))
        while_read: NamedSharding = sharding if by_rows is None else by_rows.read
        wide = shape if by_rows is None else by_rows.shape
        held += math.prod(sharding.shard_shape(shape)) * different(sharding)
        block = while_read.shard_shape(wide)
        assert block[row] == shape[row], f"{leaf}: whole rows"
        read += math.prod(block) * different(while_read)
        layers = shape[0] if leaf.startswith("layers.") else 1
        requests += layers * different(while_read) * max(1, -(-2 * math.prod(block) // layers // BLOCK_BYTES))
    assert read <= 1.01 * held
    assert requests <= (4 * 7 + 2) * config.num_layers + 4 * held * 2 / BLOCK_BYTES + 100


def different(sharding: NamedSharding) -> int:
    """Slices that the first four devices of a mesh (1, fsdp, tp) hold: they stand along tp, then along fsdp."""
    sizes, axes = sharding.mesh.shape, {name for names in sharding.spec if names for name in np.atleast_1d(names)}
    along = min(4, sizes["tp"])
    return (along if "tp" in axes else 1) * (4 // along if "fsdp" in axes else 1)


def test_what_is_cut_or_lies_is_one_sentence(google: Service, url: str) -> None:
    fs, folder = file_system(url)
    name = sorted(path for path in fs.find(folder) if path.endswith(".safetensors"))[0]
    good = fs.cat_file(name)
    (size,) = struct.unpack("<Q", good[:8])
    header = json.loads(good[8 : 8 + size])
    tensor = next(key for key in header if key != "__metadata__")

    def said(content: bytes) -> str:
        fs.pipe_file(name, content)
        with pytest.raises((TensorFileError, HuggingFaceError)) as caught:
            HuggingFaceWeights(url)
        assert name.rsplit("/", 1)[-1] in str(caught.value) or tensor in str(caught.value)
        return str(caught.value)

    def lying(**changed: object) -> bytes:
        text = json.dumps({**header, tensor: {**header[tensor], **changed}}).encode()
        return struct.pack("<Q", len(text)) + text + good[8 + size :]

    assert "is truncated" in said(good[:-10])
    assert "not even a header" in said(good[:5])
    assert "cut inside its header" in said(good[: 8 + size // 2])
    assert "cut inside its header" in said(struct.pack("<Q", 2**62) + good[8:])
    begin, end = header[tensor]["data_offsets"]
    shape = header[tensor]["shape"]
    assert "needs others" in said(lying(shape=[shape[0] + 1, *shape[1:]]))
    assert "damaged" in said(lying(shape=[-n for n in shape] if len(shape) == 2 else [-1, -shape[0]]))
    assert "damaged" in said(lying(data_offsets=[float(begin), float(end)]))
    assert "has dtype I8" in said(lying(dtype="I8"))
    assert "promises" in said(lying(data_offsets=[begin + 2**40, end + 2**40]))
    fs.pipe_file(name, good)
    index = json.loads(fs.cat_file(f"{folder}/{INDEX}"))
    fs.rm_file(name)
    with pytest.raises(TensorFileError, match="names files that are not there"):
        HuggingFaceWeights(url)
    fs.pipe_file(f"{folder}/{INDEX}", json.dumps({**index, "weight_map": 3}).encode())
    with pytest.raises(TensorFileError, match="is no index of weights"):
        HuggingFaceWeights(url)


def test_a_file_that_is_cut_while_it_is_read_is_one_sentence(google: Service, url: str) -> None:
    source = HuggingFaceWeights(url)
    fs, folder = file_system(url)
    for path in fs.find(folder):
        if path.endswith(".safetensors"):
            fs.pipe_file(path, fs.cat_file(path)[:-64])
    with pytest.raises((TensorFileError, OSError), match=r"became shorter|416"):
        whole(source)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "dtype"),
    [
        (1, "bfloat16"),
        pytest.param(1, "float32", marks=pytest.mark.sweep),
        pytest.param(4, "bfloat16", marks=pytest.mark.sweep),
    ],
)
def test_eight_devices_of_some_processes_hold_every_bit_and_the_bucket_gave_it_once(
    google: Service, params: Params, tmp_path: Path, processes: int, dtype: str
) -> None:
    url = stored(params, tmp_path, dtype)
    google.asked.clear()
    google.bytes_out = 0
    flags = f"--xla_force_host_platform_device_count={8 // processes}"
    command = [sys.executable, str(IMPORT), str(free_port())]
    workers = [
        subprocess.Popen(
            [*command, str(rank), str(processes), url, str(tmp_path / dtype)],
            env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    told = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * processes
    assert all("every bit" in text and "new rows" in text for text in told)
    width = 2 if dtype == "bfloat16" else 4
    whole_bytes = width * sum(math.prod(shape) for shape in leaves(CONFIG).values())
    norms = width * (2 * CONFIG.num_layers + 1) * CONFIG.dim
    share = (whole_bytes - norms) // processes + norms
    assert [int(n) for text in told for n in re.findall(r"read (\d+)", text)] == [share] * processes
    files = list((tmp_path / dtype).glob("*.safetensors"))
    headers = sum(8 + struct.unpack("<Q", file.read_bytes()[:8])[0] for file in files)
    descriptions = 2_000 * (2 * len(files) + 10)  # what the service says of an object
    assert google.bytes_out <= 1.1 * share * processes + processes * (headers + descriptions)
    tensors = 7 * 8 * CONFIG.num_layers + 2 * 8 + (2 * CONFIG.num_layers + 1) * processes
    assert google.asked["GET object"] <= tensors + processes * (5 * len(files) + 20)
