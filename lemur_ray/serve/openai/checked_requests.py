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
from lemur_ray.serve.engine.scores import ALTERNATIVES
from lemur_ray.serve.openai.fields import (
    LONE_SURROGATE,
    ApiError,
    as_object,
    flag,
    integer,
    invalid,
    is_int,
    is_utf8,
    number,
)
from lemur_ray.serve.openai.structured_output import Structure, parse_response_format, parse_structured_outputs
from lemur_ray.serve.openai.tools import Toolbox, parse_tools, spoken_calls


@dataclass(frozen=True)
class Common:
    """What both endpoints take."""

    model: str
    max_tokens: int | None
    """None: what is left of the context"""
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: tuple[tuple[int, float], ...]
    logprobs: int | None
    """Alternatives to name beside every token's log-probability; None: no log-probabilities"""
    structure: Structure | None
    """What the reply has to be"""
    n: int
    seed: int
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    return_prompt_ids: bool
    session: str
    """``prompt_cache_key``: requests with the same one go on with each other"""
    ignored: tuple[str, ...]
    """Names of parameters that nobody knows"""


@dataclass(frozen=True)
class ChatCall:
    """A body of /v1/chat/completions."""

    common: Common
    messages: tuple[Message, ...]
    tools: Toolbox | None


@dataclass(frozen=True)
class CompletionCall:
    """A body of /v1/completions."""

    common: Common
    prompts: tuple[str | tuple[int, ...], ...]
    echo: bool
    """The prompt comes back in front of the reply"""


MAX_CHOICES = 128
MAX_SESSION_CHARACTERS = 512
MAX_STOPS, MAX_STOP_CHARACTERS = 16, 1024

