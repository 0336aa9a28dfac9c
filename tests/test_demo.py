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

from lemur_ray.demo import DemoFailed, Head, wait_for
from lemur_ray.ports import free_port

ROOT = Path(__file__).resolve().parents[1]


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
            wait_for(f"http://127.0.0.1:{free_port()}/ready", "the model", 60.0, lambda: head._fate("serve-1"))
        assert time.monotonic() - began < 30
        server.shutdown()


@pytest.mark.slow
def test_a_demo_that_is_told_to_end_leaves_no_process_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "LEMUR_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen([sys.executable, "jobs/demo.py"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    marker = f"LEMUR_HOME={tmp_path}".encode()
    before = named_by_ray()
    try:
        deadline = time.monotonic() + 120
        while len(carrying(marker)) < 4 and time.monotonic() < deadline:
            time.sleep(0.5)
        assert len(carrying(marker)) >= 4, "the head did not start"
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(90) == 130
        deadline = time.monotonic() + 30
        while carrying(marker) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not carrying(marker)
        assert not named_by_ray() - before
    finally:
        for pid in carrying(marker):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def named_by_ray() -> set[int]:
    """Processes that Ray has given a name of its own, which hides their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().startswith(b"ray::"):
                found.add(int(path.parent.name))
    return found


def carrying(marker: bytes) -> list[int]:
    """Processes with that text in their environment, the ended ones that nobody has waited for left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if marker in path.read_bytes():
                found.append(int(path.parent.name))
    return found
