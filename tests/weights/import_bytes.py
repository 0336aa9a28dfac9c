"""One of some processes that import a model onto one mesh: import_bytes.py PORT RANK PROCESSES FOLDER [COPY].

Prints the bytes of tensors that this process read, and that its devices hold every bit that is theirs, by a COPY of the
folder on a disk.
"""

import dataclasses
import sys
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lemur_ray.config import MeshConfig
from lemur_ray.model.llama import Params
from lemur_ray.model.sharding import make_mesh, param_shardings
from lemur_ray.weights.hf_tensors import HuggingFaceWeights
from lemur_ray.weights.mesh_loading import place
from lemur_ray.weights.vocabulary_growth import GrownWeights
from tests.weights.whole_models import whole

port, rank, processes, folder, *copy = sys.argv[1:]
if int(processes) > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", int(processes), int(rank))
source = HuggingFaceWeights(folder)
mesh = make_mesh(MeshConfig(fsdp=len(jax.devices()) // 2, tp=2))


def compare(params: Params, stored: Params, off: float = 0.0) -> None:
    for leaf, expected in zip(jax.tree.leaves(params), jax.tree.leaves(stored), strict=True):
        assert leaf.shape == expected.shape
        for shard in leaf.addressable_shards:
            assert np.allclose(np.asarray(shard.data), expected[shard.index], rtol=0, atol=off)


params = place(source, source.config, param_shardings(source.config, mesh))
jax.block_until_ready(params)
print("read", source.files.bytes_read, flush=True)
there = HuggingFaceWeights(copy[0] if copy else folder)
compare(params, whole(there))
print("every bit", flush=True)
if copy:
    grown = dataclasses.replace(source.config, vocab_size=source.config.vocab_size + 6)
    compare(place(there, grown, param_shardings(grown, mesh)), whole(GrownWeights(there, grown.vocab_size)), 2e-3)
    print("new rows", flush=True)
