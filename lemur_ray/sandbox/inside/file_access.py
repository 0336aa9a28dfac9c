"""Reads, writes, lists and hashes files of a sandbox for the harness.

A confined child opens single files as the policy's user within its root, so a link leads no further than the policy can
reach itself. The first process walks whole trees, so no program can influence the result."""

import json
import os
import select
import signal
import stat
import time
from collections.abc import Callable
from typing import Any

from lemur_ray.sandbox.inside import processes, tree, wire
from lemur_ray.sandbox.inside.wire import Pipe

FILE_S = 20.0
"""Time limit in seconds of a read or write."""
WALK_S = 3.0
"""Processor seconds of a walk over the tree; its wall time may be several times as long."""


class Files:
    """Handlers of file orders; data beyond the JSON answers goes over ``pipe``. ``fork``: starts a confined child with
    the given descriptors for an action; ``waited``: waits for its exit code."""

    def __init__(
        self,
        pipe: Pipe,
        null: int,
        fork: Callable[[dict[int, int], Callable[[], int]], int],
        waited: Callable[[int], int],
    ) -> None:
        self.pipe, self.null, self._fork, self._waited = pipe, null, fork, waited

    def read(self, order: dict[str, Any]) -> dict[str, Any]:
        path, bound = order["path"], order["max_bytes"]

        def action() -> int:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise OSError(f"{path} is not a regular file")
            if info.st_size > bound:
                raise OSError(f"{path} has {info.st_size} bytes: expected at most {bound}")
            left = bound + 1
            while left and (data := os.read(fd, min(left, 2**20))):
                wire.write_all(1, data)
                left -= len(data)
            return 0

        code, data, error = self._run(action, self.null, bound + 1)
        if code == 0 and len(data) > bound:
            code, error = 1, f"{path} has more than {bound} bytes"
        if code:
            return {"error": error or f"reading {path} took longer than {FILE_S:.0f} s"}
        self.pipe.send_json({"ok": True})
        self.pipe.send_data(data)
        return {"ok": True}

    def write(self, order: dict[str, Any]) -> dict[str, Any]:
        path = order["path"]
        source = descriptor_of(self.pipe.receive_data(), self.null)

        def action() -> int:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if os.path.lexists(path):
                os.unlink(path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(path, flags, order["mode"])
            while data := os.read(0, 2**20):
                wire.write_all(fd, data)
            return 0

        code, _, error = self._run(action, source, 0)
        if source != self.null:
            os.close(source)
        return {"error": error or f"writing {path} took longer than {FILE_S:.0f} s"} if code else {"ok": True}

    def _run(self, action: Any, stdin: int, bound: int) -> tuple[int, bytes, str]:
        """Run ``action`` in a confined child: (exit code, stdout, stderr as text)."""
        out, out_w = os.pipe2(os.O_CLOEXEC)
        err, err_w = os.pipe2(os.O_CLOEXEC)
        pid = self._fork({0: stdin, 1: out_w, 2: err_w}, action)
        os.close(out_w)
        os.close(err_w)
        got: dict[int, bytearray] = {out: bytearray(), err: bytearray()}
        open_fds, deadline = {out, err}, time.monotonic() + FILE_S
        while open_fds and time.monotonic() < deadline and len(got[out]) <= bound:
            for fd in select.select([*open_fds], [], [], 0.1)[0]:
                data = os.read(fd, 2**20)
                got[fd] += data
                if not data:
                    open_fds.discard(fd)
        if open_fds:
            processes.send(pid, signal.SIGKILL)
        os.close(out)
        os.close(err)
        status = self._waited(pid)
        text = bytes(got[err]).decode("utf-8", "replace").removeprefix("sandbox: ").strip()
        return status, bytes(got[out]), text

    def snapshot(self, order: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": True, "hash": tree.digest("/", self._work(order))}
        except OSError as error:
            return {"error": f"no hash of the tree: {str(error)[:200]}"}

    def _work(self, order: dict[str, Any]) -> tree.Work:
        return tree.Work(order["content_bytes"], WALK_S)

    def listing(self, order: dict[str, Any]) -> dict[str, Any]:
        try:
            entries = tree.entries("/", order["left_out"], self._work(order), order["max_bytes"])
            data = json.dumps(entries).encode()
        except (OSError, RecursionError) as error:
            return {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        if len(data) > order["max_bytes"]:
            return {"error": f"a listing of {len(data)} bytes: expected at most {order['max_bytes']}"}
        self.pipe.send_json({"ok": True})
        self.pipe.send_data(data)
        return {"ok": True}


def descriptor_of(data: bytes, null: int) -> int:
    """A new file descriptor from which ``data`` can be read; ``null`` (an open /dev/null) if it is empty."""
    if not data:
        return null
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    wire.write_all(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
