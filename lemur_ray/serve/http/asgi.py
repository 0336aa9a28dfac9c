"""Pieces of plain ASGI: request ids on every answer, an answer in any case, and a stream that ends with its reader.

Knows nothing of the protocol that is spoken over them.
"""

from __future__ import annotations

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
    """Nobody waits for the answer any more."""


def path_inside(scope: Scope) -> str:
    """The path of a request inside the app, whatever prefix it is served under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class RequestIds:
    """Gives every answer an x-request-id; streams and disconnects pass untouched."""

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
    """Answers in place of an app that raised, and keeps the connection. What had begun to answer is broken off."""

    def __init__(self, app: ASGIApp, answer: ASGIApp):
        self.app, self._answer = app, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception:
            if begun or scope["type"] != "http":
                raise
            log.exception("a request failed")
            await self._answer(scope, receive, send)


class EventStream(Response):
    """Server-sent events, each chunk sent at once. ``on_close`` runs at the end, however it comes about."""

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
    """The result of ``work``, which is cancelled when the client disconnects first. Raises ClientGone then."""

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
