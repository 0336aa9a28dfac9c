"""How the allocator of a training process on CPU is set: scratch memory stays, in large pages.

XLA's CPU client allocates one scratch buffer per execution. By default glibc maps large blocks, unmapped when they
are freed, so every step touches tens of megabytes for the first time: 22,000 page faults and a fifth of the CPU time of
the nano recipe. glibc reads these settings when a process starts; later calls do not reach threads that run already.
Knows nothing of training and of who starts processes.
"""

from __future__ import annotations

import os

_TUNABLES = {
    "glibc.malloc.hugetlb": 1,  # ask for transparent huge pages where the kernel leaves it to programs
    "glibc.malloc.mmap_max": 0,  # large blocks come from the heap ..
    "glibc.malloc.trim_threshold": 2**40,  # .. which is not given back ..
    "glibc.malloc.arena_max": 1,  # .. and of which there is one: others are limited to 64 MiB
}


def allocator_environment() -> dict[str, str]:
    """Environment variables for a process that is about to be started; settings already there are kept."""
    given = [item for item in os.environ.get("GLIBC_TUNABLES", "").split(":") if item]
    named = {item.partition("=")[0] for item in given}
    ours = [f"{name}={value}" for name, value in _TUNABLES.items() if name not in named]
    return {"GLIBC_TUNABLES": ":".join(given + ours)}
