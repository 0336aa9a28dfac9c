"""A site that ends with whoever started it, and takes its folder along: for the programs of this folder.

The starter holds the other end of the standard input. It is closed by the kernel however the starter ends, ``kill -9``
too, and whichever thread of it started the site (which the kernel's own death signal would go by).
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable


def end_with_input(folder: str, first: Callable[[], object] = lambda: None) -> threading.Event:
    """From now on: when the standard input ends, do ``first``, remove the folder, end. Returns whether that began."""
    begun = threading.Event()

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        begun.set()
        first()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
    return begun
