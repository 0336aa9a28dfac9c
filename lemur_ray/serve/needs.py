"""What serving a model needs before anything is started: engine, devices, room for its weights, a port; in one list.

Takes seconds and reads no weights. Refuses only what is certain: room for the cache and for a step comes on top.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

from lemur_ray.config import ModelConfig
from lemur_ray.doctor.devices import Devices
from lemur_ray.host.ports import unusable
from lemur_ray.recipes import get_recipe
from lemur_ray.serve.config import EngineOptions, ServeJob
from lemur_ray.text.backends import TOKENIZER
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.model_faults import inspect_model
from lemur_ray.weights.open_model import MODEL_ERRORS, RANDOM, load_tokenizer, open_model

GIB = 2**30
_BYTES = {"float32": 4, "bfloat16": 2}


class NotServed(ValueError):
    """Serving would come to nothing here. ``said``: everything that lacks."""

    def __init__(self, spec: str, said: Sequence[str]) -> None:
        super().__init__("\n- ".join([f"{spec} is not served:", *said]))
        self.said = tuple(said)


def look_first(spec: str, job: ServeJob, found: Devices) -> OpenShape:
    """What is to be served, where nothing lacks. Raises NotServed."""
    lacking = of_engine(job) + of_devices(job, found)
    opened = None
    try:
        opened = shape_of(spec)
        lacking += of_memory(opened.config, job, found)
        if opened.tokenizer is None and job.backend != "vllm":
            lacking.append(f"no {TOKENIZER} in {spec}: copy the one that belongs to the model there")
    except MODEL_ERRORS as error:
        parts = inspect_model(spec)
        lacking += parts.faults or [str(error)]
        lacking += parts.absent if job.backend != "vllm" else ()
        lacking += of_memory(parts.config, job, found) if parts.config else []
    lacking += of_port(job, found)
    if lacking or opened is None:
        raise NotServed(spec, lacking)
    return opened


@dataclass(frozen=True)
class OpenShape:
    """Of a model whose weights are not read. ``tokenizer``: None where its folder has none."""

    config: ModelConfig
    tokenizer: Tokenizer | None


def shape_of(spec: str) -> OpenShape:
    """Of the model that a spec names, as ``weights.open_model`` takes it. Raises MODEL_ERRORS."""
    if spec.startswith(RANDOM):  # opening one makes its weights
        config = get_recipe(spec.removeprefix(RANDOM).partition("@")[0]).model
        return OpenShape(config, load_tokenizer(spec))
    model = open_model(spec)
    return OpenShape(model.source.config, model.tokenizer)


def of_engine(job: ServeJob) -> list[str]:
    """Whether the package that generates is installed."""
    if job.backend != "vllm" or importlib.util.find_spec("vllm") is not None:
        return []
    return ["vLLM is not installed: pip install 'lemur-ray[vllm]' (it wants GPUs), or leave --engine out"]


def of_devices(job: ServeJob, found: Devices) -> list[str]:
    """What of cores, GPUs and chips is not there for all replicas."""
    engines, hosts, each = job.replicas, job.hosts, max(1, job.engine.tensor_parallel)
    asked = {"CPU cores": (engines * hosts.num * job.num_cpus * (not job.no_ray), found.cpus)}
    on_gpus = hosts.on_gpus(found.gpus > 0 and not job.no_ray)
    if on_gpus or job.backend == "vllm":
        asked["GPUs"] = (engines * each, found.gpus)
    if hosts.topology:
        asked["TPU chips"] = (engines * each, found.tpus)
    return [
        f"devices: {job.replicas} replica(s) take {needed:g} {what}; {found}: ask for less (--replicas, --num-cpus, "
        f"--hosts, --engine.tensor-parallel{', JAX_PLATFORMS=cpu' if what == 'GPUs' else ''}), or submit it to a "
        "cluster that has them (RAY_ADDRESS)"
        for what, (needed, there) in asked.items()
        if needed > there
    ]


def of_memory(config: ModelConfig, job: ServeJob, found: Devices) -> list[str]:
    """Whether the weights of all replicas have room where they are known to lie: on this machine."""
    rooms = [room for room in (found.memory_bytes, found.gpu_bytes) if room is not None]
    if job.hosts.topology or job.backend == "vllm" or not rooms:
        return []
    room, copies = max(rooms), job.replicas
    size = copies * weight_bytes(config, job.engine)
    if size <= room:
        return []
    smaller = {"--engine.dtype bfloat16": 2, "--engine.quantization int8": 1}
    fits = [flag for flag, width in smaller.items() if copies * config.num_params * width < min(room, size)]
    instead = f"take {' or '.join(fits)}" if fits else "take a smaller model, or more GPUs or TPU chips"
    return [
        f"memory: {config.num_params / 1e9:.1f} billion parameters as {_form(job.engine)} take {size / GIB:.1f} GiB"
        f"{f' in {copies} replicas' if copies > 1 else ''}, {found.where} has {room / GIB:.1f} GiB to give: {instead}"
    ]


def of_port(job: ServeJob, found: Devices) -> list[str]:
    """Whether one can listen there; of a cluster's head, where Serve may do so already, nobody here knows."""
    why = unusable(job.host, job.port) if found.is_here else ""
    if not why:
        return []
    if not job.port:
        return [f"--host {job.host}: {why}: give an address of this machine, 127.0.0.1 or 0.0.0.0"]
    return [f"port {job.port} of {job.host}: {why}: give another one with --port, or --port 0 for any that is free"]


def weight_bytes(config: ModelConfig, options: EngineOptions) -> int:
    """At least."""
    return config.num_params * (1 if options.quantization == "int8" else _BYTES[options.dtype])


def _form(options: EngineOptions) -> str:
    return options.quantization if options.quantization != "none" else options.dtype
