"""Speed and memory of a run: model FLOP/s and MFU in both conventions of ``model.flops``, peak memory."""

import resource
import sys

import jax

from lemur_ray.config import Recipe
from lemur_ray.model.flops import CONVENTIONS, flops_per_token
from lemur_ray.train.pod.chips import CHIPS

PEAK_FLOPS = {"NVIDIA A100-SXM4-80GB": 312e12} | {
    kind: chip.peak_flops for chip in CHIPS.values() for kind in chip.kinds
}
"""Dense bf16 FLOP/s of one jax device by ``device_kind`` (vendors' data sheets). CPUs have none: no MFU there."""


def speeds(recipe: Recipe, num_steps: int, elapsed_s: float) -> dict[str, float]:
    """Speed of ``num_steps`` steps in ``elapsed_s`` seconds: tokens_per_s, step_s and the fields of `utilisation`.
    Without steps tokens_per_s is 0 and step_s missing."""
    if num_steps < 1 or elapsed_s <= 0:
        return {"tokens_per_s": 0.0, **utilisation(recipe, 0.0)}
    rate = num_steps * recipe.tokens_per_step / elapsed_s
    return {"tokens_per_s": rate, "step_s": elapsed_s / num_steps, **utilisation(recipe, rate)}


def utilisation(recipe: Recipe, tokens_per_s: float) -> dict[str, float]:
    """Model FLOP/s of the whole run, ``flops_per_s_<convention>`` for each of ``model.flops``, and ``mfu_<convention>``
    (0 to 1) if the peak of the devices is known. tokens_per_s: speed of the whole run."""
    out = {}
    peak = PEAK_FLOPS.get(jax.devices()[0].device_kind, 0.0) * len(jax.devices())
    for convention in CONVENTIONS:
        flops = tokens_per_s * flops_per_token(recipe.model, recipe.data.seq_len, convention)
        out[f"flops_per_s_{convention}"] = flops
        if peak:
            out[f"mfu_{convention}"] = flops / peak
    return out


def memory_peaks() -> dict[str, int]:
    """``host_memory_peak_bytes`` of this process, and ``device_memory_peak_bytes`` of the fullest of its devices if
    their backend counts (TPU and GPU do)."""
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use", 0) for device in jax.local_devices()]
    unit = 1 if sys.platform == "darwin" else 1024
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {**({"device_memory_peak_bytes": max(peaks)} if any(peaks) else {}), "host_memory_peak_bytes": host}
