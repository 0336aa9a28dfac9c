"""ASGI middleware and responses: request ids, an answer to unexpected errors, streams that end at a disconnect."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")

log = logging.getLogger(__name__)


class ClientGone(Exception):
    """Raised by ``unless_gone`` when the client disconnects."""


def path_inside(scope: Scope) -> str:
    """The path of a request without the prefix under which the app is mounted (``root_path``)."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class RequestIds:
    """Middleware that adds a header x-request-id with a new random id to every HTTP response, also to streams."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        number = f"req_{secrets.token_hex(12)}".encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"x-request-id", number)]
            await send(message)

        await self.app(scope, receive, send_with_id)


class Unbroken:
    """Middleware: if the app raises before its response begins, ``answer`` responds instead and the error is logged.
    Errors after that pass on."""

    def __init__(self, app: ASGIApp, answer: ASGIApp):
        self.app, self._answer = app, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_and_mark(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.app(scope, receive, send_and_mark)
        except Exception:
            if has_begun or scope["type"] != "http":
                raise
            log.exception("a request failed")
            await self._answer(scope, receive, send)


class EventStream(Response):
    """Response of server-sent events: every item of ``chunks`` is sent at once. ``on_close`` is called at the end, also
    after an error or if the client disconnects."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[bytes], on_close: Callable[[], None]):
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._chunks, self._on_close = chunks, on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._write(send))
        except ClientGone:
            return
        finally:
            self._on_close()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; if the client disconnects first, cancels it and raises ClientGone."""

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
