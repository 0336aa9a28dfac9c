"""The body of a request, read up to a limit and parsed, and the model it names.

Knows nothing of what the endpoints ask for in it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from lemur_ray.serve.openai.errors import ApiError
from lemur_ray.serve.text_engine import TextEngine

MAX_BODY_BYTES = 32 * 2**20
BODY_TIMEOUT_S = 120.0
"""Seconds in which a body has to arrive."""


async def read_json(request: Request) -> Any:
    """The body of a request; one that is too large is refused before it is in memory."""
    declared = request.headers.get("content-length", "")
    too_large = ApiError(413, f"the body is too large: at most {MAX_BODY_BYTES} bytes are read")
    if declared.isdigit() and int(declared[:20]) > MAX_BODY_BYTES:
        raise too_large
    raw = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > MAX_BODY_BYTES:
                    raise too_large
    except TimeoutError as slow:
        raise ApiError(408, f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s", code="timeout") from slow
    except ClientDisconnect as gone:
        raise ApiError(499, "the client went away before its request was whole") from gone
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error


def check_model(served: TextEngine, name: str) -> None:
    """Raises ApiError 404 where a request is about another model."""
    if name != served.name:
        message = f"The model {name!r} does not exist; this server has {served.name!r}."
        raise ApiError(404, message, param="model", code="model_not_found")
