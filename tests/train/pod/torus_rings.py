"""How rings of a mesh lie on the torus of a TPU slice that is not there: python torus_rings.py SLICE FSDP TP ...

Prints one JSON object a mesh: for devices by process and along the torus, of the rings over each axis how many links it
is on average from one device to the next, and how many rings go over the busiest link in one direction.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np

from lemur_ray.train.aot.absent_devices import devices, environment
from lemur_ray.train.pod.slices import parse_slice


def rings(mesh: np.ndarray, axis: int, torus: tuple[int, ...]) -> tuple[float, int]:
    """Mean links from one device of a ring to the next by the shortest way, axis by axis; the most rings of a link."""
    used: Counter[tuple[tuple[int, ...], int, int]] = Counter()
    hops = 0
    for ring in np.moveaxis(mesh, axis, -1).reshape(-1, mesh.shape[axis]):
        for one, following in zip(ring, np.roll(ring, -1), strict=True):
            at = list(one.coords[: len(torus)])
            for dim, size in enumerate(torus):
                while at[dim] != following.coords[dim]:
                    ahead = (following.coords[dim] - at[dim]) % size
                    step = 1 if ahead <= size - ahead else -1
                    used[tuple(at), dim, step] += 1
                    hops += 1
                    at[dim] = (at[dim] + step) % size
    return hops / mesh.size, max(used.values(), default=0)


asked = [sys.argv[i : i + 3] for i in range(1, len(sys.argv), 3)]
for text, fsdp, tp in asked:
    where = parse_slice(text)
    os.environ.update(environment(where, True, where.num_chips))
    from lemur_ray.train.pod.placement import along_torus

    there = sorted(devices(where, 1), key=lambda device: (device.process_index, device.id))
    shape, torus = (int(fsdp), int(tp)), tuple(int(n) for n in where.topology.split("x"))
    ordered = along_torus(there, 1, *shape)
    assert {device.id for device in ordered} == {device.id for device in there}
    found = {}
    for name, order in (("by process", there), ("along the torus", ordered)):
        mesh = np.array(order, dtype=object).reshape(shape)
        found[name] = {"fsdp": rings(mesh, 0, torus), "tp": rings(mesh, 1, torus)}
    print(json.dumps(found), flush=True)
