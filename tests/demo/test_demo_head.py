"""The demo's head: what it started ends with it, and a served model that died says why at once."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lemur_ray.cluster.demo.head import DemoFailed, Head, wait_for
from lemur_ray.host.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


class Dashboard(http.server.BaseHTTPRequestHandler):
    """Says that every job has failed."""

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer secret"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"status": "FAILED"}).encode())

    def log_message(self, *_: object) -> None:
        pass


def test_a_served_model_that_died_is_said_at_once_with_the_end_of_its_output(tmp_path: Path) -> None:
    logs = tmp_path / "ray"
    logs.write_text('#!/bin/sh\necho "serve: the checkpoint lacks a tokenizer"\n')
    logs.chmod(0o755)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dashboard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        head = Head({**os.environ, "RAY_AUTH_TOKEN": "secret"}, server.server_address[1])
        head._ray = str(logs)
        began = time.monotonic()
        with pytest.raises(DemoFailed, match=r"job serve-1 ended.*\n.*lacks a tokenizer"):
            wait_for(f"http://127.0.0.1:{free_port()}/ready", "the model", 60.0, lambda: head._failure("serve-1"))
        assert time.monotonic() - began < 30
        server.shutdown()


@pytest.mark.slow
def test_a_demo_that_is_told_to_end_leaves_no_process_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "LEMUR_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen([sys.executable, "jobs/demo.py"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    marker = f"LEMUR_HOME={tmp_path}"
    head = ""
    try:
        deadline = time.monotonic() + 300
        while not (head and named_by_ray(holding(head))) and time.monotonic() < deadline:
            time.sleep(0.5)
            started = (value_of("RAY_TMPDIR", pid) for pid in carrying(marker) if pid != demo.pid)
            head = head or next(filter(None, started), "")
        assert named_by_ray(holding(head)), "the head did not start a worker"
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(180) == 130
        deadline = time.monotonic() + 180  # Ray's agents look for their raylet now and then
        while (carrying(marker) or holding(head)) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not carrying(marker)
        assert not holding(head)
    finally:
        for pid in {*carrying(marker), *(holding(head) if head else ())}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def named_by_ray(pids: list[int]) -> list[int]:
    """Those that Ray has given a name of its own, which hides their environment."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                found.append(pid)
    return found


def holding(folder: str) -> list[int]:
    """Processes with an open file under that folder, removed or not: other clusters of the machine do not count."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(opened(file).startswith(f"{folder}/") for file in (process / "fd").iterdir()):
                found.append(int(process.name))
    return found


def opened(file: Path) -> str:
    """What a descriptor leads to; nothing where it has been closed."""
    try:
        return os.readlink(file)
    except OSError:
        return ""


def carrying(entry: str) -> list[int]:
    """Processes with that entry in their environment, the ended ones that nobody has waited for left out."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def value_of(name: str, pid: int) -> str:
    """What a variable says in that process's environment; nothing where it or the process is not there."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0"):
            if entry.startswith(f"{name}="):
                return entry.removeprefix(f"{name}=")
    return ""
