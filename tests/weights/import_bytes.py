"""One of some processes that import a model onto one mesh: python import_bytes.py PORT RANK PROCESSES FOLDER OUT.

Prints the bytes of tensors that this process read; then all export what they hold, together, into OUT.
"""

import sys

import jax

from lemur_ray.config import MeshConfig
from lemur_ray.model.sharding import make_mesh, param_shardings
from lemur_ray.weights.hf_export import export
from lemur_ray.weights.hf_tensors import HuggingFaceWeights
from lemur_ray.weights.param_slices import place

port, rank, processes, folder, out = sys.argv[1:]
if int(processes) > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", int(processes), int(rank))
source = HuggingFaceWeights(folder)
mesh = make_mesh(MeshConfig(fsdp=2 * int(processes), tp=2))
params = place(source, source.config, param_shardings(source.config, mesh))
jax.block_until_ready(params)
print("read", source.files.bytes_read, flush=True)
export(params, source.config, None, out, dtype="bfloat16")