_COMMON = {
    *("model", "max_tokens", "temperature", "top_p", "top_k", "n", "seed", "stop", "stream", "stream_options", "user"),
    *("min_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "structured_outputs"),
    *("return_token_ids", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
}
# Known, not offered: the values of each that ask for nothing.
_UNSUPPORTED_CHAT: dict[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
}
_UNSUPPORTED_COMPLETION: dict[str, tuple[Any, ...]] = {"best_of": (1,), "suffix": ("",)}
_DEFAULT_COMPLETION_TOKENS = 16


def parse_chat(body: Any) -> ChatCall:
    """Check a body of /v1/chat/completions. Raises ApiError 400."""
    body = as_object(body)
    known = {"messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls"}
    known |= {"response_format", *_UNSUPPORTED_CHAT}
    alternatives = integer(body, "top_logprobs", None, 0, ALTERNATIVES)
    logprobs = (alternatives or 0) if flag(body, "logprobs") else None
    if alternatives is not None and logprobs is None:
        raise invalid("top_logprobs", "needs logprobs: true")
    tools = parse_tools(body)
    structure = parse_response_format(body.get("response_format"))
    if tools is not None and (called := tools.structure()) is not None:
        structure = called
    common = _common(body, known, _UNSUPPORTED_CHAT, None, logprobs, structure)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "must be a list of at least one message")
    turns = tuple(_message(m, f"messages[{i}]") for i, m in enumerate(messages))
    return ChatCall(common, turns if tools is None else tools.described(turns), tools)


def parse_completion(body: Any) -> CompletionCall:
    """Check a body of /v1/completions. Raises ApiError 400."""
    body = as_object(body)
    known, echo = {"prompt", "echo", *_UNSUPPORTED_COMPLETION}, flag(body, "echo")
    logprobs = integer(body, "logprobs", None, 0, ALTERNATIVES)
    tokens = _DEFAULT_COMPLETION_TOKENS
    common = _common(body, known, _UNSUPPORTED_COMPLETION, tokens, logprobs, fewest_tokens=0 if echo else 1)
    prompt = body.get("prompt")
    prompts: tuple[str | tuple[int, ...], ...]
    if isinstance(prompt, str):
        prompts = (prompt,)
    elif not isinstance(prompt, list) or not prompt:
        raise invalid("prompt", "must be a string, a list of strings, a list of token ids or a list of such lists")
    elif all(isinstance(p, str) for p in prompt):
        prompts = tuple(prompt)
    elif all(is_int(p) for p in prompt):
        prompts = (tuple(prompt),)
    elif all(isinstance(p, list) and p and all(is_int(i) for i in p) for p in prompt):
        prompts = tuple(tuple(p) for p in prompt)
    else:
        raise invalid("prompt", "must not mix strings and token ids, and no list of token ids may be empty")
    if not all(is_utf8(p) for p in prompts if isinstance(p, str)):
        raise invalid("prompt", LONE_SURROGATE)
    return CompletionCall(common, prompts, echo)


def _common(
    body: dict[str, Any],
    known: set[str],
    unsupported: Mapping[str, tuple[Any, ...]],
    default_tokens: int | None,
    logprobs: int | None,
    structure: Structure | None = None,
    fewest_tokens: int = 1,
) -> Common:
    for name, harmless in unsupported.items():
        value = body.get(name)
        if value is not None and not any(
            value == h and isinstance(value, bool) == isinstance(h, bool) for h in harmless
        ):
            raise ApiError(400, f"{name} is not supported by this server", param=name, code="unsupported_parameter")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise invalid("model", "must be the name of a model: see /v1/models")
    stream = flag(body, "stream")
    options = body.get("stream_options")
    if options is not None and (not stream or not isinstance(options, dict)):
        raise invalid("stream_options", "must be an object, and only together with stream: true")
    limit = integer(body, "max_tokens", None, fewest_tokens)
    if "max_completion_tokens" in known:
        limit = integer(body, "max_completion_tokens", limit, 1)
    seed = integer(body, "seed", None, None)
    return Common(
        model=model,
        max_tokens=default_tokens if limit is None else limit,
        temperature=number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=number(body, "top_p", 1.0, 0.0, 1.0, open_below=True),
        top_k=max(integer(body, "top_k", 0, -1) or 0, 0),
        min_p=number(body, "min_p", 0.0, 0.0, 1.0),
        presence_penalty=number(body, "presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=number(body, "frequency_penalty", 0.0, -2.0, 2.0),
        logit_bias=_bias(body.get("logit_bias")),
        logprobs=logprobs,
        structure=structure or parse_structured_outputs(body.get("structured_outputs")),
        n=integer(body, "n", 1, 1, MAX_CHOICES) or 1,
        seed=secrets.randbits(64) if seed is None else seed,
        stop=_stop(body.get("stop")),
        stream=stream,
        include_usage=flag(options, "include_usage", "stream_options.") if options else False,
        return_prompt_ids=flag(body, "return_token_ids"),
        session=_session(body.get("prompt_cache_key")),
        ignored=tuple(sorted(k for k in body if k not in known and k not in _COMMON)),
    )


def _message(value: Any, param: str) -> Message:
    if not isinstance(value, dict):
        raise invalid(param, "must be an object with role and content")
    role, content, calls = value.get("role"), value.get("content"), ""
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise invalid(f"{param}.role", "must be one of system, developer, user, assistant, tool")
    if role == "assistant" and value.get("tool_calls") is not None:
        calls = spoken_calls(value["tool_calls"], f"{param}.tool_calls")
        content = "" if content is None and calls else content
    if isinstance(content, list):
        if not all(isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in content):
            raise invalid(f"{param}.content", "may hold parts of type text only")
        content = "".join(p["text"] for p in content)
    if not isinstance(content, str):
        raise invalid(f"{param}.content", "must be a string or a list of text parts")
    if not is_utf8(content):
        raise invalid(f"{param}.content", LONE_SURROGATE)
    content = f"{content}\n{calls}" if content and calls else content or calls
    return Message("system" if role == "developer" else role, content)


def _session(value: Any) -> str:
    if value is not None and (not isinstance(value, str) or len(value) > MAX_SESSION_CHARACTERS):
        raise invalid("prompt_cache_key", f"must be a string of at most {MAX_SESSION_CHARACTERS} characters")
    return value or ""


def _bias(value: Any) -> tuple[tuple[int, float], ...]:
    """``logit_bias``: token ids are strings, as keys of JSON are."""
    if value is None:
        return ()
    if not isinstance(value, dict) or not all(key.isdecimal() and len(key) < 10 for key in value):
        raise invalid("logit_bias", "must be an object whose keys are token ids")
    biases = {int(key): number(value, key, 0.0, -100.0, 100.0, prefix="logit_bias.") for key in value}
    return tuple(sorted(biases.items()))


def _stop(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise invalid("stop", "must be a string or a list of strings, none of them empty")
    if len(stops) > MAX_STOPS or any(len(s) > MAX_STOP_CHARACTERS for s in stops):
        raise invalid("stop", f"may hold {MAX_STOPS} strings of {MAX_STOP_CHARACTERS} characters at most")
    return tuple(stops)
