"""Routes for whoever runs the server: /health, /ready, /metrics, /v1/models."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from lemur_ray.serve.engine.errors import EngineClosed
from lemur_ray.serve.http.error_answers import api_error
from lemur_ray.serve.http.metrics import Metrics
from lemur_ray.serve.http.request_body import check_model
from lemur_ray.serve.text_engine import TextEngine

MetricsPage = Callable[[], Awaitable[str]]
"""Makes the text of /metrics"""


def operator_routes(served: TextEngine, metrics: Metrics, page: MetricsPage | None = None) -> APIRouter:
    """The routes /health, /ready, /metrics and /v1/models of one model. page: makes the text of /metrics; None: it is
    that of ``metrics``."""
    router = APIRouter()

    @router.head("/health", include_in_schema=False)
    @router.get("/health")
    async def health() -> Response:
        """200 while the engine's thread lives, else 503."""
        if served.engine.failure is not None:
            raise api_error(EngineClosed(f"the engine died: {served.engine.failure!r}"))
        return JSONResponse({"status": "ok"})

    @router.head("/ready", include_in_schema=False)
    @router.get("/ready")
    async def ready() -> Response:
        """200 once programs are compiled and while requests are accepted, else 503."""
        if not served.engine.ready.is_set() or not served.engine.accepting:
            raise api_error(EngineClosed("the engine is not ready: it is starting, shutting down, or dead"))
        return JSONResponse({"status": "ready", "model": served.name, "version": served.version})

    @router.get("/metrics")
    async def show_metrics() -> Response:
        text = metrics.render() if page is None else await page()
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    @router.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [_model(served)]})

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        check_model(served, name)
        return JSONResponse(_model(served))

    return router


def _model(served: TextEngine) -> dict[str, Any]:
    body = {"id": served.name, "object": "model", "created": served.created, "owned_by": "lemur-ray"}
    return {**body, "max_model_len": served.engine.context, "version": served.version}
