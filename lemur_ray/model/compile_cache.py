"""Where compiled programs are kept between starts, and whether they were found there.

A run of one worker on a local disk shares ``$LEMUR_HOME/cache/jax`` with every other run. Workers on several hosts and
runs in a bucket keep it in the run folder, so that a host that joins after a preemption finds it too; an engine that
serves shares the one on its disk. JAX makes the key (the program, versions and devices) and takes an entry that it
cannot read for missing. Knows nothing of training or of serving.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import jax

from lemur_ray.host.home import lemur_home

_HIT, _MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"


@dataclass
class Found:
    """Programs that were there, and that were not."""

    hits: int = 0
    misses: int = 0

    def __str__(self) -> str:
        state = "warm" if self.hits and not self.misses else "cold" if not self.hits else "partly warm"
        return f"compile cache {state}: {self.hits} found, {self.misses} compiled"


def cache_folder(out: str = "", num_workers: int = 1) -> str:
    """JAX_COMPILATION_CACHE_DIR where it is set, else beside the run or under LEMUR_HOME."""
    if given := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return given
    if "://" in out or num_workers > 1:
        return f"{out}/compile-cache"
    return str(lemur_home() / "cache" / "jax")


def use_compile_cache(folder: str) -> Found:
    """Keep every program that takes 0.2 s to compile in ``folder``; the counts grow with every program asked for."""
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    if not _listening:
        jax.monitoring.register_event_listener(_count)
    _listening[:] = [Found()]  # one run at a time trains in a process
    return _listening[0]


_listening: list[Found] = []


def _count(event: str, **_: object) -> None:
    for found in _listening:
        found.hits += event == _HIT
        found.misses += event == _MISS
