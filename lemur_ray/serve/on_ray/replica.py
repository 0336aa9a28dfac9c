"""A replica on Ray Serve: holds an engine, answers HTTP with the app of ``http``, and token ids by handle.

The replica's own ASGI app answers, its token stream goes through Serve untouched. Knows nothing of where it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from ray import serve

from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.http.routes import build_app
from lemur_ray.serve.loading import load_text_engine, update_weights
from lemur_ray.serve.on_ray.host_group import Gathered, Reserved, gather
from lemur_ray.serve.token_requests import converse


@serve.ingress()
class ChatModel:
    """A replica: loads the model, starts the engine, is healthy as long as the engine's thread lives."""

    def __init__(
        self,
        spec: str,
        name: str,
        options: EngineOptions,
        reserved: Reserved,
        key_digest: bytes = b"",
        follow_s: float = 0.0,
    ):
        alone = len(reserved.bundles) == 1
        self._gathered = Gathered([], []) if alone else gather(spec, options, reserved)
        self._served = load_text_engine(spec, options, name, follow_s, self._gathered.lines)
        self._key_digest = key_digest

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_app(self._served, self._key_digest)

    async def converse(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Token ids for a policy in the cluster: see ``serve.token_requests``."""
        return await converse(self._served, asked)

    async def update_weights(self, spec: str) -> str:
        """Take over other weights of this model without dropping a request; returns their version.

        In this replica alone: ``serve.get_app_handle(app).broadcast("update_weights", spec).results()`` reaches all.
        """
        return await asyncio.to_thread(update_weights, self._served.engine, spec)

    async def drain(self, limit_s: float) -> None:
        """Refuse what is new from now on; replies that take longer than ``limit_s`` seconds end with an error."""
        await asyncio.to_thread(self._served.engine.close, limit_s)

    def check_health(self) -> None:
        if self._served.engine.failure is not None:
            raise RuntimeError(f"the engine died: {self._served.engine.failure!r}")

    def __del__(self) -> None:
        if hasattr(self, "_served"):
            self._served.engine.close()
            self._served.engine.compute.close()
