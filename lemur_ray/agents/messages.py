"""Chat messages, and the request and reply that every policy speaks.

Knows nothing of HTTP, of engines or of environments. Names follow the OpenAI chat protocol.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str

    def to_json(self) -> dict[str, str]:
        return {"role": self.role, "content": self.content}

    @classmethod
    def from_json(cls, value: Any) -> Message:
        """Inverse of ``to_json``. Raises ValueError that says what is wrong."""
        if not isinstance(value, Mapping):
            raise ValueError(f"message of type {type(value).__name__}: expected an object with role and content")
        role, content = value.get("role"), value.get("content")
        if role not in ("system", "user", "assistant"):
            raise ValueError(f"message role {role!r}: expected system, user or assistant")
        if not isinstance(content, str):
            raise ValueError(f"message content of type {type(content).__name__}: expected a string")
        return cls(role, content)


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


class PolicyError(Exception):
    """A policy could not answer; the subclass says whose fault it is."""


class ContextOverflow(PolicyError):
    """The conversation no longer fits the model's context: the episode ends as such and is scored."""


class PolicyUnreachable(PolicyError):
    """No answer after the policy's own bounded retries: nothing is known of the model, the episode is retried."""


class Policy(Protocol):
    """Anything that can take a turn. Must be safe to call from several threads at once."""

    name: str

    def reply(self, request: ChatRequest) -> ChatReply:
        """Answer one request. Raises ContextOverflow or PolicyUnreachable."""
        ...
