"""Chooses which devices of a Ray cluster serve a model where a job leaves that open: GPUs of a host, or a TPU slice.

By the formulas of the plan. Knows the cluster by ``ray.nodes()`` alone.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from lemur_ray.config import ModelConfig
from lemur_ray.serve.config import Hosts, ServeJob
from lemur_ray.serve.planning.machines import can_hold, machine_of, smallest_count
from lemur_ray.train.pod.gpu_hosts import GPUS, GpuHosts
from lemur_ray.train.pod.slices import Slice, generation

log = logging.getLogger(__name__)

_TOPOLOGY, _POD_TYPE, _SLICE_NAME = "ray.io/tpu-topology", "ray.io/tpu-pod-type", "ray.io/tpu-slice-name"
_KIND = "accelerator_type:"


def with_devices(job: ServeJob, config_of: Callable[[], ModelConfig], nodes: Sequence[Mapping[str, Any]]) -> ServeJob:
    """The job with the devices of the cluster that serve the model, unless it names some; the log says which.
    On GPUs the fewest of a host that hold the model; on TPUs the smallest slice that does and of which there is one for
    each replica, else the smallest that does, else the largest.
    One device where the kind of GPUs is unknown and on CPUs; all of the hosts that ``job.hosts`` names.
    config_of: opens the model, called only for GPUs and TPUs. nodes: as ``ray.nodes()`` returns them."""
    if job.engine.tensor_parallel >= 0:
        return job
    alive = [node for node in nodes if node["Alive"]]
    if job.hosts.topology or job.hosts.num > 1:
        return _with(job, job.hosts, 0)
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return _with(job, job.hosts, 1)
    if counts := dict(sorted((gpus for node in alive for gpus in _gpus(node)), key=itemgetter(1))):  # the largest host
        kind = max(counts, key=lambda kind: counts[kind])
        if kind not in GPUS:
            log.warning("GPUs of an unknown kind: one serves the model, --engine.tensor-parallel takes more")
            return _with(job, job.hosts, 1)
        num = smallest_count(config_of(), job.engine, machine_of(GpuHosts(kind, 1, counts[kind])))
        log.warning("the model takes %d of the %d GPUs (%s) of a host", num, counts[kind], kind)
        return _with(job, job.hosts, num)
    slices = _slices([node["Labels"] for node in alive])
    if not slices:
        return _with(job, job.hosts, 1)
    config, sizes = config_of(), sorted(slices, key=lambda one: one.num_chips)
    large_enough = [one for one in sizes if can_hold(config, job.engine, machine_of(one))] or sizes[-1:]
    chosen = next((one for one in large_enough if slices[one] >= job.replicas), large_enough[0])
    log.warning("the model takes a slice %s of %s", chosen.topology, chosen.generation.accelerator_type)
    name = chosen.generation.accelerator_type
    return _with(job, Hosts(chosen.num_hosts, topology=chosen.topology, accelerator_type=name), 0)


def _with(job: ServeJob, hosts: Hosts, tensor_parallel: int) -> ServeJob:
    return replace(job, hosts=hosts, engine=replace(job.engine, tensor_parallel=tensor_parallel))


def _gpus(node: Mapping[str, Any]) -> list[tuple[str, int]]:
    """[(kind as in ``GPUS`` or as Ray has it, number)] of a host, or nothing."""
    count = int(node["Resources"].get("GPU", 0))
    kinds = [name.removeprefix(_KIND).lower() for name in node["Resources"] if name.startswith(_KIND)]
    return [(kinds[0] if kinds else "", count)] if count else []


def _slices(labels: Sequence[Mapping[str, str]]) -> Counter[Slice]:
    """The kinds of slices among hosts with these labels, and how many there are of each."""
    hosts: Counter[tuple[Slice, str]] = Counter()
    for host in labels:
        if (pod_type := host.get(_POD_TYPE)) and (topology := host.get(_TOPOLOGY)):
            name = generation(pod_type.split("-")[0]).accelerator_type
            hosts[Slice.of(name, topology), host.get(_SLICE_NAME, "")] += 1
    slices: Counter[Slice] = Counter()
    for (kind, name), number in hosts.items():
        slices[kind] += 1 if name else max(1, number // kind.num_hosts)  # those without a name may be several
    return slices
