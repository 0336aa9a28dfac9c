"""Memory of devices while weights are written over others, counted in a process with two simulated devices."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

RUN = """
import dataclasses, json
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from lemur_ray.serve.compute import programs
from lemur_ray.serve.compute.devices import Devices
from lemur_ray.serve.compute.weights import check, prepare
from lemur_ray.weights.open_model import HostWeights, random_weights
from tests.serve.tiny import TINY
from tests.weights.whole_models import whole

CONFIG = dataclasses.replace(TINY, num_layers=6, vocab_size=264, qkv_bias=True, qk_norm=True)
OLD, NEW = random_weights(CONFIG, 0), random_weights(CONFIG, 1)
MESH = Mesh(np.asarray(jax.devices()), ("fsdp",))
PARAMS = jax.tree.map(lambda x: jax.device_put(x, NamedSharding(MESH, P(*[None] * (x.ndim - 1), "fsdp"))), whole(NEW))

def live():
    "Bytes on device 0, without the trainer's."
    return sum(own(a) for a in jax.live_arrays() if jax.devices()[0] in a.devices()) - TRAINER

def own(array):
    "Bytes on one device."
    return int(np.prod(array.sharding.shard_shape(array.shape))) * array.dtype.itemsize

TRAINER = 0
TRAINER = live()

class Watched(HostWeights):
    def read(self, *arguments):
        peaks.append(live())
        return super().read(*arguments)

plain = Devices.assemble
def assemble(self, *arguments):
    placed = plain(self, *arguments)
    peaks.append(live())
    return placed
Devices.assemble = assemble

measured = {}
cases = [(1, "columns", "gather", False), (2, "columns", "ordered", False), (2, "rows", "all_reduce", True),
         (2, "int8", "ordered", True), (2, "packed", "gather", False)]
for parts, form, sums, scanned in cases:
    how = (jnp.bfloat16, Devices.take(parts), form, sums)
    for name, params in (("host", whole(NEW)), ("trainer", PARAMS)):
        source, base, peaks = Watched(params, CONFIG), live(), []
        weights = prepare(OLD, *how, scanned=scanned)
        before, peaks = live() - base, []
        check(source, *how)
        checked, peaks = max(peaks) - base - before, []
        size = programs.device_bytes(weights)
        largest = max(own(a) // (6 if scanned and a.ndim > 2 else 1) for a in jax.tree.leaves(weights))
        weights = prepare(source, *how, scanned=scanned, old=weights)
        beside, after = max(peaks) - base - before, live() - base
        fresh = prepare(NEW, *how, scanned=scanned)
        same = all(np.array_equal(np.asarray(a), np.asarray(b))
                   for a, b in zip(jax.tree.leaves(weights), jax.tree.leaves(fresh), strict=True))
        measured[f"{parts} {form} {scanned} {name}"] = [before, size, largest, checked, beside, after, same]
        del weights, fresh
print(json.dumps(measured))
"""


def test_new_weights_take_a_matrix_of_memory_beside_the_old_ones_and_are_those_of_a_fresh_start() -> None:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=200, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    measured = json.loads(done.stdout.splitlines()[-1])
    assert len(measured) == 10
    for name, (before, size, largest, checked, beside, after, same) in measured.items():
        # Simulated devices are the host: embeddings and head of a trainer, once read, count as theirs.
        read = 2 * 264 * 64 * 4 + 1024 if "trainer" in name else 0
        assert before == size, name
        assert checked <= read, name
        assert beside <= read + largest * ("True" in name), f"{name}: unrolled layers are freed first"
        assert after <= before + read, name
        assert same, name
