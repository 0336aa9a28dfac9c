"""Builds the root file system of one generation: a size-limited tmpfs with the read-only system mounted over it.

All writable folders (work, temporary, home, shared memory, trees) lie in ONE tmpfs with limits on bytes and inodes.
Runs with the capabilities of the sandbox's own user namespace, before any program of the policy exists."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from lemur_ray.sandbox.inside import kernel, tree

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}


def build(root: str, base: str, spec: Mapping[str, Any], packed: bytes) -> None:
    """Build the root at ``root`` from the folders that the housing provides below ``base``. ``spec``: disk_bytes,
    inodes, as_root, writable_root, masked, rootfs (whether the system is a given one), mounts (paths inside, numbered
    beneath ``base``/mounts). ``packed``: file trees to unpack (``tree.pack``)."""
    os.makedirs(root, exist_ok=True)
    size = f"size={spec['disk_bytes']},nr_inodes={spec['inodes']},mode=755"
    kernel.mount("sandbox", root, "tmpfs", kernel.NOSUID | kernel.NODEV, size)
    for folder in ("proc", "dev/shm", "etc", "tmp", "var/tmp", "run", "work", "home/user", "root", "mnt", "opt"):
        os.makedirs(f"{root}/{folder}", exist_ok=True)
    for shared in ("tmp", "var/tmp", "dev/shm"):
        os.chmod(f"{root}/{shared}", 0o1777)
    kernel.mount("proc", f"{root}/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
    _devices(f"{root}/dev")
    _system(root, base, spec["writable_root"], base if spec["rootfs"] else "")
    _accounts(root, spec["as_root"])
    tree.unpack(packed, root)
    for number, inside in enumerate(spec["mounts"]):
        _show(f"{base}/mounts/{number}", root + inside, base)
    for path in spec["masked"]:
        _mask(root, path)
    if not spec["as_root"]:
        for closed in ("", "/etc", "/dev", "/home", "/var"):
            if os.lstat(f"{root}{closed}").st_dev == os.lstat(root).st_dev:
                os.chmod(f"{root}{closed}", 0o555)


def _devices(dev: str) -> None:
    for name in DEVICES:
        with open(f"{dev}/{name}", "x"):
            pass
        kernel.mount(f"/dev/{name}", f"{dev}/{name}", None, kernel.BIND)
    for name, target in LINKS.items():
        os.symlink(target, f"{dev}/{name}")


def _system(root: str, base: str, writable: bool, hidden: str) -> None:
    for name in sorted(os.listdir(base)):
        if name in ("mounts", "etc-parts", "etc-kept", "none"):
            continue
        source = f"{base}/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), f"{root}/{name}")
        elif name == "usr" and writable:
            _show_children(source, f"{root}/{name}", hidden)
        else:
            _show(source, f"{root}/{name}", hidden)
    parts = f"{base}/etc-parts"
    for name in os.listdir(parts) if os.path.isdir(parts) else ():
        _show(_kept(f"{parts}/{name}", f"{base}/etc-kept/{name}"), f"{root}/etc/{name}")


def _kept(source: str, copy: str) -> str:
    """A copy of a file, made at first use: a file that an update of the host replaces can no longer be bound."""
    if os.path.isdir(source):
        return source
    if not os.path.exists(copy):
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(source, "rb") as old, open(copy, "wb") as new:
            new.write(old.read())
        os.chmod(copy, 0o444)
    return copy


def mount_point(source: str, target: str) -> None:
    """Create the folder or the empty file ``target`` at which ``source`` can be mounted, with its folders."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a"):
            pass


def _show(source: str, target: str, hidden: str = "") -> None:
    """Mount ``source`` read-only at ``target``. The list of mounts reveals the host path of a bind mount. With
    ``hidden`` (the base, which gets an empty folder) an overlay mount is used instead, which shows the path in the
    base; if the kernel supports none (before 5.11, or on two other overlays), the folder is bound."""
    mount_point(source, target)
    if hidden and os.path.isdir(source):
        with contextlib.suppress(OSError):
            os.makedirs(f"{hidden}/none", exist_ok=True)
            flags = kernel.RDONLY | kernel.NOSUID | kernel.NODEV
            kernel.mount("shown", target, "overlay", flags, f"lowerdir={source}:{hidden}/none")
            return
    kernel.mount(source, target, None, kernel.BIND | kernel.REC)
    flags = kernel.BIND | kernel.REMOUNT | kernel.RDONLY | kernel.NOSUID | kernel.NODEV
    kernel.mount("none", target, None, flags)


def _show_children(source: str, target: str, hidden: str) -> None:
    """Mount the children of ``source`` read-only in ``target``, which itself stays writable."""
    os.makedirs(target, exist_ok=True)
    for name in sorted(os.listdir(source)):
        if os.path.islink(f"{source}/{name}"):
            os.symlink(os.readlink(f"{source}/{name}"), f"{target}/{name}")
        else:
            _show(f"{source}/{name}", f"{target}/{name}", hidden)


def _mask(root: str, path: str) -> None:
    """Cover the file that ``path`` resolves to with an empty one without permissions; nothing if it is absent."""
    for _ in range(40):
        if not os.path.islink(root + path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(root + path)))
    if os.path.isfile(root + path):
        mask = f"{root}/.mask"
        with open(mask, "x"):
            os.chmod(mask, 0)
        kernel.mount(mask, root + path, None, kernel.BIND)
        os.unlink(mask)


def _accounts(root: str, as_root: bool) -> None:
    """Write a minimal /etc if the root file system has none."""
    if os.path.ismount(f"{root}/etc") or os.lstat(f"{root}/etc").st_dev != os.lstat(root).st_dev:
        return
    user = "" if as_root else "user:x:1000:1000:user:/home/user:/bin/bash\n"
    texts = {
        "passwd": f"root:x:0:0:root:/root:/bin/bash\n{user}nobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": f"root:x:0:\n{'' if as_root else 'user:x:1000:'}\nnogroup:x:65534:\n".replace("\n\n", "\n"),
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "hostname": "sandbox\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    for name, text in texts.items():
        if not os.path.exists(f"{root}/etc/{name}"):
            with contextlib.suppress(FileExistsError), open(f"{root}/etc/{name}", "x") as file:
                file.write(text)
