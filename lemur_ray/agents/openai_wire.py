"""The OpenAI protocol without HTTP: builds request bodies, parses replies, error responses and model lists.

| in a response | result |
|---|---|
| fields ``reasoning_content`` or ``reasoning``, ``<think>`` blocks in the text | the reply's reasoning, not its text |
| ``</think>`` without a beginning | all text before it is reasoning |
| ``<think>`` without an end, and no text before it | all text after it is reasoning |
| a stop string | ends the text, which is then complete, even if the endpoint ignored the stop string |

Statuses are numbers, bodies are bytes or JSON values."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import ChatReply, ChatRequest, EndpointRefused, Usage, parse_tool_calls

ThoughtsForm = Literal["reasoning_content", "reasoning", "tags"]
MOST_STOPS = 4
"""Maximum stop strings of a request by the protocol; further ones are applied to the reply"""
NEXT_HUMAN = "\nHuman:"
"""Stop string for base models, which would go on to write the user's turn"""
OVERFLOW = (
    *("context_length_exceeded", "exceed_context_size", "maximum context length", "model's context length"),
    *("available context size", "context window", "maximum prompt length", "prompt is too long", "input is too long"),
    *("too many tokens", "exceeds the maximum number of tokens", "max_new_tokens` must be <="),
    "too large for model with",
)
"""Phrases of servers for a conversation that is too long"""
AGAINST_RULES = (
    *("content_filter", "content_policy", "content management policy", "content policy", "moderation"),
    "input was flagged",
)
"""Phrases of servers for content that their rules forbid"""
_BEGIN, _END = "<think>", "</think>"


class NotAReply(ValueError):
    """Raised if a response is not the expected JSON (a completion, a list of models)."""


@dataclass(frozen=True)
class Refusal:
    """An error response: HTTP status, and what its body states, each part empty if missing. ``param``: the request
    field that it complains about."""

    status: int
    message: str = ""
    code: str = ""
    param: str = ""

    @property
    def is_overflow(self) -> bool:
        """Whether the conversation is too long, by code or by phrase."""
        if self.code == "context_length_exceeded":
            return True
        words = f"{self.code} {self.message}".lower()
        return self.status in (400, 413, 422, 500) and any(phrase in words for phrase in OVERFLOW)

    @property
    def is_of_content(self) -> bool:
        """Whether the endpoint's content rules forbid the text, by phrases in code or message."""
        words = f"{self.code} {self.message}".lower()
        return 400 <= self.status < 500 and any(phrase in words for phrase in AGAINST_RULES)

    @property
    def wants_completion_tokens(self) -> bool:
        """Whether the model requires ``max_completion_tokens`` instead of ``max_tokens``."""
        return self.status in (400, 422) and "max_completion_tokens" in self.message and not self.is_overflow

    @property
    def unknown_field(self) -> str:
        """Name of the request field that the model does not support, at all or with this value; empty: none."""
        if self.status not in (400, 422) or not self.param:
            return ""
        unsupported = self.code in ("unsupported_parameter", "unsupported_value", "unknown_parameter")
        return self.param if unsupported else ""

    @property
    def is_spent(self) -> bool:
        """Whether the quota is spent, so that waiting is useless."""
        return self.status == 402 or self.code in ("insufficient_quota", "billing_hard_limit_reached")


def request_body(
    model: str, request: ChatRequest, options: EndpointOptions, token_field: str, form: ThoughtsForm | None
) -> dict[str, Any]:
    """JSON body of one request; ``options.more`` replaces its fields, and removes those of value None. ``token_field``:
    name of the field with the token limit. ``form``: field in which earlier reasoning is sent back, or "tags"; None: it
    is not. Raises EndpointRefused for a request with a picture or tools if the model takes one text only."""
    s = request.sampling
    if request.tools and (request.raw or options.api != "chat"):
        raise EndpointRefused("tools are offered natively to chat models alone: describe them with --tools words")
    if request.picture and (request.raw or options.api != "chat"):
        raise EndpointRefused("pictures are sent to chat models alone: play without them, or with api=chat")
    body: dict[str, Any] = {"model": model}
    if request.raw:
        body["prompt"] = request.text
        token_field = "max_tokens"
    elif options.api == "chat":
        body["messages"] = [_message(request, place, form) for place in range(len(request.messages))]
        if request.prefill:
            body["messages"].append({"role": "assistant", "content": request.prefill})
            body |= {"add_generation_prompt": False, "continue_final_message": True}
    else:
        body["prompt"] = f"{as_one_text(request)} {request.prefill}".rstrip()
    body |= {"tools": list(request.tools)} if request.tools else {}
    body |= {token_field: s.max_tokens, "temperature": s.temperature, "top_p": s.top_p, "seed": s.seed}
    stops = stops_of(request, options)
    if stops and "prompt" in body:  # servers apply the stops of a chat to its reasoning, too: ``parse_reply`` cuts
        body["stop"] = list(stops[:MOST_STOPS])
    if request.episode:
        body["user"] = request.episode
    if s.top_k:
        body["top_k"] = s.top_k
    for name, value in options.more.items():
        if value is None:
            body.pop(name, None)
        else:
            body[name] = value
    return body


