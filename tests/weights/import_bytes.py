"""One of some processes that import a model onto one mesh: python import_bytes.py PORT RANK PROCESSES FOLDER.

Prints the bytes of tensors that this process read, and that its devices hold every bit that is theirs.
"""

import sys
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lemur_ray.config import MeshConfig
from lemur_ray.model.sharding import make_mesh, param_shardings
from lemur_ray.weights.hf_tensors import HuggingFaceWeights
from lemur_ray.weights.placing import place
from tests.weights.whole_models import whole

port, rank, processes, folder = sys.argv[1:]
if int(processes) > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", int(processes), int(rank))
source = HuggingFaceWeights(folder)
mesh = make_mesh(MeshConfig(fsdp=2 * int(processes), tp=2))
params = place(source, source.config, param_shardings(source.config, mesh))
jax.block_until_ready(params)
print("read", source.files.bytes_read, flush=True)
stored = jax.tree.leaves(whole(HuggingFaceWeights(folder)))
for leaf, expected in zip(jax.tree.leaves(params), stored, strict=True):
    assert leaf.shape == expected.shape
    for shard in leaf.addressable_shards:
        assert np.array_equal(np.asarray(shard.data), expected[shard.index])
print("every bit", flush=True)
