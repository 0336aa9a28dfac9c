"""The input of chat templates, and the interface of a template.

Knows nothing of tokens and of particular formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Span = tuple[int, int]
"""(first character, end) of a part of a text."""


@dataclass(frozen=True)
class Chat:
    """Template input: plain values as in OpenAI's protocol, with parsed arguments of calls."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    """Each ``{"type": "function", "function": {name, description, parameters}}``"""
    documents: Sequence[Mapping[str, Any]] = ()
    add_generation_prompt: bool = False
    """Whether to append the header of the next assistant turn."""
    continue_final_message: bool = False
    """Whether the last message is unfinished, so that the text ends with it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the template (``chat_template_kwargs``)."""


class TemplateError(ValueError):
    """A chat template cannot render; the message gives the reason. This base class: for these messages only."""


class TemplateRefused(TemplateError):
    """The template itself rejects the conversation (``raise_exception``)."""


class TemplateUnusable(TemplateError):
    """The template is invalid, or exceeds its limits of time, memory, files or attributes."""


class TemplateMissing(TemplateError):
    """The model has no template."""


class ChatTemplate(Protocol):
    """The chat template of one model. Methods raise TemplateError."""

    @property
    def source(self) -> str:
        """Jinja source, as stored in exported folders."""
        ...

    @property
    def knows_tools(self) -> bool:
        """Whether the template renders tools, calls and results; else they must be described in text."""
        ...

    @property
    def quick(self) -> bool:
        """Whether rendering takes microseconds in this process, rather than a call to another one."""
        ...

    def render(self, chats: Sequence[Chat], placeholders: Sequence[str] = ()) -> list[str]:
        """Text of each chat. placeholders: characters that must not be escaped in JSON, as they stand for others."""
        ...

    def render_with_spans(self, chat: Chat, placeholders: Sequence[str] = ()) -> tuple[str, list[Span]]:
        """Text of one chat, and the spans of the assistant's content, each with the end of its turn."""
        ...
