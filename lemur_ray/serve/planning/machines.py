"""TPU slices and hosts of GPUs that can serve a model: their figures, and the smallest that fit, by formula alone."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lemur_ray.config import ModelConfig
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.planning import machine_defaults as formulas
from lemur_ray.serve.planning.machine_defaults import ESTIMATED_CONTEXT, Machine
from lemur_ray.train.pod.chips import CHIPS, GIB
from lemur_ray.train.pod.gpu_hosts import GPUS, PER_HOST, Devices, GpuHosts, parse_devices
from lemur_ray.train.pod.slices import GENERATIONS, parse_slice, small_slices


def machine_of(where: Devices) -> Machine:
    """Figures of a TPU slice or of GPU hosts, from tables. A TPU link's rate counts both directions of a ring."""
    chip = CHIPS[where.name]
    platform = "gpu" if isinstance(where, GpuHosts) else "tpu"
    link = chip.link_bytes_per_s * (1 if platform == "gpu" else 2)
    if isinstance(where, GpuHosts) and where.num_hosts > 1:
        link = chip.network_bytes_per_s
    return Machine(platform, where.num_chips, chip.hbm_bytes, chip.hbm_bytes_per_s, chip.peak_flops, link)


def attached_machine(devices: Sequence[Any], count: int = 0, minimum: Callable[[int], int] = int) -> Machine:
    """Figures of jax's devices of this process, of which ``count`` share a model (0: all). Figures of an unknown kind
    are those of a v4; the memory is what the poorest gives, rounded down to a quarter of a GiB. minimum: smallest value
    of all processes, which thus choose the same sizes (``compute.devices``)."""
    first, rounding = devices[0], GIB // 4
    chip = next((chip for chip in CHIPS.values() if first.device_kind in chip.kinds), CHIPS["v4"])
    limits = [(device.memory_stats() or {}).get("bytes_limit", chip.hbm_bytes) for device in devices]
    memory = minimum(min(limits) // rounding) * rounding
    platform = first.platform if first.platform in ("cpu", "tpu") else "gpu"
    return Machine(
        platform, count or len(devices), memory, chip.hbm_bytes_per_s, chip.peak_flops, chip.link_bytes_per_s
    )


def parse_machine(slice_text: str, gpu_text: str) -> Devices | None:
    """The devices of ``--slice v4:2x2x4`` or ``--gpu h200x8``; None if both are empty. slice_text, gpu_text: values of
    the two flags. Raises ValueError if both are given or one is invalid."""
    if slice_text and gpu_text:
        raise ValueError("--slice and --gpu are both given: choose one")
    if slice_text:
        if not re.match(rf"(tpu-)?({'|'.join(GENERATIONS)}|v5litepod):", slice_text.strip().lower()):
            known = ", ".join(GENERATIONS)
            raise ValueError(
                f"--slice is {slice_text!r}: expected GENERATION:TOPOLOGY, for example v4:2x2x4 (known: {known})"
            )
        return parse_slice(slice_text)
    if not gpu_text:
        return None
    name, _, count = gpu_text.strip().lower().replace(":", "x").partition("x")
    if name not in GPUS or not re.fullmatch(r"[\dx]+", count):
        raise ValueError(f"--gpu is {gpu_text!r}: expected NAMExGPUS, for example h200x8 (known: {', '.join(GPUS)})")
    return parse_devices(f"{name}:{count}")


def candidates() -> dict[str, list[Devices]]:
    """Devices to try by TPU generation or GPU name, smallest first: slices of up to 64 chips, hosts of up to 8 GPUs."""
    slices: dict[str, list[Devices]] = {name: list(small_slices(name)) for name in GENERATIONS}
    return slices | {name: [GpuHosts(name, 1, count) for count in PER_HOST] for name in GPUS}


def can_hold(config: ModelConfig, options: EngineOptions, machine: Machine) -> bool:
    """Whether a model divides over a machine's devices and their cache holds a whole context of it."""
    from lemur_ray.serve.compute.devices import can_split

    context = min(options.context or config.max_seq_len, config.max_seq_len)
    tokens = formulas.cache_tokens(config, machine, formulas.itemsize_of(options), int8=options.quantization == "int8")
    return can_split(config, machine.num_devices) and tokens >= context


def smallest_count(config: ModelConfig, options: EngineOptions, machine: Machine) -> int:
    """The smallest number of a machine's devices that holds a model; if none does, the largest that can share it."""
    from lemur_ray.serve.compute.devices import splits

    counts = [n for n in splits(config) if n <= machine.num_devices]
    return next((n for n in counts if can_hold(config, options, replace(machine, num_devices=n))), counts[-1])


def smallest(config: ModelConfig, options: EngineOptions) -> dict[str, Devices | None]:
    """Generation or GPU -> the smallest devices that hold a model; None where none of them does."""
    return {
        name: next((where for where in sizes if can_hold(config, options, machine_of(where))), None)
        for name, sizes in candidates().items()
    }


def describe(name: str, where: Devices | None, config: ModelConfig, options: EngineOptions) -> str:
    """One line of text on the smallest devices ``where`` of generation or GPU ``name``, with sizes per device and an
    estimated speed; where None: that none fits."""
    if where is None:
        return f"{name:5s} none of up to {'8 GPUs' if name in GPUS else '64 chips'} fits"
    machine, itemsize, int8 = machine_of(where), formulas.itemsize_of(options), options.quantization == "int8"
    weights = formulas.weight_bytes(config, machine.num_devices, itemsize, int8=int8)
    rate = options.max_slots / formulas.decode_s(config, machine, weights, options.max_slots, ESTIMATED_CONTEXT)
    tokens = formulas.cache_tokens(config, machine, itemsize, int8=int8)
    return (
        f"{name:5s} {where.topology:8s} {weights / GIB:6.2f} GiB of weights a device, {tokens:9,} tokens of cache, "
        f"about {rate:6,.0f} tokens/s"
    )