def stops_of(request: ChatRequest, options: EndpointOptions) -> tuple[str, ...]:
    """Stop strings of a reply; a base model that gets a conversation as one text also stops at the user's next turn."""
    is_chat = options.api == "chat" or request.raw
    return request.sampling.stop if is_chat else (NEXT_HUMAN, *request.sampling.stop)


def as_one_text(request: ChatRequest) -> str:
    """The conversation as text for a base model: turns after "Human:" and "Assistant:", which ends it (as MINT)."""
    names = {"system": "", "user": "\n\nHuman: ", "assistant": "\n\nAssistant: ", "tool": "\n\nHuman: "}
    turns = [f"{names[message.role]}{message.content.rstrip()}" for message in request.messages]
    return f"{''.join(turns)}\n\nAssistant:"


def _message(request: ChatRequest, place: int, form: ThoughtsForm | None) -> dict[str, Any]:
    message = request.messages[place]
    written: dict[str, Any] = dict(message.to_json())
    for call in written.get("tool_calls", ()):  # servers refuse what they cannot parse, for the rest of the episode
        call["function"] = {**call["function"], "arguments": _as_object(call["function"]["arguments"])}
    thoughts = request.thoughts.get(place, "")
    if thoughts and form == "tags":
        written["content"] = f"{_BEGIN}{thoughts}{_END}\n\n{message.content}"
    elif thoughts and form:
        written[form] = thoughts
    if request.picture and place == len(request.messages) - 1:
        picture = {"type": "image_url", "image_url": {"url": request.picture}}
        written["content"] = [{"type": "text", "text": written["content"]}, picture]
    return written


def _as_object(arguments: str) -> str:
    """Arguments of a call as the text of a JSON object: those of a model's broken call become its one argument."""
    try:
        if isinstance(json.loads(arguments), dict):
            return arguments
    except (ValueError, RecursionError):
        pass
    return json.dumps({"arguments": arguments}, ensure_ascii=False)


def parse_reply(
    answer: Any, stops: Sequence[str] = (), tools: Sequence[Any] | None = None
) -> tuple[ChatReply, ThoughtsForm | None]:
    """Parse the JSON of a completion: (reply, field or "tags" in which its reasoning came; None without reasoning).
    ``stops``: strings that end the text. ``tools``: those that were offered, without which calls are ignored; None:
    unknown. Raises NotAReply if any part has another type."""
    try:
        choice = answer["choices"][0]
        message = choice.get("message") or {"content": choice.get("text")}
        content, finish = message.get("content"), choice.get("finish_reason")
        calls = tuple(
            replace(call, id=call.id or f"call_{number}")
            for number, call in enumerate(parse_tool_calls(message) if tools is None or tools else ())
        )
        usage, version = answer.get("usage"), answer.get("system_fingerprint")
        details, spent = (
            usage.get(f"{kind}_tokens_details") if isinstance(usage, Mapping) else None
            for kind in ("prompt", "completion")
        )
        field = next((name for name in ("reasoning_content", "reasoning") if _text(message.get(name))), None)
        thoughts = _text(message.get(field)) if field else ""
        if content is None:
            content = message.get("refusal")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise NotAReply(f"not a chat completion: {type(answer).__name__} {str(answer)[:200]!r}") from error
    form: ThoughtsForm | None = field  # type: ignore[assignment]
    if isinstance(content, list):
        thoughts, content = thoughts or _parts(content, "thinking"), _parts(content, "text")
    if content is not None and not isinstance(content, str):
        raise NotAReply(f"content of type {type(content).__name__} in a chat completion: expected a string")
    in_tags, text = split_thoughts(content or "")
    if in_tags:
        thoughts, form = "\n\n".join(filter(None, (thoughts, in_tags))), form or "tags"
    counts = Usage(
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
        cached_tokens=_count(details, "cached_tokens"),
        reasoning_tokens=_count(spent, "reasoning_tokens"),
    )
    kept = cut(text, stops)
    reply = ChatReply(
        text=kept,
        finish_reason="length" if finish == "length" and kept == text else "stop",
        usage=counts,
        version=version[:128] if isinstance(version, str) else "",
        reasoning=thoughts,
        tool_calls=calls,
        stopped=kept != text,
    )
    return reply, form


