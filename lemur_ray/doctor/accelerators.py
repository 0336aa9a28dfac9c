"""Checks of the devices that jax sees and of the environment variables that a TPU host needs.

jax runs in a process of its own.
"""

from __future__ import annotations

import sys

from lemur_ray.doctor.devices import tpu_chips
from lemur_ray.doctor.machine import Check, Machine, last_line


def jax(machine: Machine) -> Check:
    """The version of jax and the devices that it sees."""
    ask = "import jax; d = jax.devices(); print(jax.__version__, len(d), d[0].platform, d[0].device_kind)"
    code, output = machine.run([sys.executable, "-c", ask], 120)
    if code:
        fix = f"{sys.executable} -m pip install -r {machine.root / 'requirements.lock'}"
        if "tpu" in machine.env.get("JAX_PLATFORMS", "") and code == 124:
            fix = "export JAX_PLATFORMS=cpu   # or see the line tpu"
        return Check("jax", "missing", f"jax finds no device: {last_line(output)}", fix, True)
    version, number, platform, kind = last_line(output).split(maxsplit=3)
    summary = f"version {version}, {number} x {kind} ({platform})"
    if platform == "cpu" and machine.which("nvidia-smi") and not machine.env.get("JAX_PLATFORMS"):
        fix = f"{sys.executable} -m pip install 'jax-cuda12-plugin[with-cuda]=={version}'"
        return Check("jax", "warn", f"{summary}; there is an NVIDIA GPU that it does not use", fix, True)
    return Check("jax", "ok", summary, required=True)


def tpu(machine: Machine) -> Check:
    """Whether a TPU host has the variables that tell jax which host of a slice it is; GKE's Ray webhook sets them."""
    chips = tpu_chips(machine)
    names = ("TPU_NAME", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES")
    present = [name for name in names if machine.env.get(name)]
    if not chips and not present:
        return Check("tpu", "ok", "no TPU host")
    absent = [name for name in names if name not in present]
    if absent:
        detail = f"{len(chips)} chips, but {', '.join(absent)} not set: jax on a slice of several hosts would not start"
        fix = f"export {' '.join(f'{name}=...' for name in absent)}   # on GKE: install the Ray TPU webhook"
        return Check("tpu", "warn", detail, fix)
    workers = machine.env["TPU_WORKER_HOSTNAMES"].split(",")
    detail = f"host {machine.env['TPU_WORKER_ID']} of {len(workers)} in {machine.env['TPU_NAME']}, {len(chips)} chips"
    return Check("tpu", "ok", detail)
