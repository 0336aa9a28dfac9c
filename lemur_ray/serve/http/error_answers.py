"""Errors of a request as HTTP responses in OpenAI's form. Knows nothing of the endpoints."""

import contextlib
from collections.abc import Iterator

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from lemur_ray.serve.engine.errors import ContextExceeded, EngineError, QueueFull
from lemur_ray.serve.engine.sampling_options import InvalidRequest
from lemur_ray.serve.http.metrics import Metrics
from lemur_ray.serve.openai.errors import ApiError
from lemur_ray.serve.request_errors import error_form
from lemur_ray.text.chat_template import TemplateError

FAILED = ApiError(500, "the server failed to answer; its log says why", kind="server_error")
"""Sent for an unexpected exception, whose traceback goes to the log alone."""


def api_error(error: EngineError | ValueError, param: str | None = None) -> ApiError:
    """Convert an error to OpenAI's form, with HTTP status. param: field at fault, unless the error names one."""
    form = error_form(error)
    headers = {"retry-after": str(error.retry_after_s)} if isinstance(error, QueueFull) else {}
    param = error.param if isinstance(error, InvalidRequest) else param
    return ApiError(form.status, str(error), kind=form.kind, param=param, code=form.code, headers=headers)


@contextlib.contextmanager
def errors_about(param: str) -> Iterator[None]:
    """Context that turns ContextExceeded, InvalidRequest and TemplateError into ApiError about field ``param``."""
    try:
        yield
    except (ContextExceeded, InvalidRequest, TemplateError) as error:
        raise api_error(error, param) from error


def handle_errors(app: FastAPI, metrics: Metrics) -> None:
    """Let the app answer ApiError and HTTPException in OpenAI's form, and count them by status in ``metrics``."""

    def response(error: ApiError) -> Response:
        metrics.refused(error.status)
        return JSONResponse(error.body(), error.status, error.headers)

    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        return response(error)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        messages = {404: "Unknown request URL", 405: "Wrong method for this URL"}
        message = f"{messages.get(error.status_code, error.detail)}: {request.method} {request.url.path}"
        return response(ApiError(error.status_code, message, headers=error.headers))
