"""Which Python a sandbox runs: the one of its own system where the version is this interpreter's, else this one.

Equal versions matter because compiled packages of this interpreter may be mounted inside.
"""

from __future__ import annotations

import sys
from pathlib import Path

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
INSIDE = "/opt/python"
"""Where this interpreter's folder is shown if its system has none of this version."""


def ours() -> tuple[Path, str]:
    """This interpreter for use inside: (its folder here, its path inside once that is shown at ``INSIDE``)."""
    prefix = Path(sys.base_prefix).resolve()
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    return prefix, f"{INSIDE}/{program.relative_to(prefix)}"


def environment() -> dict[str, str]:
    """What every program needs where ``ours`` is used.

    An interpreter with a shared library looks for it where it was built, which is not where it is shown.
    """
    return {"LD_LIBRARY_PATH": f"{INSIDE}/lib"}
