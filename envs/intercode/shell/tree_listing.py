"""The file tree of a sandbox as a grader sees it: paths, kinds, modes and content hashes.

The sandbox's first process reads them; nothing that the model can write or replace is run or asked. Folders that
upstream's repository ignores are left out, and those that only our sandbox has.
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
    """Every entry of the tree. Raises SandboxFileError where its paths or their number are beyond reading."""
    return {path: Entry(kind, mode, content) for path, kind, mode, content in sandbox.listing(IGNORED)}
