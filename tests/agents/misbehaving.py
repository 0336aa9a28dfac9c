"""A small OpenAI-compatible HTTP server that misbehaves by a script: statuses, garbage, silence, a dropped line."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import ChatRequest, Message, Sampling
from lemur_ray.agents.openai_policy import OpenAIPolicy

Answer = tuple[int, Mapping[str, str], bytes]

GO = ChatRequest((Message("user", "Go."),), Sampling(max_tokens=9), "e1")


def completion(text: Any = "right", finish: str = "stop", **more: Any) -> Answer:
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "toy",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 2,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 5},
        },
    }
    return 200, {"Content-Type": "application/json"}, json.dumps({**body, **more}).encode()


def refusal(status: int, code: str = "", message: str = "no", **headers: str) -> Answer:
    body = {"error": {"message": message, "type": "t", "param": None, "code": code or None}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"Content-Type": "application/json", **named}, json.dumps(body).encode()


class Server:
    """``answer`` maps a request's body to an answer, or to None: the line is dropped without a word."""

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], Answer | None],
        port: int = 0,
        models: tuple[str, ...] = ("toy",),
        host: str = "127.0.0.1",
    ):
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        """Of every request, by their names in lower case."""
        self.paths: list[str] = []
        self.refuses_list: Answer | None = None
        """Instead of the list of models."""
        self.version = ""
        """What the list of models says of each; nothing where it is empty."""
        self.released = threading.Event()
        """Set when the server ends: answers that are silent wait for it."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else headers and body, written apart, cost 40 ms

            def do_GET(self) -> None:
                self.note()
                if outer.refuses_list is not None:
                    self.send(outer.refuses_list)
                    return
                listed = {
                    "object": "list",
                    "data": [
                        {"id": m, "object": "model", "created": 1, "owned_by": "x"}
                        | ({"version": outer.version} if outer.version else {})
                        for m in models
                    ],
                }
                self.send((200, {"Content-Type": "application/json"}, json.dumps(listed).encode()))

            def note(self) -> None:
                outer.paths.append(self.path)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})

            def do_POST(self) -> None:
                self.note()
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(asked)
                answered = answer(asked)
                if answered is None:
                    self.close_connection = True
                    self.connection.close()
                else:
                    self.send(answered)

            def send(self, answered: Answer) -> None:
                status, headers, body = answered
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # clients that went away, and lines that were dropped on purpose

        self._http = Quiet((host, port), Handler)
        self.port = self._http.server_address[1]
        self.url = f"http://{host}:{self.port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Answer | None], **more: Any) -> Iterator[Server]:
    server = Server(answer, **more)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def serving_in_turn(*answers: Answer | None, **more: Any) -> Iterator[Server]:
    """Gives the answers one after another, and the last one for ever after."""
    left = list(answers)
    with serving(lambda asked: left.pop(0) if len(left) > 1 else left[0], **more) as server:
        yield server


def ask(server: Server, request: ChatRequest = GO, **options: Any) -> Any:
    """One reply of a policy with these options."""
    policy = OpenAIPolicy(server.url, "toy", options=EndpointOptions(**{"patience_s": 20.0, **options}))
    try:
        return policy.reply(request)
    finally:
        policy.close()
