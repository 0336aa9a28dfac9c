"""The file tree of a sandbox as a grader sees it: paths, kinds, modes and content hashes, read from inside.

Never runs git, nor anything the model can write: programs come from the read-only system, the loader's preload file is
emptied first. Folders that upstream's repository ignores are left out, and those that only our sandbox has.
"""

from __future__ import annotations

import contextlib

from lemur_ray.grading.files import Entry
from lemur_ray.sandbox.sandbox import Limits, Sandbox, SandboxError, SandboxFileError

# fmt: off
IGNORED = (
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "opt", "proc", "root", "run",
    "sbin", "srv", "sys", "usr", "var",  # by upstream's repository
    "work", "inside", "generation", "base", ".git",  # ours alone
)
# fmt: on
_PRUNE = " -o ".join(f"-path /{name}" for name in IGNORED)
_SCRIPT = f"""
/usr/bin/find / -xdev -mindepth 1 \\( {_PRUNE} \\) -prune -o -printf '%y %m %p\\t%l\\0'
printf '\\0'
/usr/bin/find / -xdev -mindepth 1 \\( {_PRUNE} \\) -prune -o -type f -print0 | /usr/bin/xargs -0 -r /usr/bin/md5sum -z
"""
_LIMITS = Limits(time_s=30.0, output_bytes=8 * 2**20, kill_at_bytes=16 * 2**20)


def listing(sandbox: Sandbox) -> dict[str, Entry]:
    """Every entry of the tree. Raises SandboxError where it cannot be read in full."""
    with contextlib.suppress(SandboxFileError):
        sandbox.read("/etc/ld.so.preload", 1)
        sandbox.write("/etc/ld.so.preload", b"")
    done = sandbox.exec(["/usr/bin/env", "-i", "/bin/sh", "-c", _SCRIPT], cwd="/", limits=_LIMITS)
    if done.truncated or done.timed_out or not done.alive:
        raise SandboxError(f"the tree could not be listed: {done.note or 'too large'}")
    entries, _, sums = done.stdout.decode("utf-8", "surrogateescape").partition("\0\0")
    hashes = {line[34:]: line[:32] for line in sums.split("\0") if line}
    tree = {}
    for line in entries.split("\0"):
        kind, mode, rest = line.split(" ", 2)
        path, target = rest.rsplit("\t", 1)
        content = target if kind == "l" else hashes.get(path, "") if kind == "f" else ""
        tree[path] = Entry(kind, int(mode, 8), content)
    return tree
