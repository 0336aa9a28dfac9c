"""What the endpoints take, as /openapi.json describes it: for people who look and for programs that generate requests.

``requests.py`` decides; this describes. Knows nothing else.
"""

from __future__ import annotations

from typing import Any

from lemur_ray.serve.engine.scores import ALTERNATIVES

Schema = dict[str, Any]


def _number(low: float, high: float) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high}


def _whole(low: int, high: int | None = None) -> Schema:
    return {"type": "integer", "minimum": low, **({} if high is None else {"maximum": high})}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_ANY: Schema = {"type": "object"}
_IDS = _list(_whole(0))
_COMMON: dict[str, Schema] = {
    "max_tokens": _whole(0),
    "temperature": _number(0, 2),
    "top_p": _number(0, 1),
    "top_k": _whole(-1),
    "min_p": _number(0, 1),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "logit_bias": {"type": "object", "additionalProperties": _number(-100, 100)},
    "seed": {"type": "integer"},
    "n": _whole(1, 8),
    "stop": {"oneOf": [_TEXT, _list(_TEXT)]},
    "stream": _FLAG,
    "stream_options": {"type": "object", "properties": {"include_usage": _FLAG}},
    "structured_outputs": {
        "type": "object",
        "properties": {"json": _ANY, "regex": _TEXT, "grammar": _TEXT, "choice": _list(_TEXT)},
    },
    "return_token_ids": _FLAG,
}
_MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"oneOf": [_TEXT, _list({"type": "object", "properties": {"type": _TEXT, "text": _TEXT}})]},
        "tool_calls": _list(_ANY),
        "tool_call_id": _TEXT,
    },
    "required": ["role"],
}
_TOOL: Schema = {
    "type": "object",
    "properties": {
        "type": {"enum": ["function"]},
        "function": {
            "type": "object",
            "properties": {"name": _TEXT, "description": _TEXT, "parameters": _ANY},
            "required": ["name"],
        },
    },
    "required": ["type", "function"],
}


def _body(properties: dict[str, Schema], *required: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def described(body: dict[str, Any], model: str) -> dict[str, Any]:
    """``openapi_extra`` of a route, for the model of that name."""
    schema = body["requestBody"]["content"]["application/json"]["schema"]
    named = {**schema, "properties": {**schema["properties"], "model": {"enum": [model]}}}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": named}}}}


CHAT = _body(
    {
        **_COMMON,
        "messages": _list(_MESSAGE),
        "max_completion_tokens": _whole(1),
        "logprobs": _FLAG,
        "top_logprobs": _whole(0, ALTERNATIVES),
        "response_format": {"type": "object", "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}}},
        "tools": _list(_TOOL),
        "tool_choice": {"oneOf": [{"enum": ["none", "auto", "required"]}, _ANY]},
        "parallel_tool_calls": _FLAG,
    },
    "model",
    "messages",
)
COMPLETION = _body(
    {
        **_COMMON,
        "prompt": {"oneOf": [_TEXT, _list(_TEXT), _IDS, _list(_IDS)]},
        "logprobs": _whole(0, ALTERNATIVES),
        "echo": _FLAG,
    },
    "model",
    "prompt",
)
TOKENIZE = _body({"prompt": _TEXT, "add_special_tokens": _FLAG, "split_special_tokens": _FLAG}, "prompt")
DETOKENIZE = _body({"tokens": _IDS}, "tokens")
