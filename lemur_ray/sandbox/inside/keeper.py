"""The first process of a sandbox's housing: creates and destroys generations of the sandbox.

A generation has process, mount, network, IPC and host name namespaces of its own, nested in the housing's. A reset
kills a generation and forks the next one from the same warm interpreter, in milliseconds; starting bubblewrap takes a
tenth of a second, a container several. The keeper never touches a file of the policy. When its channel closes (the
harness closed it or died) it exits, and the kernel ends all its descendants."""

import contextlib
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any

from lemur_ray.sandbox.inside import init, kernel, processes, root
from lemur_ray.sandbox.inside.wire import Pipe

BASE, GENERATION = "/base", "/generation"


def main(channel_fd: int) -> None:
    """Run the keeper: answer the harness's requests on socket ``channel_fd`` until it disconnects, then exit."""
    # The harness's end alone keeps this process alive; nothing else may inherit it.
    os.set_inheritable(channel_fd, False)
    # With Python's handler installed, a signal from inside would reach process 1; the kernel blocks unhandled ones.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kernel.prctl(kernel.SET_DUMPABLE, 0)
    kernel.drop_bounding_set()
    channel = socket.socket(fileno=channel_fd)
    pipe = Pipe(channel_fd, channel_fd)
    pipe.send_json({"hello": os.getpid()})
    packed = b""
    while True:
        try:
            order = pipe.receive_json()
        except (EOFError, ConnectionResetError):
            os._exit(0)
        if order["op"] == "trees":
            packed = pipe.receive_data()
            pipe.send_json({"ok": True})
        elif order["op"] == "begin":
            pipe.send_json({"ok": True})
            _, received, _, _ = socket.recv_fds(channel, 1, 1)
            left = end_generation()
            if left:
                pipe.send_json({"error": f"{left} processes of the last generation do not end"})
                continue
            begin_generation(received[0], order["spec"], packed)
            os.close(received[0])
            pipe.send_json({"ok": True})
        elif order["op"] == "ended":
            pipe.send_json({"killed": killed()})


def killed(timeout_s: float = 2.0) -> bool:
    """Wait up to ``timeout_s`` seconds for the end of this process's only child, the generation's first process.
    Returns whether SIGKILL ended it; False also if it still runs."""
    deadline = time.monotonic() + timeout_s
    while not (ended := processes.collect()) and time.monotonic() < deadline:
        time.sleep(0.002)
    return any(os.WIFSIGNALED(how) and os.WTERMSIG(how) == signal.SIGKILL for how, _ in ended.values())


def end_generation(timeout_s: float = 5.0) -> int:
    """Send SIGKILL to every other process of the namespace until none is left. Returns the number of those that remain
    after ``timeout_s`` seconds, 0 on success."""
    deadline = time.monotonic() + timeout_s
    while True:
        processes.send(-1, signal.SIGKILL)
        processes.collect()
        left = processes.listed("/proc")
        if not left or time.monotonic() > deadline:
            return len(left)
        time.sleep(0.001)


def begin_generation(fd: int, spec: dict[str, Any], packed: bytes) -> None:
    """Fork the first process of a fresh set of namespaces (a generation), and return at once. ``fd``: socket to the
    harness, to which errors are sent; ``spec``: the settings that ``backends.keeper_client`` sends; ``packed``: file
    trees, see ``tree.pack``."""
    # A process namespace begins with the next child, so an intermediate process creates it and exits.
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        flags = kernel.NEWNS | kernel.NEWUTS | kernel.NEWIPC | kernel.NEWPID
        kernel.unshare(flags if spec["network"] else flags | kernel.NEWNET)
        if os.fork() == 0:
            first_process(fd, spec, packed)
    except BaseException:  # the child must never return into the keeper's loop
        with contextlib.suppress(OSError):
            Pipe(fd, fd).send_json({"error": traceback.format_exc()[-2000:]})
    finally:
        os._exit(0)


def _small_buffers(proc: str) -> None:
    """Fix the buffer sizes of TCP connections in the sandbox's network: no cgroup counts their memory."""
    for name in ("tcp_rmem", "tcp_wmem"):
        with contextlib.suppress(OSError), open(f"{proc}/sys/net/ipv4/{name}", "w") as file:
            file.write("4096 65536 65536")


def first_process(fd: int, spec: dict[str, Any], packed: bytes) -> None:
    """Build the root file system, enter it, and serve the harness on ``fd``; never returns. ``fd``: socket to the
    harness; ``spec``: the settings that ``backends.keeper_client`` sends; ``packed``: file trees, see ``tree.pack``. An
    error is sent to the harness before the process exits."""
    os.dup2(fd, 3)
    os.closerange(4, 256)
    try:
        kernel.mount("none", "/", None, kernel.REC | kernel.PRIVATE)
        if not spec["network"]:
            kernel.loopback_up()
        socket.sethostname("sandbox")
        root.build(GENERATION, BASE, spec, packed)
        if not spec["network"] and not spec["memory_cgroup"]:
            _small_buffers(f"{GENERATION}/proc")
    except BaseException:  # after any error, the harness must be informed and this process must end
        with contextlib.suppress(OSError):
            Pipe(3, 3).send_json({"error": traceback.format_exc()[-2000:]})
        os._exit(1)
    # From here on this process imports nothing, because the policy can write to the folders. Its open files and mounts
    # are listed in /proc, which every program inside may read.
    os.chroot(GENERATION)
    os.chdir("/")
    sys.path.clear()
    init.main(3, 3, spec)
