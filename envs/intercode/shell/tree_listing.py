"""Lists the file tree of a sandbox for the grader: paths, kinds, modes and content hashes.

The sandbox's init process reads the files; nothing that the model can write or replace is run. Folders that upstream's
repository ignores, and those that only this project's sandbox has, are left out.
"""

from __future__ import annotations

from lemur_ray.grading.files import Entry
from lemur_ray.sandbox.sandbox import Sandbox

# fmt: off
IGNORED = (
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "opt", "proc", "root", "run",
    "sbin", "srv", "sys", "usr", "var",  # by upstream's repository
    "work", "inside", "generation", "base", ".git",  # ours alone
)
# fmt: on


def listing(sandbox: Sandbox) -> dict[str, Entry]:
    """Every entry of the sandbox's file tree, by path. Raises SandboxFileError if paths are too long or too many."""
    return {path: Entry(kind, mode, content) for path, kind, mode, content in sandbox.listing(IGNORED)}
