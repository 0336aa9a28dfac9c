"""What a request asks for, once its body is checked: one form for what the bodies say in several ways.

Parameters nobody knows are ignored and named, so that they can be counted. Knows nothing of HTTP frameworks, engines
or tokenizers.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.serve.openai.request_models import ChatBody, CompletionBody, SamplingBody, Turn
from lemur_ray.serve.openai.structured_output import Structure
from lemur_ray.serve.openai.tools import Toolbox, spoken_calls, toolbox


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


def parse_chat(body: Any) -> ChatCall:
    """Check a body of /v1/chat/completions. Raises ApiError 400."""
    asked = ChatBody.of(body)
    tools = toolbox(asked.tools, asked.tool_choice, asked.parallel_tool_calls)
    structure = asked.response_format.structure() if asked.response_format else None
    if tools is not None and (called := tools.structure()) is not None:
        structure = called
    logprobs = (asked.top_logprobs or 0) if asked.logprobs else None
    limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    common = _common(asked, body, limit, logprobs, structure)
    turns = tuple(map(_message, asked.messages))
    return ChatCall(common, turns if tools is None else tools.described(turns), tools)


def parse_completion(body: Any) -> CompletionCall:
    """Check a body of /v1/completions. Raises ApiError 400."""
    asked = CompletionBody.of(body)
    prompt = asked.prompt
    prompts: tuple[str | tuple[int, ...], ...]
    if isinstance(prompt, str):
        prompts = (prompt,)
    elif isinstance(prompt[0], int):
        prompts = (tuple(prompt),)
    else:
        prompts = tuple(p if isinstance(p, str) else tuple(p) for p in prompt)
    return CompletionCall(_common(asked, body, asked.max_tokens, asked.logprobs, None), prompts, asked.echo)


def _common(
    asked: SamplingBody, body: dict[str, Any], limit: int | None, logprobs: int | None, structure: Structure | None
) -> Common:
    if structure is None and asked.structured_outputs:
        structure = asked.structured_outputs.structure()
    return Common(
        model=asked.model,
        max_tokens=limit,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=max(asked.top_k, 0),
        min_p=asked.min_p,
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        logit_bias=tuple(sorted({int(token): bias for token, bias in asked.logit_bias.items()}.items())),
        logprobs=logprobs,
        structure=structure,
        n=asked.n,
        seed=secrets.randbits(64) if asked.seed is None else asked.seed,
        stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop),
        stream=asked.stream,
        include_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        return_prompt_ids=asked.return_token_ids,
        session=asked.prompt_cache_key,
        ignored=asked.unknown(body),
    )


def _message(turn: Turn) -> Message:
    calls = spoken_calls(turn.tool_calls)
    content = f"{turn.text}\n{calls}" if turn.text and calls else turn.text or calls
    return Message("system" if turn.role == "developer" else turn.role, content)
