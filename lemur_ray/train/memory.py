"""Keep the step's scratch memory in the process instead of giving it back to the kernel after every step.

XLA's CPU client allocates one scratch buffer per execution. glibc serves large blocks by mmap and unmaps them when they
are freed, so every step touches tens of megabytes for the first time: 22,000 page faults and a fifth of the CPU time of
the nano recipe. Knows nothing of training.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import platform

_LOG = logging.getLogger(__name__)

# Names and numbers of <malloc.h>. One arena, because other arenas fall back to mmap above 64 MiB.
_MALLOC_OPTIONS = {"M_ARENA_MAX": (-8, 1), "M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, 2**31 - 1)}


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc to reuse freed memory; for the whole process, once. False (and one log line) where there is no glibc.

    Works best before the first computation: threads keep the arena of their first allocation.
    """
    if platform.libc_ver()[0] != "glibc":
        _LOG.warning("not glibc: scratch memory is returned after every step, expect page faults on CPU")
        return False
    mallopt = ctypes.CDLL("libc.so.6").mallopt
    return all([mallopt(*option) == 1 for option in _MALLOC_OPTIONS.values()])
