"""glibc allocator settings for training processes on CPU: keep scratch memory, in large pages.

XLA's CPU client allocates a scratch buffer per execution. By default glibc maps large blocks and unmaps them when
freed, so every step faults tens of megabytes in again: 22,000 page faults and a fifth of the CPU time of the nano
recipe. glibc reads the settings when a process starts. Knows nothing of training and of how processes are started."""

from __future__ import annotations

import os

_TUNABLES = {
    "glibc.malloc.hugetlb": 1,  # ask for transparent huge pages where the kernel leaves it to programs
    "glibc.malloc.mmap_max": 0,  # large blocks come from the heap ..
    "glibc.malloc.trim_threshold": 2**40,  # .. which is not given back ..
    "glibc.malloc.arena_max": 1,  # .. and of which there is one: others are limited to 64 MiB
}


def allocator_environment() -> dict[str, str]:
    """Environment variables ({GLIBC_TUNABLES: value}) for a new process; tunables that are already set are kept."""
    given = [item for item in os.environ.get("GLIBC_TUNABLES", "").split(":") if item]
    named = {item.partition("=")[0] for item in given}
    ours = [f"{name}={value}" for name, value in _TUNABLES.items() if name not in named]
    return {"GLIBC_TUNABLES": ":".join(given + ours)}
