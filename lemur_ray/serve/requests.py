"""OpenAI request bodies, checked by hand: what is accepted, what is refused, and with which words.

Every refusal is an ApiError that carries OpenAI's error body. Parameters that are known but not offered here are
refused unless they have the value that asks for nothing; parameters nobody knows are ignored and named, so that they
can be counted. Knows nothing of HTTP frameworks, engines or tokenizers.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lemur_ray.agents.messages import Message


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


@dataclass(frozen=True)
class Common:
    """What both endpoints take."""

    model: str
    max_tokens: int | None
    """None: what is left of the context"""
    temperature: float
    top_p: float
    top_k: int
    n: int
    seed: int
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    return_prompt_ids: bool
    ignored: tuple[str, ...]
    """Names of parameters that nobody knows"""


@dataclass(frozen=True)
class ChatCall:
    """A body of /v1/chat/completions."""

    common: Common
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class CompletionCall:
    """A body of /v1/completions."""

    common: Common
    prompts: tuple[str | tuple[int, ...], ...]


MAX_CHOICES = 128
MAX_STOPS, MAX_STOP_CHARACTERS = 16, 1024

_COMMON = {
    *("model", "max_tokens", "temperature", "top_p", "top_k", "n", "seed", "stop", "stream", "stream_options", "user"),
    *("return_token_ids", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
}
# Known, not offered: the values of each that ask for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "logprobs": (False,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
_UNSUPPORTED_CHAT: dict[str, tuple[Any, ...]] = {
    **_UNSUPPORTED,
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
}
_UNSUPPORTED_COMPLETION: dict[str, tuple[Any, ...]] = {
    **_UNSUPPORTED,
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
}
_DEFAULT_COMPLETION_TOKENS = 16


def parse_chat(body: Any) -> ChatCall:
    """Check a body of /v1/chat/completions. Raises ApiError 400."""
    body = _object(body)
    known = {"messages", "max_completion_tokens", *_UNSUPPORTED_CHAT}
    common = _common(body, known, _UNSUPPORTED_CHAT, default_tokens=None)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _invalid("messages", "must be a list of at least one message")
    return ChatCall(common, tuple(_message(m, f"messages[{i}]") for i, m in enumerate(messages)))


def parse_completion(body: Any) -> CompletionCall:
    """Check a body of /v1/completions. Raises ApiError 400."""
    body = _object(body)
    common = _common(body, {"prompt", *_UNSUPPORTED_COMPLETION}, _UNSUPPORTED_COMPLETION, _DEFAULT_COMPLETION_TOKENS)
    prompt = body.get("prompt")
    prompts: tuple[str | tuple[int, ...], ...]
    if isinstance(prompt, str):
        prompts = (prompt,)
    elif not isinstance(prompt, list) or not prompt:
        raise _invalid("prompt", "must be a string, a list of strings, a list of token ids or a list of such lists")
    elif all(isinstance(p, str) for p in prompt):
        prompts = tuple(prompt)
    elif all(_is_int(p) for p in prompt):
        prompts = (tuple(prompt),)
    elif all(isinstance(p, list) and p and all(_is_int(i) for i in p) for p in prompt):
        prompts = tuple(tuple(p) for p in prompt)
    else:
        raise _invalid("prompt", "must not mix strings and token ids, and no list of token ids may be empty")
    if not all(_is_utf8(p) for p in prompts if isinstance(p, str)):
        raise _invalid("prompt", _LONE)
    return CompletionCall(common, prompts)


def _common(
    body: dict[str, Any], known: set[str], unsupported: Mapping[str, tuple[Any, ...]], default_tokens: int | None
) -> Common:
    for name, harmless in unsupported.items():
        value = body.get(name)
        if value is not None and not any(
            value == h and isinstance(value, bool) == isinstance(h, bool) for h in harmless
        ):
            raise ApiError(400, f"{name} is not supported by this server", param=name, code="unsupported_parameter")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise _invalid("model", "must be the name of a model: see /v1/models")
    stream = _flag(body, "stream")
    options = body.get("stream_options")
    if options is not None and (not stream or not isinstance(options, dict)):
        raise _invalid("stream_options", "must be an object, and only together with stream: true")
    limit = _integer(body, "max_tokens", None, 1)
    if "max_completion_tokens" in known:
        limit = _integer(body, "max_completion_tokens", limit, 1)
    seed = _integer(body, "seed", None, None)
    return Common(
        model=model,
        max_tokens=default_tokens if limit is None else limit,
        temperature=_number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(body, "top_p", 1.0, 0.0, 1.0, open_below=True),
        top_k=max(_integer(body, "top_k", 0, -1) or 0, 0),
        n=_integer(body, "n", 1, 1, MAX_CHOICES) or 1,
        seed=secrets.randbits(64) if seed is None else seed,
        stop=_stop(body.get("stop")),
        stream=stream,
        include_usage=_flag(options, "include_usage", "stream_options.") if options else False,
        return_prompt_ids=_flag(body, "return_token_ids"),
        ignored=tuple(sorted(k for k in body if k not in known and k not in _COMMON)),
    )


def _message(value: Any, param: str) -> Message:
    if not isinstance(value, dict):
        raise _invalid(param, "must be an object with role and content")
    role, content = value.get("role"), value.get("content")
    if role not in ("system", "developer", "user", "assistant"):
        raise _invalid(f"{param}.role", "must be one of system, developer, user, assistant")
    if value.get("tool_calls"):
        raise ApiError(
            400, "tool_calls is not supported by this server", param=f"{param}.tool_calls", code="unsupported_parameter"
        )
    if isinstance(content, list):
        if not all(isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in content):
            raise _invalid(f"{param}.content", "may hold parts of type text only")
        content = "".join(p["text"] for p in content)
    if not isinstance(content, str):
        raise _invalid(f"{param}.content", "must be a string or a list of text parts")
    if not _is_utf8(content):
        raise _invalid(f"{param}.content", _LONE)
    return Message("system" if role == "developer" else role, content)


def _stop(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise _invalid("stop", "must be a string or a list of strings, none of them empty")
    if len(stops) > MAX_STOPS or any(len(s) > MAX_STOP_CHARACTERS for s in stops):
        raise _invalid("stop", f"may hold {MAX_STOPS} strings of {MAX_STOP_CHARACTERS} characters at most")
    return tuple(stops)


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ApiError(400, f"the body is a JSON {type(body).__name__}: expected an object")
    return body


def _flag(body: Mapping[str, Any], name: str, prefix: str = "") -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise _invalid(prefix + name, "must be true or false")
    return bool(value)


_LONE = "holds half of a surrogate pair, which is no text"


def _is_utf8(text: str) -> bool:
    """Whether a string is text; JSON can spell strings that are not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integer(
    body: Mapping[str, Any], name: str, default: int | None, low: int | None, high: int | None = None
) -> int | None:
    value = body.get(name)
    if value is None:
        return default
    if not _is_int(value):
        raise _invalid(name, "must be an integer")
    if (low is not None and value < low) or (high is not None and value > high):
        raise _invalid(
            name, f"is {value}: must be at least {low}" + (f" and at most {high}" if high is not None else "")
        )
    return int(value)


def _number(
    body: Mapping[str, Any], name: str, default: float, low: float, high: float, open_below: bool = False
) -> float:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _invalid(name, "must be a number")
    if not (low < value if open_below else low <= value) or not value <= high:
        raise _invalid(
            name, f"is {value}: must be {'above' if open_below else 'at least'} {low:g} and at most {high:g}"
        )
    return float(value)


def _invalid(param: str, what: str) -> ApiError:
    return ApiError(400, f"{param} {what}", param=param, code="invalid_value")
