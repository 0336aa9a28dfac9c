"""The job of evaluations where nothing may be started, and an endpoint that notices who has paid."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.conftest import ROOT

Run = Callable[..., tuple[int, list[str]]]


class Endpoint:
    """Tells of its models and counts tokens; whoever asks it for a reply has paid."""

    def __init__(self, models: list[dict[str, Any]], key: str = "", counts: bool = True, lists: int = 200) -> None:
        self.paid = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                refused = bool(key) and self.headers.get("Authorization") != f"Bearer {key}"
                status = 401 if refused else lists
                self._say(status, {"object": "list", "data": models} if status == 200 else {"error": "no"})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/tokenize" and counts:
                    return self._say(200, {"count": len(json.loads(body)["prompt"].split())})
                outer.paid += self.path.endswith("/completions")
                return self._say(404, {})

            def _say(self, status: int, value: Any) -> None:
                text = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.policy = f"openai:http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Callable[..., Endpoint]]:
    made: list[Endpoint] = []

    def make(*models: dict[str, Any], **options: Any) -> Endpoint:
        made.append(Endpoint(list(models), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def run(lemur_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The job in this process, where neither Ray nor a pool may be started: exit code, and what it says."""
    monkeypatch.delenv("LEMUR_DATA", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    job, evaluation = importlib.import_module("agent_eval"), importlib.import_module("lemur_ray.evaluation.evaluate")
    for name in ("create_pool", "open_pool"):
        monkeypatch.setattr(evaluation, name, lambda *a: pytest.fail("something was started"))

    def run_job(*argv: str) -> tuple[int, list[str]]:
        code = job.main(list(argv))
        captured = capsys.readouterr()
        return code, (captured.err or captured.out).splitlines()

    return run_job
