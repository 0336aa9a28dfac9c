"""Loss and gradients are the same on every mesh, in one microbatch or many, with documents packed or one to a row."""

import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
sys.path[:0] = sys.argv[1:3]
import jax, numpy as np
from lemur_ray.config import DataConfig, MeshConfig, ModelConfig, Recipe, TrainConfig
from lemur_ray.model.sharding import batch_sharding, make_mesh, param_shardings
from lemur_ray.train.step import execution, gradients, init_state
from tests.model.tiny_batches import packed_batch

MODEL = ModelConfig(vocab_size=64, num_layers=3, dim=32, ffn_dim=64, num_heads=8, num_kv_heads=4, head_dim=8)
LENGTH = 64 if sys.argv[3] == "families" else 16
PACKED = [[9, 7], [16], [3, 5, 8], [12]] * 64
ALONE = [[size] for row in PACKED for size in row]
ALONE += [[1]] * (512 - len(ALONE))  # a document of one token trains nothing

def start(model):
    rng, params = np.random.default_rng(0), init_state(Recipe(model=model)).params
    vectors = {
        name: w + rng.normal(0, 0.3, w.shape).astype(np.float32)
        for name, w in params["layers"].items() if w.ndim == 2
    }
    return {**params, "layers": {**params["layers"], **vectors}}

def run(fsdp, tp, microbatches, remat, documents, dcn=1, model=MODEL):
    train = TrainConfig(rows_per_step=len(documents), microbatches=microbatches, remat=remat)
    recipe = Recipe(model=model, data=DataConfig(seq_len=LENGTH), train=train)
    mesh = make_mesh(MeshConfig(dcn=dcn, fsdp=fsdp, tp=tp), jax.devices()[: dcn * fsdp * tp])
    how = execution(recipe, mesh)._replace(unroll=False)
    params = jax.tree.map(jax.device_put, start(model), param_shardings(model, mesh))
    batch = jax.device_put(packed_batch(documents, 64, length=LENGTH), batch_sharding(mesh))
    total, grads, _ = jax.jit(lambda p, b: gradients(p, b, recipe, how))(params, batch)
    return float(total), jax.tree.map(np.asarray, grads)

worst = 0.0

def compare(found, expected, *case):
    global worst
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        off = np.abs(np.asarray(a) - b).max() / np.abs(b).max()
        worst = max(worst, off)
        assert off < 1e-5, (*case, off)

if sys.argv[3] == "families":
    from lemur_ray.weights.families import config_of
    from tests.weights.torch_models import FAMILIES, hf_config

    LONG = [[60, 4], [33, 31], [64], [5, 50]] * 4  # longer than a window and than what yarn and llama3 scale from
    for name in FAMILIES:
        model = config_of(hf_config(name).to_dict(), name)
        expected = run(1, 1, 1, "none", LONG, model=model)
        compare(run(2, 2, 2, "save_dots", LONG, dcn=2, model=model), expected, name)
    print(f"worst {worst:.1e} of {len(FAMILIES)}")
    sys.exit()
expected = run(1, 1, 1, "none", PACKED)
for fsdp, tp in ((1, 1), (8, 1), (4, 2), (2, 4)) if sys.argv[3] == "every" else ((4, 2),):
    for microbatches, remat in ((1, "save_dots"), (32, "full")):
        for documents in (PACKED, ALONE):
            found = run(fsdp, tp, microbatches, remat, documents)
            compare(found, expected, fsdp, tp, microbatches, len(documents))
print(f"worst {worst:.1e}")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "meshes",
    [
        "one",
        pytest.param("every", marks=pytest.mark.sweep),
        # two programs for each of eleven models: minutes of compiling
        pytest.param("families", marks=[pytest.mark.sweep, pytest.mark.timeout(2400)]),
    ],
)
def test_meshes_microbatches_and_packing_agree_to_five_digits(meshes: str) -> None:
    here = Path(__file__).resolve().parent
    paths = [str(here.parents[1]), str(here.parent / "model")]
    done = subprocess.run([sys.executable, "-c", CASES, *paths, meshes], capture_output=True, text=True, timeout=2400)
    assert done.stdout.startswith("worst "), done.stderr[-3000:]
