"""The folder of JAX's persistent compilation cache, and counts of its hits and misses.

A run of one worker on a local disk and a serving engine use ``$LEMUR_HOME/cache/jax``. Workers on several hosts and
runs in a bucket cache in the run folder, so that a host that joins after a preemption reuses the programs."""

import os
from dataclasses import dataclass

import jax

from lemur_ray.host.home import lemur_home
from lemur_ray.storage.file_system import note_folders

_HIT, _MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"


@dataclass
class CacheCounts:
    """Number of compiled programs that were loaded from the cache (hits) and of those that were compiled (misses); as
    text, a line for the log."""

    hits: int = 0
    misses: int = 0

    def __str__(self) -> str:
        state = "warm" if self.hits and not self.misses else "cold" if not self.hits else "partly warm"
        return f"compile cache {state}: {self.hits} found, {self.misses} compiled"


def cache_folder(out: str = "", num_workers: int = 1) -> str:
    """Folder or URL for the cache: JAX_COMPILATION_CACHE_DIR if set, else in the run folder ``out`` if that is in a
    bucket or there are several workers, else in LEMUR_HOME. num_workers: workers of the run; with several, ``out`` must
    not be empty. Creates nothing."""
    if folder := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return folder
    if "://" in out or num_workers > 1:
        return f"{out}/compile-cache"
    return str(lemur_home() / "cache" / "jax")


def use_compile_cache(folder: str) -> CacheCounts:
    """Make JAX cache programs that take 0.2 s or longer to compile in ``folder``, for the whole process (JAX's
    configuration changes). Returns counts, from 0, that stay current until the next call."""
    note_folders(folder)  # JAX asks for every program
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    if not _active:
        jax.monitoring.register_event_listener(_count)
    _active[:] = [CacheCounts()]  # one run at a time trains in a process
    return _active[0]


_active: list[CacheCounts] = []


def _count(event: str, **_: object) -> None:
    for counts in _active:
        counts.hits += event == _HIT
        counts.misses += event == _MISS
