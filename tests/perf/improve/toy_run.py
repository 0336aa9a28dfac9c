"""What the measurements of improvement runs share: a private cluster, and the run of a tiny random model."""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.improve.capital_game import start_run


def made_start(folder: Path) -> Path:
    """The run of a tiny random model in ``folder``; made in a process of its own, as Ray forks this one."""
    if not folder.exists():
        making = multiprocessing.get_context("spawn").Process(target=start_run, args=(folder,))
        making.start()
        making.join()
    return folder


@contextlib.contextmanager
def cluster(num_cpus: int = 4) -> Iterator[None]:
    """A private Ray cluster of this process; it is gone afterwards."""
    import ray

    with tempfile.TemporaryDirectory(prefix="lr-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        options: dict[str, Any] = {"include_dashboard": False, "_temp_dir": folder, "log_to_driver": False}
        ray.init(address="local", num_cpus=num_cpus, object_store_memory=2 * 10**8, **options)
        try:
            yield
        finally:
            ray.shutdown()
