"""What the measurements of improvement runs share: a private cluster, and the run of a tiny random model."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # read when ray is imported; a busy machine is slow
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def made_start(folder: Path) -> Path:
    """The run of a tiny random model in ``folder``; made in a process of its own, as Ray forks this one."""
    if not folder.exists():
        program = "import sys; from tests.improve.capital_game import *; start_run(Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", program, str(folder)], cwd=ROOT, check=True)
    return folder


@contextlib.contextmanager
def cluster(num_cpus: int = 4) -> Iterator[None]:
    """A private Ray cluster of this process; it is gone afterwards."""
    import ray

    with tempfile.TemporaryDirectory(prefix="lr-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        options: dict[str, Any] = {"include_dashboard": False, "_temp_dir": folder, "log_to_driver": False}
        options["runtime_env"] = {"env_vars": {"PYTHONPATH": str(ROOT)}}
        context = ray.init(address="local", num_cpus=num_cpus, object_store_memory=2 * 10**8, **options)
        os.environ["RAY_ADDRESS"] = str(context.address_info["address"])
        try:
            yield
        finally:
            ray.shutdown()
            del os.environ["RAY_ADDRESS"]
