"""Chat messages, and the request and reply of every policy. Names follow the OpenAI chat protocol."""

import base64
import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Protocol, get_args

from lemur_ray.host.exit_codes import ExitCode

Role = Literal["system", "developer", "user", "assistant", "tool"]
"""``developer`` is the system role of newer models; templates without it get ``system``"""
FinishReason = Literal["stop", "length"]
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Field names of an assistant's reasoning in responses, the preferred one first"""


@dataclass(frozen=True)
class ToolCall:
    """A function (tool) call that an assistant's message requests. ``arguments``: text of a JSON object; ``id``:
    matches the call with its result."""

    name: str
    arguments: str
    """Text as the model wrote it: a JSON object, unless the model made a mistake"""
    id: str = ""

    def to_json(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {**({"id": self.id} if self.id else {}), "type": "function", "function": function}


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """Function calls of an assistant's message"""
    tool_call_id: str = ""
    """In a tool's message: id of the call that it is the result of"""
    name: str = ""
    """Name of the speaker, if several share a role; in a tool's message, its function"""
    weight: int = 1
    """In an assistant's message, 0: excluded from the training loss, as in OpenAI's fine-tuning format"""
    reasoning: str = ""
    """Reasoning before this message; chat templates may show it"""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            out["tool_calls"] = [call.to_json() for call in self.tool_calls]
        more = {"tool_call_id": self.tool_call_id, "name": self.name, "reasoning_content": self.reasoning}
        out |= {name: value for name, value in more.items() if value}
        return out if self.weight else {**out, "weight": 0}

    @classmethod
    def from_json(cls, value: Any) -> "Message":
        """Parse a message in OpenAI's form, as ``to_json`` returns it. Raises ValueError with the reason."""
        if not isinstance(value, Mapping):
            raise ValueError(f"message of type {type(value).__name__}: expected an object with role and content")
        calls = parse_tool_calls(value)
        role: Any = value.get("role")
        if role not in get_args(Role):
            raise ValueError(f"message role {role!r}: expected system, developer, user, assistant or tool")
        if calls and role != "assistant":
            raise ValueError(f"message role {role!r} with tool_calls: only an assistant calls")
        content = _content_of(value.get("content"), "" if calls else None)
        if (weight := value.get("weight", 1)) not in (0, 1):
            raise ValueError(f"message weight {weight!r:.40}: expected 0 or 1")
        texts = {key: _text_of(value, key) for key in ("tool_call_id", "name")}
        thoughts = next(filter(None, (_text_of(value, key) for key in REASONING)), "")
        return cls(role, content, calls, weight=int(weight), reasoning=thoughts, **texts)


def _content_of(content: Any, absent: str | None) -> str:
    """The content as one text, from a text or OpenAI's list of text parts. ``absent``: result for null; None: null is
    an error. Raises ValueError."""
    if content is None and absent is not None:
        return absent
    if isinstance(content, list | tuple):
        parts = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in content
        ]
        if all(isinstance(text, str) for text in parts):
            return "".join(map(str, parts))
        raise ValueError("message content has parts of another type than text, which a language model is not shown")
    if not isinstance(content, str):
        raise ValueError(f"message content of type {type(content).__name__}: expected a string or parts of type text")
    return content


def parse_tool_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """The ``tool_calls`` of a message in OpenAI's form, possibly none; arguments may be an object or its JSON text.
    Raises ValueError for another form."""
    listed = message.get("tool_calls") or ()
    if not isinstance(listed, list | tuple):
        raise ValueError(f"tool_calls of type {type(listed).__name__}: expected a list")
    calls = []
    for call in listed:
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        arguments = (function.get("arguments") or "{}") if isinstance(function, Mapping) else None
        if isinstance(arguments, Mapping):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise ValueError(
                f"tool call {call!r:.80}: expected {{id, type, function: {{name, arguments}}}}, the arguments "
                "an object or its text"
            )
        calls.append(ToolCall(name, arguments, _text_of(call, "id")))
    return tuple(calls)


def _text_of(value: Mapping[str, Any], key: str) -> str:
    if not isinstance(text := value.get(key) or "", str):
        raise ValueError(f"message {key} of type {type(text).__name__}: expected a string")
    return text


