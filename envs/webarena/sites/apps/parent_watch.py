"""Ends a site when the process that started it ends, and removes the site's folder.

The starter holds the other end of standard input, which the kernel closes however the starter ends, by ``kill -9`` too.
The kernel's parent-death signal is unsuitable: it is sent when the thread that started the site ends."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable


def end_with_input(folder: str, first: Callable[[], object] = lambda: None) -> threading.Event:
    """Watch standard input in a thread: when it ends, call ``first``, remove ``folder`` and exit this process. Returns
    an event that is set when that begins."""
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
