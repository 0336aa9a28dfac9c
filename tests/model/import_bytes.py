"""One of two processes that import a model onto one mesh: python import_bytes.py PORT RANK FOLDER OUT.

Prints the bytes of tensors that this process read; then both export what they hold, together, into OUT.
"""

import sys

import jax

from lemur_ray.config import MeshConfig
from lemur_ray.model.hf import HuggingFaceWeights
from lemur_ray.model.hf_export import export
from lemur_ray.model.sharding import make_mesh, param_shardings
from lemur_ray.model.weights import place

port, rank, folder, out = sys.argv[1:]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{port}", 2, int(rank))
source = HuggingFaceWeights(folder)
params = place(source, source.config, param_shardings(source.config, make_mesh(MeshConfig(fsdp=4, tp=2))))
jax.block_until_ready(params)
print("read", source.files.bytes_read, flush=True)
export(params, source.config, None, out, dtype="bfloat16")