def without_secrets(reply: ChatReply, hidden: Callable[[str], str]) -> ChatReply:
    """The reply with each of its texts replaced by ``hidden(text)``, which removes the API key."""
    calls = reply.tool_calls and tuple(
        replace(call, name=hidden(call.name), arguments=hidden(call.arguments)) for call in reply.tool_calls
    )
    reasoning, version = hidden(reply.reasoning), hidden(reply.version)
    return replace(reply, text=hidden(reply.text), tool_calls=calls, reasoning=reasoning, version=version)


def split_thoughts(text: str) -> tuple[str, str]:
    """Split a reply into (reasoning, text) by its ``<think>`` blocks; without any, ("", the unchanged text). The first
    may lack its beginning, which a template wrote, and one that is cut counts if no text is before it."""
    thoughts: list[str] = []
    spoken: list[str] = []
    at, begin, end = 0, text.find(_BEGIN), text.find(_END)
    if end >= 0 and not 0 <= begin < end:  # the template had begun the block already
        thoughts.append(text[:end])
        at = end + len(_END)
    while (begin := text.find(_BEGIN, at)) >= 0 and (end := text.find(_END, begin)) >= 0:
        spoken.append(text[at:begin])
        thoughts.append(text[begin + len(_BEGIN) : end])
        at = end + len(_END)
    if begin >= 0 and not "".join([*spoken, text[at:begin]]).strip():  # its tokens ended before its thoughts did
        thoughts.append(text[begin + len(_BEGIN) :])
        at = len(text)
    if not thoughts:
        return "", text
    return "\n\n".join(filter(None, map(str.strip, thoughts))), "".join([*spoken, text[at:]]).lstrip()


def cut(text: str, stops: Sequence[str]) -> str:
    """``text`` up to the first stop string in it; all of it if there is none."""
    places = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text


def parse_refusal(status: int, body: bytes) -> Refusal:
    """Parse the body of an error response, which may be OpenAI's JSON, other JSON or text."""
    text = " ".join(body.decode("utf-8", "replace").split())
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Refusal(status, text[:2000])
    error = value.get("error", value) if isinstance(value, Mapping) else value
    if not isinstance(error, Mapping):
        return Refusal(status, str(error)[:2000])
    message = " ".join(str(error.get("message") or error.get("detail") or text).split())
    code = error.get("code") if isinstance(error.get("code"), str) else error.get("type")
    return Refusal(status, message[:2000], str(code or ""), str(error.get("param") or "")[:100])


def _parts(content: Sequence[Any], kind: str) -> str:
    """Concatenated texts of the content parts whose type is ``kind``; a part may hold a list of text parts."""
    texts = [part.get(kind) for part in content if isinstance(part, Mapping) and part.get("type") == kind]
    return "".join(_parts(one, "text") if isinstance(one, list) else _text(one) for one in texts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


MOST_TOKENS = 10**8
"""Maximum plausible token count of a reply; larger ones are ignored"""


def _count(holder: Any, name: str) -> int:
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS else 0


def model_versions(listed: Any) -> dict[str, str]:
    """Model name -> version (empty if not stated), from the JSON of ``GET /models``; {} if it is no such list."""
    try:
        return {str(model["id"]): str(model.get("version") or "") for model in listed["data"]}
    except (AttributeError, KeyError, TypeError):
        return {}


def context_lengths(listed: Any) -> dict[str, int]:
    """Model name -> context length in tokens, from the JSON of ``GET /models``, for models that state it."""
    try:
        lengths = {str(model["id"]): model.get("max_model_len") for model in listed["data"]}
    except (AttributeError, KeyError, TypeError):
        return {}
    return {name: length for name, length in lengths.items() if type(length) is int and length > 0}


def parse_json_body(body: bytes) -> Any:
    """Parse a response's body as JSON. Raises NotAReply if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotAReply("not JSON") from error
