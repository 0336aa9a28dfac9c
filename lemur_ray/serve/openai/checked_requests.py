"""What a request asks for, once its body is checked: one form for what the bodies say in several ways.

Parameters nobody knows are ignored and named, so that they can be counted. Knows nothing of HTTP frameworks, engines
or tokenizers.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import Any

from lemur_ray.agents.messages import Message, ToolCall
from lemur_ray.serve.engine.sampling_options import HTTP_DEFAULTS, NUMBERS, LogitBias, SamplingOptions
from lemur_ray.serve.openai.errors import LONE_SURROGATE, invalid, is_utf8
from lemur_ray.serve.openai.request_models import ChatBody, CompletionBody, SamplingBody, ShownBody, TokenizeBody, Turn
from lemur_ray.serve.openai.structured_output import Structure
from lemur_ray.serve.openai.tools import Toolbox, toolbox
from lemur_ray.text.tool_results import sort_results_by_call, stray_result


@dataclass(frozen=True)
class Common:
    """What both endpoints take."""

    model: str
    max_tokens: int | None
    """None: what is left of the context"""
    sampling: SamplingOptions
    logprobs: int | None
    """Alternatives to name beside every token's log-probability; None: no log-probabilities"""
    structure: Structure | None
    """What the reply has to be"""
    n: int
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    return_token_ids: bool
    """Of the prompt, and in a stream of every piece; a whole choice has its own in any case"""
    session_id: str
    """``prompt_cache_key``: requests with the same one go on with each other"""
    ignored: tuple[str, ...]
    """Names of parameters that nobody knows"""


@dataclass(frozen=True)
class Conversation:
    """What a chat template is to show."""

    messages: tuple[Message, ...]
    tools: Toolbox | None
    prompts: bool
    """``add_generation_prompt``"""
    goes_on: bool
    """``continue_final_message``"""
    options: dict[str, Any]
    """``chat_template_kwargs``"""
    documents: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class ChatCall:
    """A body of /v1/chat/completions."""

    common: Common
    conversation: Conversation
    tools: Toolbox | None


@dataclass(frozen=True)
class TokenizeCall:
    """A body of /tokenize: a text or a conversation."""

    model: str | None
    add_special_tokens: bool
    return_token_strs: bool
    split_special_tokens: bool = False
    text: str = ""
    conversation: Conversation | None = None


@dataclass(frozen=True)
class CompletionCall:
    """A body of /v1/completions."""

    common: Common
    prompts: tuple[str | tuple[int, ...], ...]
    echo: bool
    """The prompt comes back in front of the reply"""


def parse_chat(body: Any, defaults: SamplingOptions = HTTP_DEFAULTS) -> ChatCall:
    """Check a body of /v1/chat/completions; defaults: of the model, for what it does not say. Raises ApiError 400."""
    asked = ChatBody.of(body)
    tools = toolbox(asked.tools, as_given(body), asked.tool_choice, asked.parallel_tool_calls)
    structure = asked.response_format.structure() if asked.response_format else None
    if tools is not None and (called := tools.structure()) is not None:
        structure = called
    logprobs = (asked.top_logprobs or 0) if asked.logprobs else None
    limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    common = _common(asked, body, limit, logprobs, structure, defaults)
    return ChatCall(common, _conversation(asked, tools), tools)


def parse_tokenize(body: Any) -> TokenizeCall:
    """Check a body of /tokenize. Raises ApiError 400."""
    asked = TokenizeBody.of(body)
    if (asked.prompt is None) == (asked.messages is None):
        what = (
            "is missing: expected prompt or messages" if asked.prompt is None else "and messages: expected one of them"
        )
        raise invalid("prompt", what)
    if asked.messages is None:
        special = asked.add_special_tokens is not False
        return TokenizeCall(
            asked.model, special, asked.return_token_strs, asked.split_special_tokens, text=asked.prompt
        )
    conversation = _conversation(asked, toolbox(asked.tools, as_given(body), None, True))
    return TokenizeCall(asked.model, bool(asked.add_special_tokens), asked.return_token_strs, conversation=conversation)


def parse_completion(body: Any, defaults: SamplingOptions = HTTP_DEFAULTS) -> CompletionCall:
    """Check a body of /v1/completions; defaults: as for a chat. Raises ApiError 400."""
    asked = CompletionBody.of(body)
    prompt = asked.prompt
    prompts: tuple[str | tuple[int, ...], ...]
    if isinstance(prompt, str):
        prompts = (prompt,)
    elif isinstance(prompt[0], int):
        prompts = (tuple(prompt),)
    else:
        prompts = tuple(p if isinstance(p, str) else tuple(p) for p in prompt)
    common = _common(asked, body, asked.max_tokens, asked.logprobs, None, defaults)
    return CompletionCall(common, prompts, asked.echo)


def _common(
    asked: SamplingBody,
    body: dict[str, Any],
    limit: int | None,
    logprobs: int | None,
    structure: Structure | None,
    defaults: SamplingOptions,
) -> Common:
    if structure is None and asked.structured_outputs:
        structure = asked.structured_outputs.structure()
    return Common(
        model=asked.model,
        max_tokens=limit,
        sampling=_sampling(asked, defaults),
        logprobs=logprobs,
        structure=structure,
        n=asked.n,
        stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop),
        stream=asked.stream,
        include_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        return_token_ids=asked.return_token_ids,
        session_id=asked.prompt_cache_key,
        ignored=asked.unknown(body),
    )


def as_given(body: dict[str, Any]) -> list[dict[str, Any]]:
    """``tools`` as they came, once they are checked: templates show them with all that they have."""
    given = body.get("tools") or []
    if not is_utf8(json.dumps(given, ensure_ascii=False)):
        raise invalid("tools", LONE_SURROGATE)
    return list(given)


def _conversation(asked: ShownBody, tools: Toolbox | None) -> Conversation:
    if asked.continue_final_message and asked.add_generation_prompt:
        raise invalid("continue_final_message", "goes on with the last message: add_generation_prompt must be false")
    messages = list(map(_message, asked.messages))
    if stray := stray_result(messages):
        number, calls = stray
        what = f"is {messages[number].tool_call_id!r}, which is no call of the assistant's turn before: "
        raise invalid(f"messages[{number}].tool_call_id", f"{what}expected one of {', '.join(map(repr, calls))}"[:300])
    return Conversation(
        tuple(sort_results_by_call(messages)),
        tools,
        asked.add_generation_prompt,
        asked.continue_final_message,
        asked.chat_template_kwargs,
        tuple(asked.documents),
    )


def _message(turn: Turn) -> Message:
    calls = tuple(ToolCall(call.function.name, call.function.arguments, call.id) for call in turn.tool_calls)
    thoughts = turn.reasoning_content or turn.thinking or turn.reasoning
    return Message(turn.role, turn.text, calls, turn.tool_call_id, turn.name, reasoning=thoughts)


def _sampling(body: SamplingBody, defaults: SamplingOptions) -> SamplingOptions:
    """The options of a body; a random seed where it has none."""
    values = {option.name: getattr(body, option.name) for option in NUMBERS}
    stated = {name: value for name, value in values.items() if value is not None}
    seed = secrets.randbits(64) if body.seed is None else body.seed
    return replace(defaults, seed=seed, logit_bias=LogitBias.of(body.logit_bias), **stated)
