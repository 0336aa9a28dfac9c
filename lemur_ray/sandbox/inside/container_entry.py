"""The first process of a container: creates a user namespace, prepares the mounts, then becomes the keeper.

The container grants no capability and an unprivileged user. As under bubblewrap, the keeper has the capabilities it
needs in its own user namespace alone; from there on both backends are the same."""

import contextlib
import glob
import os
import socket
import traceback
from typing import Any

from lemur_ray.sandbox.inside import keeper, kernel, root
from lemur_ray.sandbox.inside.wire import Pipe

CHANNEL, ROOTFS, MOUNTS = "/channel", "/rootfs", "/mounts"
"""Paths of the harness's socket, the root file system and the numbered mounts in the container."""


def main() -> None:
    """Run as the container's first process: connect to the harness, prepare namespace and mounts, then act as the
    keeper until the harness disconnects. An error is sent to the harness, then this process exits with 1."""
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(CHANNEL)
    pipe = Pipe(channel.fileno(), channel.fileno())
    in_namespace = False
    try:
        order = pipe.receive_json()
        own_namespace(order["uid"], order["held"])
        in_namespace = True
        lay_out(order)
    except BaseException:  # after any error, the harness must be informed and this process must end
        with contextlib.suppress(OSError):
            pipe.send_json({"error": traceback.format_exc()[-2000:], "in_namespace": in_namespace})
        os._exit(1)
    keeper.main(channel.detach())


def own_namespace(uid: int, held: list[int]) -> None:
    """Move this process into a new user and mount namespace, in which it is user ``uid`` and has only the capabilities
    ``held`` (their numbers)."""
    user, group = os.getuid(), os.getgid()
    kernel.unshare(kernel.NEWUSER | kernel.NEWNS)
    for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {user} 1"), ("gid_map", f"{uid} {group} 1")):
        with open(f"/proc/self/{file}", "w") as opened:
            opened.write(text)
    kernel.mount("none", "/", None, kernel.REC | kernel.PRIVATE)
    kernel.keep_capabilities(held)


def lay_out(order: dict[str, Any]) -> None:
    """Mount the parts of a sandbox's root below ``keeper.BASE``, by the names that they have under bubblewrap, too.
    ``order``: rootfs (true: parts come from that folder, false: from the image's /), names (of top-level entries to
    mount), etc (names or glob patterns below /etc to mount). Raises OSError if a mount fails."""
    kernel.mount("base", keeper.BASE, "tmpfs", kernel.NOSUID | kernel.NODEV, "size=1m,mode=755")
    top = ROOTFS if order["rootfs"] else ""
    for name in order["names"]:
        if os.path.lexists(f"{top}/{name}"):
            _show(f"{top}/{name}", f"{keeper.BASE}/{name}")
    for path in sorted({path for name in order["etc"] for path in glob.glob(f"/etc/{name}")}):
        if os.path.exists(path):
            _show(os.path.realpath(path), f"{keeper.BASE}/etc-parts/{path.removeprefix('/etc/')}")
    os.symlink(MOUNTS, f"{keeper.BASE}/mounts")


def _show(source: str, target: str) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    root.mount_point(source, target)
    kernel.mount(source, target, None, kernel.BIND | kernel.REC)