@dataclass(frozen=True)
class Sampling:
    """Sampling options of a reply. ``temperature`` 0: greedy; ``top_k`` 0: no limit; ``stop``: stop strings. On this
    project's server the same seed gives the same tokens at any batch size."""

    max_tokens: int = 64
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChatRequest:
    """A request to a policy for one reply. ``hints`` are for scripted policies (random, expert), for example the
    admissible commands, and are never sent to a model. ``episode``: id of the episode, the same in all its turns, so
    that a server can reuse its cache."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    episode: str = ""
    hints: Mapping[str, Any] = field(default_factory=dict)
    thoughts: Mapping[int, str] = field(default_factory=dict)
    """The model's reasoning before earlier replies, by index in ``messages``; sent only with ``resend_reasoning``"""
    raw: bool = False
    """Whether the concatenated message contents are a text to continue, instead of a conversation"""
    prefill: str = ""
    """Beginning of the reply, which the model continues; no part of the reply's text"""
    choices: tuple[str, ...] = ()
    """Candidate replies. If given, no text is generated: the likeliest candidate is the reply"""
    turn: int | None = None
    """Turn of the episode, from 0, if known: it cannot be counted from ``messages``, which may omit past turns"""
    quotes: bool = False
    """Whether the request quotes a model's text: a refusal then says nothing of others (``external_calls``)"""
    picture: str = ""
    """PNG picture of the last message, as a ``data:`` address, for models that take images"""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools offered natively, in OpenAI's format: {type: function, function: {name, description, parameters}}"""
    trace: bool = False
    """Whether the reply must have a ``Trace``; a policy that has none of it gives none"""

    @property
    def text(self) -> str:
        """Contents of all messages and the prefill, concatenated: the text that a model continues if ``raw``."""
        return "".join(message.content for message in self.messages) + self.prefill

    @property
    def picture_digest(self) -> str:
        """The first 16 hex digits of the SHA-256 of the picture's file; empty without a picture."""
        data = self.picture.partition(",")[2].encode()
        with contextlib.suppress(ValueError):
            data = base64.b64decode(data)
        return hashlib.sha256(data).hexdigest()[:16] if self.picture else ""

    @property
    def session(self) -> str:
        """Session id for the server: a hash of ``episode``, 32 hex digits; empty if ``episode`` is."""
        return hashlib.sha256(self.episode.encode()).hexdigest()[:32] if self.episode else ""


class Cut(StrEnum):
    """Why a reply is incomplete, so that its score says little of the model: token limit, reasoning alone, no text."""

    LENGTH = "length"
    """Text that ended at the token limit"""
    THOUGHTS = "thoughts"
    """Reasoning without any text after it"""
    EMPTY = "empty"
    """Neither text nor visible reasoning"""


@dataclass(frozen=True)
class Usage:
    """Token counts of one reply. ``cached_tokens``: prompt tokens that the server took from its cache;
    ``reasoning_tokens``: part of ``completion_tokens``, 0 if the endpoint does not count them apart;
    ``discarded_prompt_tokens``: part of ``prompt_tokens``, of an earlier request whose reply was discarded."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    discarded_prompt_tokens: int = 0

    def with_discarded(self, other: "Usage") -> "Usage":
        """These counts plus those of ``other``, the usage of an earlier request whose reply was discarded."""
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            other.prompt_tokens,
        )


@dataclass(frozen=True)
class Trace:
    """Token ids of one turn: those that the model read (``prompt``) and drew, and log-probabilities of these."""

    prompt: tuple[int, ...]
    drawn: tuple[int, ...]
    """With the id that ended the reply, if one did"""
    logprobs: tuple[float, ...]
    """Log-probability of each drawn id, from logits that no sampling option has changed; float32 values"""
    state: str = ""
    """Digest of the environment's state before the turn, if the environment reports it"""


