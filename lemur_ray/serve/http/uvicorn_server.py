"""The app under uvicorn, in one process, without Ray. Knows nothing of the app's routes."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from lemur_ray.serve.http.routes import build_app
from lemur_ray.serve.text_engine import TextEngine

DRAIN_S = 20.0
"""Seconds that running requests have to finish after the server is stopped."""
KEEP_ALIVE_S = 75
"""Seconds that a connection may be idle; a request sent just as it is closed would get no answer."""


class _Server(uvicorn.Server):
    """uvicorn server whose shutdown, with ``close_engine``, refuses requests and closes the engine (``DRAIN_S``)."""

    def __init__(self, served: TextEngine, host: str, port: int, close_engine: bool, key_digest: bytes):
        app: FastAPI = build_app(served, key_digest)
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=int(DRAIN_S) + 5,
            timeout_keep_alive=KEEP_ALIVE_S,
            lifespan="off",
        )
        super().__init__(config)
        self._served, self._close_engine = served, close_engine

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if not self._close_engine:
            await super().shutdown(sockets)
            return
        # The engine ends before connections are cut, so that requests that take too long get an error.
        self._served.engine.refuse()
        closing = asyncio.get_running_loop().run_in_executor(None, self._served.engine.close, DRAIN_S)
        await super().shutdown(sockets)
        await closing


@contextlib.contextmanager
def running(
    served: TextEngine,
    host: str = "127.0.0.1",
    port: int = 0,
    close_engine: bool = True,
    key_digest: bytes = b"",
    on_death: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Context in which a server runs in a thread of this process; yields its base URL, which ends with /v1. Port 0: any
    free one. At the end, running requests may finish for up to 20 s; then the engine is closed if ``close_engine``.
    key_digest: SHA-256 of the key that clients must send; b"": no key. on_death: called in another thread once the
    engine has ended; until the end of the context the server then answers 503. host: address to listen at. Raises
    OSError if the port is not free."""
    server = _Server(served, host, port, close_engine, key_digest)
    with socket.create_server((host, port)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), name="uvicorn", daemon=True)
        thread.start()
        threading.Thread(target=_watch, args=(served, on_death), name="watch", daemon=True).start()
        try:
            yield f"http://{host}:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()


def _watch(served: TextEngine, on_death: Callable[[], None]) -> None:
    served.engine.ended.wait()
    on_death()
