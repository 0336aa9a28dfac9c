"""A refusal in OpenAI's form, and text that is none, which is refused wherever it stands.

Knows nothing of the endpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """An answer that is an error, in OpenAI's form."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.kind, self.param, self.code, self.headers = status, kind, param, code, dict(headers or {})

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


LONE_SURROGATE = "holds half of a surrogate pair, which is no text"


def is_utf8(text: str) -> bool:
    """Whether a string is text; JSON can spell strings that are not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def spelled(value: Any, param: str) -> str:
    """JSON of a part of a body, which came as JSON. Raises ApiError 400 where that is no text, or nested too deeply."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise invalid(param, "is nested too deeply") from error
    if not is_utf8(text):
        raise invalid(param, LONE_SURROGATE)
    return text


def invalid(param: str, what: str) -> ApiError:
    return ApiError(400, f"{param} {what}", param=param, code="invalid_value")
