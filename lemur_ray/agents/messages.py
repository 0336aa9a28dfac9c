"""Chat messages, and the request and reply that every policy speaks.

Knows nothing of HTTP, of engines or of environments. Names follow the OpenAI chat protocol.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, get_args

Role = Literal["system", "developer", "user", "assistant", "tool"]
"""``developer`` is what newer models call the system's turn; templates that do not know it are shown ``system``."""
FinishReason = Literal["stop", "length"]
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names under which an assistant's thoughts come beside its content."""


@dataclass(frozen=True)
class ToolCall:
    """The assistant wants a function to be called."""

    name: str
    arguments: str
    """As the model wrote them, a JSON object if it did well"""
    id: str = ""

    def to_json(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {**({"id": self.id} if self.id else {}), "type": "function", "function": function}


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant"""
    tool_call_id: str = ""
    """Which call a tool's message is the result of"""
    name: str = ""
    """Who speaks, where several do: of a tool its function"""
    weight: int = 1
    """0: no loss falls on it in training, as in OpenAI's fine-tuning format; of an assistant"""
    reasoning: str = ""
    """What an assistant thought before it said this; chat templates show it or not"""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            out["tool_calls"] = [call.to_json() for call in self.tool_calls]
        more = {"tool_call_id": self.tool_call_id, "name": self.name, "reasoning_content": self.reasoning}
        out |= {name: value for name, value in more.items() if value}
        return out if self.weight else {**out, "weight": 0}

    @classmethod
    def from_json(cls, value: Any) -> Message:
        """Inverse of ``to_json``. Raises ValueError that says what is wrong."""
        if not isinstance(value, Mapping):
            raise ValueError(f"message of type {type(value).__name__}: expected an object with role and content")
        calls = _calls_of(value)
        role: Any = value.get("role")
        if role not in get_args(Role):
            raise ValueError(f"message role {role!r}: expected system, developer, user, assistant or tool")
        if calls and role != "assistant":
            raise ValueError(f"message role {role!r} with tool_calls: only an assistant calls")
        content = _content_of(value.get("content"), "" if calls else None)
        if (weight := value.get("weight", 1)) not in (0, 1):
            raise ValueError(f"message weight {weight!r:.40}: expected 0 or 1")
        said = {key: _text_of(value, key) for key in ("tool_call_id", "name")}
        thoughts = next(filter(None, (_text_of(value, key) for key in REASONING)), "")
        return cls(role, content, calls, weight=int(weight), reasoning=thoughts, **said)


def _content_of(content: Any, absent: str | None) -> str:
    """A text, or the parts of one as OpenAI's form has them; ``absent``: what a null stands for, if for anything."""
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


def _calls_of(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """``tool_calls`` of a message in OpenAI's form; arguments may be an object as well as its text."""
    listed = message.get("tool_calls") or ()
    if not isinstance(listed, list | tuple):
        raise ValueError(f"tool_calls of type {type(listed).__name__}: expected a list")
    calls = []
    for call in listed:
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        arguments = function.get("arguments", "{}") if isinstance(function, Mapping) else None
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
    if not isinstance(found := value.get(key) or "", str):
        raise ValueError(f"message {key} of type {type(found).__name__}: expected a string")
    return found


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. ``temperature`` 0 is greedy; the same seed gives the same tokens at any batch size."""

    max_tokens: int = 64
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChatRequest:
    """What a policy is asked.

    ``hints`` holds what scripted policies (random, expert) may see and a model may not, for example the
    admissible commands; it is never sent to a model. ``episode`` is a stable id for session affinity.
    """

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    episode: str = ""
    hints: Mapping[str, Any] = field(default_factory=dict)
    thoughts: Mapping[int, str] = field(default_factory=dict)
    """What the model thought before it said a message, by the message's place; sent only where that is asked for."""
    raw: bool = False
    """Whether the contents of the messages, one after another, are a text to go on with and no conversation."""
    prefill: str = ""
    """What the reply begins with; the model goes on from there, and this is no part of the reply's text."""
    choices: tuple[str, ...] = ()
    """Where there are any, no reply is written: each is weighed as what follows, and the likeliest is the reply."""
    turn: int | None = None
    """Which of its episode, from 0, where whoever asks says so: what is shown of the past may be nothing."""
    quotes: bool = False
    """Whether it shows what another model wrote: an endpoint that refuses it need not refuse others (``outside``)."""
    picture: str = ""
    """What is seen beside the last message: a PNG picture as a ``data:`` address. For models that take images."""

    @property
    def text(self) -> str:
        """All contents and the prefill in a row: what a model goes on with where ``raw`` is asked for."""
        return "".join(message.content for message in self.messages) + self.prefill

    @property
    def session(self) -> str:
        """What tells a server that requests are turns of one episode: 32 hex digits, empty without an episode."""
        return hashlib.sha256(self.episode.encode()).hexdigest()[:32] if self.episode else ""


@dataclass(frozen=True)
class Usage:
    """Token counts of one reply."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True)
class ChatReply:
    """What a policy answers. ``token_ids`` is empty where the endpoint does not give them."""

    text: str
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()
    token_ids: tuple[int, ...] = ()
    version: str = ""
    """Of the weights that it comes from; empty where nobody says"""
    reasoning: str = ""
    """What the model thought before: no part of ``text``, and nothing that an environment is shown."""
    waited_s: float = 0.0
    """Seconds in which nobody worked on it: pauses, requests that failed, waiting for a place."""
    choices: tuple[float, ...] = ()
    """Log-likelihood of each choice of the request, where its policy weighs them."""


def merge_adjacent_turns(messages: Sequence[Message]) -> tuple[Message, ...] | None:
    """The conversation with neighbouring messages of one role made into one, None where there are none.

    Many chat templates refuse two messages of the user in a row, and a protocol may say nothing for an empty reply
    (MINT): a model that says nothing would have no score instead of a bad one.
    """
    joined: list[Message] = []
    for message in messages:
        if joined and message.role == joined[-1].role and message.role != "tool":
            joined[-1] = replace(message, content=f"{joined[-1].content}\n\n{message.content}")
        else:
            joined.append(message)
    return tuple(joined) if len(joined) < len(messages) else None


class PolicyError(Exception):
    """A policy could not answer; the subclass says whose fault it is."""


class ContextOverflow(PolicyError):
    """The conversation no longer fits the model's context: the episode ends as such and is scored."""


class PolicyUnreachable(PolicyError):
    """No answer after the policy's own bounded retries: nothing is known of the model, the episode is retried."""


class RequestRefused(PolicyUnreachable):
    """The endpoint does not take this request; it may take others."""


class EndpointRefused(PolicyUnreachable):
    """Nobody will be answered before a person changes something (key, address, model, quota): the run ends."""


class EndpointAbsent(EndpointRefused):
    """Nobody listens at its address."""


class Policy(Protocol):
    """Anything that can take a turn. Must be safe to call from several threads at once."""

    name: str

    def reply(self, request: ChatRequest) -> ChatReply:
        """Answer one request. Raises ContextOverflow or PolicyUnreachable."""
        ...
