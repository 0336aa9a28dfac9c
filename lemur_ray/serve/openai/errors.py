"""Values of a JSON body, read one by one, and the error that says what is wrong with one of them.

Every refusal is an ApiError that carries OpenAI's error body. Knows nothing of the endpoints.
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


def as_object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ApiError(400, f"the body is a JSON {type(body).__name__}: expected an object")
    return body


def flag(body: Mapping[str, Any], name: str, prefix: str = "", *, default: bool = False) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(prefix + name, "must be true or false")
    return default if value is None else value


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


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def integer(
    body: Mapping[str, Any], name: str, default: int | None, low: int | None, high: int | None = None
) -> int | None:
    value = body.get(name)
    if value is None:
        return default
    if not is_int(value):
        raise invalid(name, "must be an integer")
    if (low is not None and value < low) or (high is not None and value > high):
        raise invalid(
            name, f"is {value}: must be at least {low}" + (f" and at most {high}" if high is not None else "")
        )
    return int(value)


def number(
    body: Mapping[str, Any],
    name: str,
    default: float,
    low: float,
    high: float,
    *,
    open_below: bool = False,
    prefix: str = "",
) -> float:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise invalid(prefix + name, "must be a number")
    if not (low < value if open_below else low <= value) or not value <= high:
        least = f"{'above' if open_below else 'at least'} {low:g}"
        raise invalid(prefix + name, f"is {value}: must be {least} and at most {high:g}")
    return float(value)


def invalid(param: str, what: str) -> ApiError:
    return ApiError(400, f"{param} {what}", param=param, code="invalid_value")