@dataclass(frozen=True)
class ChatReply:
    """A policy's reply to one request: text, tool calls, token counts, and what is known of the model. ``token_ids`` is
    empty if the endpoint returns none."""

    text: str
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()
    token_ids: tuple[int, ...] = ()
    version: str = ""
    """Version of the weights; empty if unknown"""
    reasoning: str = ""
    """The model's reasoning: no part of ``text``, and never shown to an environment"""
    waited_s: float = 0.0
    """Seconds of pauses, failed requests and waiting for a slot"""
    choices: tuple[float, ...] = ()
    """Log-likelihood of each of the request's ``choices``, in their order; empty without choices"""
    tool_calls: tuple[ToolCall, ...] | None = None
    """Calls of the request's tools. None: the policy has no field for calls, so that they are in its text"""
    stopped: bool = False
    """Whether the text was cut here at a stop string, so that ``usage`` also counts what came after it"""
    weight: int = 1
    """1, or 0 if nothing may be trained on this reply"""
    instead: str = ""
    """The model's own reply, if ``text`` is a teacher's that took its place"""
    trace: Trace | None = None
    """If the request asked for it and the policy has it; never stored in a ledger"""

    @property
    def cut(self) -> Cut | None:
        """How the reply is incomplete; None if it is complete."""
        if self.text.strip() or self.tool_calls:
            return Cut.LENGTH if self.finish_reason == "length" else None
        return Cut.THOUGHTS if self.reasoning or self.usage.reasoning_tokens else Cut.EMPTY


def turn_messages(
    reply: str, calls: Sequence[ToolCall], results: Sequence[str], observation: str, prefix: str = ""
) -> list[Message]:
    """The messages of one turn: the reply, a result for each of its calls, and the observation. Without ``results``,
    the observation is the result of the first call, and those of further calls are empty. ``prefix``: put before a
    reply without calls that does not begin with it; an empty reply is then left out (as in MINT)."""
    if prefix and not calls:
        whole = f"{'' if reply.lstrip().startswith(prefix) else prefix}{reply}\n"
        return [*([Message("assistant", whole)] if reply.strip() else []), Message("user", observation)]
    message = Message("assistant", reply, tuple(calls))
    if not calls:
        return [message, Message("user", observation)]
    texts = [*(results or [observation]), *[""] * len(calls)]
    answers = [
        Message("tool", text, tool_call_id=call.id, name=call.name) for call, text in zip(calls, texts, strict=False)
    ]
    return [message, *answers, *([Message("user", observation)] if results and observation else [])]


def merge_adjacent_turns(messages: Sequence[Message]) -> tuple[Message, ...] | None:
    """The conversation with adjacent messages of one role (except tool) joined by a blank line; None if no two are
    adjacent. Many chat templates refuse two user messages in a row, which an empty reply can cause (MINT). Without the
    merge, the episode would end without a score."""
    joined: list[Message] = []
    for message in messages:
        if joined and message.role == joined[-1].role and message.role != "tool":
            joined[-1] = replace(message, content=f"{joined[-1].content}\n\n{message.content}")
        else:
            joined.append(message)
    return tuple(joined) if len(joined) < len(messages) else None


class PolicyError(Exception):
    """Base of the errors of a policy that cannot reply; the subclass decides what happens to the episode."""


class ContextOverflow(PolicyError):
    """Raised if the conversation no longer fits the model's context: the episode ends and counts as failed."""


class PolicyUnreachable(PolicyError):
    """Raised if a policy's own retries got no answer: nothing is known of the model, and the episode is retried."""

    exit_code = ExitCode.TRY_AGAIN


class RequestRefused(PolicyUnreachable):
    """Raised if the endpoint refuses one request but may accept others."""


class EndpointRefused(PolicyUnreachable):
    """Raised if no request can succeed until a person changes something (key, address, model, quota): the run ends."""

    exit_code = ExitCode.NEEDS_PERSON


class EndpointAbsent(EndpointRefused):
    """Raised if nothing listens at the endpoint's address: the run ends."""


class Policy(Protocol):
    """Interface of what replies in episodes: a model, a script, a person. Must be thread-safe."""

    name: str

    def reply(self, request: ChatRequest) -> ChatReply:
        """Reply to one request; may take minutes. Raises ContextOverflow, or PolicyUnreachable or a subclass."""
