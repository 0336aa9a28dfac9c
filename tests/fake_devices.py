"""Scripts that see several devices on one CPU, in a process of their own, since jax must not be there before."""

import json
import os
import subprocess
import sys
from typing import Any

QUICKLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""Half of such a script's time is compilation."""


def results_of(script: str, num_devices: int) -> dict[str, Any]:
    """The JSON object that a script prints last, which sees that many devices of a CPU."""
    flags = f"--xla_force_host_platform_device_count={num_devices} {QUICKLY}"
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=500, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results
