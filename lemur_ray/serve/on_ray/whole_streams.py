"""Middleware of Serve's proxy: a client gets a complete answer in OpenAI's form even if the replica dies.

An event stream whose replica died ends with an error event; a request without an answer, or with an error of the proxy
itself in plain text, gets a 503. Serve installs the middleware that ``middlewares`` returns in its proxies. Imports
nothing heavy: a proxy has no model."""

import json
import logging

from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lemur_ray.serve.openai.errors import ApiError

log = logging.getLogger(__name__)

LOST = ApiError(
    503,
    "the process that answered is gone, and with it the rest of this reply: ask again",
    kind="server_error",
    code="service_unavailable",
)
_SERVE_PREFIX = "/-/"
"""Prefix of Serve's own routes: health, list of routes."""


class WholeStreams:
    """Passes answers of replicas on unchanged, and completes missing and unfinished ones with an error."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope.get("path", "").startswith(_SERVE_PREFIX):
            await self.app(scope, receive, send)
            return
        has_begun = is_open = False

        async def send_and_mark(message: Message) -> None:
            nonlocal has_begun, is_open
            if message["type"] == "http.response.start":
                if message["status"] >= 500 and _has_content_type(message, b"text/plain"):
                    return  # an error of the proxy itself: replicas answer in JSON
                has_begun, is_open = True, _has_content_type(message, b"text/event-stream")
            elif message["type"] == "http.response.body" and not message.get("more_body", False):
                is_open = False
            if has_begun:
                await send(message)

        try:
            await self.app(scope, receive, send_and_mark)
        except Exception:
            if has_begun and not is_open:
                raise
            log.exception("a request failed")
        # A client that disconnected itself receives nothing.
        if not has_begun:
            await JSONResponse(LOST.body(), LOST.status)(scope, receive, send)
        elif is_open:
            event = b"data: " + json.dumps(LOST.body()).encode() + b"\n\n"
            await send({"type": "http.response.body", "body": event, "more_body": False})


def _has_content_type(start: Message, kind: bytes) -> bool:
    return any(n.lower() == b"content-type" and v.startswith(kind) for n, v in start["headers"])


def middlewares() -> list[Middleware]:
    """The middlewares of Serve's proxies, for RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH."""
    return [Middleware(WholeStreams)]
