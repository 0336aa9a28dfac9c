"""The Python of a sandbox: its system's own if that has this interpreter's version, else this interpreter.

The versions must be equal because this interpreter's compiled packages may be mounted inside."""

import sys
from pathlib import Path

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
INSIDE = "/opt/python"
"""Mount point of this interpreter's folder if the sandbox's system lacks its version."""


def this_interpreter() -> tuple[Path, str]:
    """The running Python for use in a sandbox: (its folder on this machine, to be mounted at /opt/python; the path of
    its executable inside)."""
    prefix = Path(sys.base_prefix).resolve()
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    return prefix, f"{INSIDE}/{program.relative_to(prefix)}"


def environment() -> dict[str, str]:
    """Environment variables for programs that use ``this_interpreter``: LD_LIBRARY_PATH, for its shared library."""
    return {"LD_LIBRARY_PATH": f"{INSIDE}/lib"}
