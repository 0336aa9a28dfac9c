"""A server whose model says what a test tells it to: the real page, the real routes in front, replies from a script.

What a random tiny model cannot be made to say (Markdown, hostile text) and what a healthy engine does not answer
(refusals) must still arrive at the page as our server sends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from lemur_ray.serve.http.chat_page import ChatPage


class Script:
    """What is answered next, and what was asked."""

    root = ""
    text = "Fine."
    holds = False
    """Whether a reply stays open after its text until the client goes away."""
    breaks = False
    """Whether a reply ends without its end."""
    refusal: tuple[int, dict[str, Any], dict[str, str]] | None = None
    """Status, error and headers instead of a reply."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.gone = threading.Event()


def _app(script: Script) -> FastAPI:
    app = FastAPI()
    app.add_middleware(ChatPage)

    @app.get("/v1/models")
    async def models() -> Response:
        known = [{"id": name, "object": "model", "max_model_len": 1024} for name in ("nano-chat", "other")]
        return JSONResponse({"object": "list", "data": known})

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        script.asked.append(await request.json())
        script.headers.append(dict(request.headers))
        if script.refusal:
            status, error, headers = script.refusal
            return JSONResponse({"error": error}, status, headers)
        return StreamingResponse(_events(script), media_type="text/event-stream")

    return app


async def _events(script: Script) -> AsyncIterator[str]:
    def event(body: dict[str, Any]) -> str:
        return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"

    def choice(delta: dict[str, Any], finish: str | None = None) -> str:
        return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None})

    yield choice({"role": "assistant", "content": ""})
    for start in range(0, len(script.text), 3):
        yield choice({"content": script.text[start : start + 3]})
        await asyncio.sleep(0)
    try:
        while script.holds:
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        script.gone.set()
        raise
    if script.breaks:
        return
    yield choice({}, "stop")
    yield event({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}})
    yield "data: [DONE]\n\n"


@contextlib.contextmanager
def scripted() -> Iterator[Script]:
    """The server in a thread; yields its script."""
    script = Script()
    config = uvicorn.Config(
        _app(script), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        script.root = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield script
        finally:
            script.holds = False
            server.should_exit = True
            thread.join()
