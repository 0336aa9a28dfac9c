"""Checks a run's devices and mesh, in the driver before any worker starts and in each worker on its host.

The driver checks with abstract meshes that the parameters divide; a worker orders the devices slice by slice and
compares them with the recipe; on TPUs mesh axes lie along torus axes, so that rings connect neighbours. Knows nothing
of Ray and of what a step computes."""

import dataclasses
import logging
import math
import os
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.experimental.mesh_utils import create_device_mesh
from jax.sharding import AbstractMesh, AxisType, Mesh

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.config.mesh import check_heads
from lemur_ray.model.layout import MESH_AXES, spec
from lemur_ray.model.sharding import make_mesh, param_shardings
from lemur_ray.train.pod.slices import RunShape, run_shape, split_batch, worker_counts

log = logging.getLogger(__name__)
_FORCED = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def batch_parts(mesh: MeshConfig) -> int:
    """Number of parts that a batch divides into for every permitted number of workers: devices of dcn x fsdp.
    Devices of one tp group read the same rows. Raises ValueError as ``check_recipe`` does."""
    shapes = [run_shape(mesh, num_workers=count, cpu_devices=_cpu_devices()) for count in worker_counts(mesh)]
    return math.lcm(*(where.dcn * where.fsdp for where in shapes))


def _cpu_devices() -> int:
    """Number of devices of a worker on CPU, from XLA_FLAGS, which workers inherit."""
    forced = _FORCED.search(os.environ.get("XLA_FLAGS", ""))
    return int(forced[1]) if forced else 1


def check_recipe(recipe: Recipe) -> list[RunShape]:
    """Check hosts, mesh and batch; returns the run's shape for every permitted number of workers, largest first.
    Raises ValueError if hosts, chips and mesh do not agree, a batch does not split, or a parameter does not divide."""
    shapes = []
    check_heads(recipe.model, recipe.mesh.tp)
    for count in worker_counts(recipe.mesh):
        try:
            where = run_shape(recipe.mesh, num_workers=count, cpu_devices=_cpu_devices())
            split_batch(recipe.train, where)
            _check_shapes(recipe, where)
        except ValueError as error:
            if count == recipe.mesh.num_workers:
                raise
            least = f"with min_workers {recipe.mesh.min_workers} the run may have {count} workers: "
            raise ValueError(least + str(error)) from error
        shapes.append(where)
    return shapes


def _check_shapes(recipe: Recipe, where: RunShape) -> None:
    """Raises ValueError naming the parameter or activation that does not divide over the mesh."""
    shape = (where.dcn, where.fsdp, where.tp)
    mesh: Any = AbstractMesh(shape, MESH_AXES, axis_types=(AxisType.Auto,) * 3)
    param_shardings(recipe.model, mesh)
    spec(("sequence",), (recipe.data.seq_len,), mesh, "data.seq_len")
    if (block := recipe.train.attention_block) and recipe.data.seq_len % block:
        raise ValueError(
            f"train.attention_block {block} does not divide data.seq_len {recipe.data.seq_len}: choose a divisor that "
            "is a multiple of 128, or 0"
        )


