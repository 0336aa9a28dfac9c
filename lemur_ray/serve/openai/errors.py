"""Errors in OpenAI's form, and the check for strings that are not valid text. Knows nothing of the endpoints."""

import json
from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """An error response in OpenAI's form. status: of HTTP; kind: OpenAI's ``type``; param: the field at fault; headers:
    of the response. message: for people; code: OpenAI's ``code``."""

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
    """Whether a string can be encoded as UTF-8: False for lone surrogates, which JSON can spell as escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_text(value: Any, param: str) -> str:
    """JSON text of ``value``, the part of a body named ``param``. Raises ApiError 400 for lone surrogates, or if it is
    nested too deeply."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise invalid(param, "is nested too deeply") from error
    if not is_utf8(text):
        raise invalid(param, LONE_SURROGATE)
    return text


def invalid(param: str, what: str) -> ApiError:
    """An ApiError 400 about the parameter ``param``; ``what`` continues the sentence that begins with that name."""
    return ApiError(400, f"{param} {what}", param=param, code="invalid_value")
