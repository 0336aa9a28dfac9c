"""What a chat is to those who render it, and what a chat template can do.

Knows nothing of tokens, nor of any one format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Span = tuple[int, int]
"""From which character to which."""


@dataclass(frozen=True)
class Chat:
    """A conversation as templates see it: plain values in the form of OpenAI's protocol, arguments of calls parsed."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    """Each ``{"type": "function", "function": {name, description, parameters}}``"""
    documents: Sequence[Mapping[str, Any]] = ()
    add_generation_prompt: bool = False
    """The assistant is asked for its next turn (``add_generation_prompt``)"""
    continue_final_message: bool = False
    """The last message is not at its end (``continue_final_message``)"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else a template may look at (``chat_template_kwargs``)"""


class TemplateError(ValueError):
    """A chat template gave no text; the message says why. This class alone: it could not render these messages."""


class TemplateRefused(TemplateError):
    """The template itself says that it does not take such a conversation."""


class TemplateUnusable(TemplateError):
    """It is no template, or wants more than any may have: time, memory, files, attributes."""


class TemplateMissing(TemplateError):
    """There is no template."""


class ChatTemplate(Protocol):
    """Of one model. Raises TemplateError."""

    @property
    def source(self) -> str:
        """In Jinja, as exported folders carry it."""
        ...

    @property
    def knows_tools(self) -> bool:
        """Tools, calls and results are shown as the model was taught; else they must be described in words."""
        ...

    @property
    def quick(self) -> bool:
        """It is rendered in this process, in microseconds."""
        ...

    def render(self, chats: Sequence[Chat], placeholders: Sequence[str] = ()) -> list[str]:
        """Text of each. placeholders: characters that stand for others and stay themselves in JSON."""
        ...

    def render_with_spans(self, chat: Chat, placeholders: Sequence[str] = ()) -> tuple[str, list[Span]]:
        """Text of one, and where in it the assistant speaks: what it says and the end of its turn."""
        ...