def mesh_here(recipe: Recipe, *, rank: int = 0, world_size: int = 1) -> tuple[RunShape, Mesh]:
    """Shape of the run, and the mesh over the devices that jax sees here. Every process makes the same call. rank,
    world_size: this worker among those of the run. Raises ValueError if devices, processes or slices are not those of
    the recipe."""
    where = run_shape(recipe.mesh, num_workers=world_size, cpu_devices=jax.local_device_count())
    devices = jax.devices()
    if jax.process_count() != world_size or jax.process_index() != rank:
        raise ValueError(
            f"this is process {jax.process_index()} of {jax.process_count()} in JAX and worker {rank} of {world_size} "
            "in Ray: they must be the same, or rows would go to the wrong devices"
        )
    if len(devices) != where.num_devices or jax.local_device_count() != where.devices_per_worker:
        raise ValueError(
            f"there are {len(devices)} {devices[0].platform} devices, {jax.local_device_count()} on this host; "
            f"expected {where.num_devices}, {where.devices_per_worker} on each of {where.num_workers} hosts: check "
            "topology, resources of a worker and JAX_PLATFORMS"
        )
    position = worker_position(where, rank)
    configured = position["megascale_slice"], position["megascale_slices"]
    if where.num_slices > 1 and configured not in ((position["slice"], where.num_slices), (-1, -1)):
        raise ValueError(
            f"worker {rank} counts to slice {position['slice']} of {where.num_slices}, but libtpu is configured for "
            f"slice {position['megascale_slice']} of {position['megascale_slices']}: leave MEGASCALE_* to Ray"
        )
    ordered = along_torus(slice_major(devices, where), where.dcn, where.fsdp, where.tp)
    config = dataclasses.replace(recipe.mesh, dcn=where.dcn, fsdp=where.fsdp)
    return where, make_mesh(config, ordered)


def worker_position(where: RunShape, rank: int) -> dict[str, int]:
    """This worker's rank, JAX process and slice, and the slice in libtpu's environment (-1: not set)."""
    return {
        "worker": rank,
        "process": jax.process_index(),
        "slice": where.slice_of(rank),
        "megascale_slice": int(os.environ.get("MEGASCALE_SLICE_ID", -1)),
        "megascale_slices": int(os.environ.get("MEGASCALE_NUM_SLICES", -1)),
    }


def worker_positions(where: RunShape, rank: int) -> list[dict[str, int]]:
    """`worker_position` of every worker. Every process makes the same call. rank: of this worker."""
    mine = worker_position(where, rank)
    table = multihost_utils.process_allgather(np.array(list(mine.values()), np.int32), tiled=False)
    return [dict(zip(mine, map(int, row), strict=True)) for row in table.reshape(-1, len(mine))]


def slice_major(devices: Sequence[Any], where: RunShape) -> list[Any]:
    """Sort devices by slice, so that mesh axis dcn is the slice, and inside a slice by process and id.
    Devices without a slice index (CPUs report 0 for all) belong to the slice of their process. Raises ValueError if a
    device is on another slice than its process number implies: slices of unequal size, or workers in another order."""
    slices = {process: where.slice_of(process) for process in range(where.num_workers)}
    for device in devices:
        actual = getattr(device, "slice_index", None) if device.platform == "tpu" else None
        expected = slices[device.process_index]
        if where.num_slices > 1 and actual is not None and actual != expected:
            raise ValueError(
                f"device {device.id} of process {device.process_index} is on slice {actual}, expected {expected}: the "
                f"{where.num_workers} workers do not stand slice by slice, {where.num_workers // where.num_slices} each"
            )
    return sorted(devices, key=lambda device: (slices[device.process_index], device.process_index, device.id))


def along_torus(devices: Sequence[Any], dcn: int, fsdp: int, tp: int) -> list[Any]:
    """Reorder ``devices``, sorted by slice, for a mesh (dcn, fsdp, tp); returns a flat list. In process order hosts of
    2 x 2 chips follow each other and a ring of fsdp takes every second chip: each hop is three links long, and two
    rings share each link. The order is unchanged off TPUs, and if a mesh axis is not a product of whole torus axes:
    splitting one shortens paths, but up to four rings then share a link (tests/train/pod/test_torus.py counts). It is
    also unchanged, with a warning, if the devices are not a whole torus."""
    if devices[0].platform != "tpu":
        return list(devices)
    ordered: list[Any] = []
    each = len(devices) // dcn
    for first in range(0, len(devices), each):
        one = list(devices[first : first + each])
        try:
            ordered += create_device_mesh((fsdp, tp), devices=one).ravel().tolist()
        except (AssertionError, NotImplementedError, ValueError) as error:
            if not isinstance(error, NotImplementedError):  # not all of the torus, or not one device a chip
                log.warning("devices of a slice stay in the order of processes: %s", str(error)[:300])
            ordered += one
    return ordered
