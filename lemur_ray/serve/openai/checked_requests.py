"""Checked requests: the values of a body in one form, however the endpoints spell them.

Unknown parameters are ignored and listed, so that they can be counted. Knows nothing of HTTP frameworks, engines or
tokenizers."""

import secrets
from dataclasses import dataclass, replace
from typing import Any

from lemur_ray.agents.messages import Message, ToolCall
from lemur_ray.serve.engine.sampling_options import HTTP_DEFAULTS, NUMBERS, LogitBias, SamplingOptions
from lemur_ray.serve.openai.errors import invalid, json_text
from lemur_ray.serve.openai.request_models import ChatBody, CompletionBody, SamplingBody, TokenizeBody, Turn, TurnsBody
from lemur_ray.serve.openai.structured_output import Structure
from lemur_ray.serve.openai.tools import Toolbox, toolbox
from lemur_ray.text.tool_results import sort_results_by_call, stray_result


@dataclass(frozen=True)
class Common:
    """A body of a chat or completion request, and its values that the endpoints spell differently."""

    body: SamplingBody
    max_tokens: int | None
    """None: the rest of the context"""
    sampling: SamplingOptions
    logprobs: int | None
    """Alternatives returned with every token's log-probability; None: no log-probabilities"""
    structure: Structure | None
    """Form that the reply must have"""
    ignored: tuple[str, ...]
    """Names of unknown parameters"""


@dataclass(frozen=True)
class Conversation:
    """Checked input of a chat template: options and documents of ``body``, its messages, and its tools."""

    body: TurnsBody
    messages: tuple[Message, ...]
    tools: Toolbox | None


@dataclass(frozen=True)
class ChatCall:
    """A checked body of /v1/chat/completions: conversation, and what replies shall be like."""

    common: Common
    conversation: Conversation


@dataclass(frozen=True)
class CompletionCall:
    """A checked body of /v1/completions: prompts, and what replies shall be like."""

    common: Common
    prompts: tuple[str | tuple[int, ...], ...]
    echo: bool
    """Whether to return the prompt in front of the reply"""


def parse_chat(body: Any, defaults: SamplingOptions = HTTP_DEFAULTS) -> ChatCall:
    """Check a parsed body of /v1/chat/completions. defaults: sampling options where the body has none; without a seed,
    a random one is drawn. Raises ApiError 400 about the first invalid field."""
    valid = ChatBody.of(body)
    tools = toolbox(valid.tools, raw_tools(body), valid.tool_choice, valid.parallel_tool_calls)
    structure = valid.response_format.structure() if valid.response_format else None
    if tools is not None and (called := tools.structure()) is not None:
        structure = called
    logprobs = (valid.top_logprobs or 0) if valid.logprobs else None
    limit = valid.max_tokens if valid.max_completion_tokens is None else valid.max_completion_tokens
    common = _common(valid, body, limit, logprobs, structure, defaults)
    return ChatCall(common, _conversation(valid, tools))


def parse_tokenize(body: Any) -> tuple[TokenizeBody, Conversation | None]:
    """Check a parsed body of /tokenize, which has either ``prompt`` or ``messages``; returns it with its conversation,
    if any. Raises ApiError 400 about the first invalid field."""
    valid = TokenizeBody.of(body)
    if valid.prompt is None and valid.messages is None:
        raise invalid("prompt", "is missing: expected prompt or messages")
    if valid.prompt is not None and valid.messages is not None:
        raise invalid("prompt", "and messages: expected one of them")
    if valid.messages is None:
        return valid, None
    return valid, _conversation(valid, toolbox(valid.tools, raw_tools(body), None, True))


def parse_completion(body: Any, defaults: SamplingOptions = HTTP_DEFAULTS) -> CompletionCall:
    """Check a parsed body of /v1/completions; a single prompt becomes a list of one. defaults: sampling options where
    the body has none. Raises ApiError 400."""
    valid = CompletionBody.of(body)
    prompt = valid.prompt
    prompts: tuple[str | tuple[int, ...], ...]
    if isinstance(prompt, str):
        prompts = (prompt,)
    elif isinstance(prompt[0], int):
        prompts = (tuple(prompt),)
    else:
        prompts = tuple(p if isinstance(p, str) else tuple(p) for p in prompt)
    common = _common(valid, body, valid.max_tokens, valid.logprobs, None, defaults)
    return CompletionCall(common, prompts, valid.echo)


def _common(
    valid: SamplingBody,
    body: dict[str, Any],
    limit: int | None,
    logprobs: int | None,
    structure: Structure | None,
    defaults: SamplingOptions,
) -> Common:
    if structure is None and valid.structured_outputs:
        structure = valid.structured_outputs.structure()
    return Common(valid, limit, _sampling(valid, defaults), logprobs, structure, valid.unknown(body))


def raw_tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    """``tools`` of a body with all their fields, for the chat template; [] if it has none. Raises ApiError 400 for lone
    surrogates or too deep nesting."""
    tools = body.get("tools") or []
    json_text(tools, "tools")
    return list(tools)


def _conversation(valid: TurnsBody, tools: Toolbox | None) -> Conversation:
    if valid.continue_final_message and valid.add_generation_prompt:
        raise invalid("continue_final_message", "goes on with the last message: add_generation_prompt must be false")
    messages = list(map(_message, valid.messages))
    if stray := stray_result(messages):
        number, calls = stray
        what = f"is {messages[number].tool_call_id!r}, which is no call of the assistant's turn before: "
        raise invalid(f"messages[{number}].tool_call_id", f"{what}expected one of {', '.join(map(repr, calls))}"[:300])
    return Conversation(valid, tuple(sort_results_by_call(messages)), tools)


def _message(turn: Turn) -> Message:
    calls = tuple(ToolCall(call.function.name, call.function.arguments, call.id) for call in turn.tool_calls)
    thoughts = turn.reasoning_content or turn.thinking or turn.reasoning
    return Message(turn.role, turn.text, calls, turn.tool_call_id, turn.name, reasoning=thoughts)


def _sampling(body: SamplingBody, defaults: SamplingOptions) -> SamplingOptions:
    """Sampling options: those of a body, else ``defaults``, with a random seed if the body has none."""
    stated: dict[str, Any] = {name: number for name in NUMBERS if (number := getattr(body, name)) is not None}
    seed = secrets.randbits(64) if body.seed is None else body.seed
    return replace(defaults, seed=seed, logit_bias=LogitBias.of(body.logit_bias), **stated)
