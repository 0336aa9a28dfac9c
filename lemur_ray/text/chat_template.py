"""Interface of chat templates, which render messages as the text that a model reads: input, errors and methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Span = tuple[int, int]
"""Half-open range of characters in a text: (first, end)."""


@dataclass(frozen=True)
class Chat:
    """Input of a chat template: JSON values as in OpenAI's protocol, but with parsed arguments of tool calls."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    """Each ``{"type": "function", "function": {name, description, parameters}}``"""
    documents: Sequence[Mapping[str, Any]] = ()
    """Texts to answer from, for templates that support retrieval."""
    add_generation_prompt: bool = False
    """Whether to append the header of the next assistant turn."""
    continue_final_message: bool = False
    """Whether the last message is unfinished, so that the text ends with it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the template (``chat_template_kwargs``)."""


class TemplateError(ValueError):
    """Raised if a chat template cannot render these messages; the message gives the reason."""


class TemplateRefused(TemplateError):
    """Raised if the template rejects the conversation by calling ``raise_exception``."""


class TemplateUnusable(TemplateError):
    """Raised if a template is of no use for any chat: invalid, not readable, or beyond limits (time, memory,
    access)."""


class TemplateMissing(TemplateError):
    """Raised if the model has no chat template in its files."""


class ChatTemplate(Protocol):
    """The chat template of one model. Methods raise TemplateError."""

    @property
    def source(self) -> str:
        """Jinja source of the template, as stored in exported folders."""
        ...

    @property
    def knows_tools(self) -> bool:
        """Whether the template renders tools, calls and results; else they must be described in text."""
        ...

    @property
    def quick(self) -> bool:
        """Whether rendering takes microseconds in this process; False if it is a call to another process."""
        ...

    def render(self, chats: Sequence[Chat], placeholders: Sequence[str] = ()) -> list[str]:
        """Text of each chat. placeholders: characters not to escape in JSON, as they are replaced afterwards."""
        ...

    def render_with_spans(self, chat: Chat, placeholders: Sequence[str] = ()) -> tuple[str, list[Span]]:
        """(text of one chat, spans of the assistant's messages in it, each including the end of its turn).
        placeholders: characters not to escape in JSON."""
        ...
