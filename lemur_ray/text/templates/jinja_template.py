"""Chat templates in Jinja: the text of a chat, and the spans of the assistant's turns in it.

A template with ``{% generation %}`` marks the spans itself. For others they are determined by rendering prefixes of the
conversation: a span is the text that an assistant turn adds to the prompt for it, including the end of the turn."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lemur_ray.agents.messages import REASONING
from lemur_ray.text.chat_template import Chat, Span, TemplateError
from lemur_ray.text.templates.renderer import Rendered, render

_ON = "\U0010fffd"
"""Private-use character appended to an unfinished message; not among those of ``marked_text``."""
_GENERATION = re.compile(r"\{%-?\+?\s*generation\s*-?\+?%\}")
_REASONING = re.compile(r"\breasoning\b")
_TOOLS = re.compile(r"\{[%{](?:(?![%}]\}).)*\btools\b", re.S)


@dataclass(frozen=True)
class JinjaTemplate:
    """The Jinja templates of a model as a ``ChatTemplate``, rendered in another process."""

    named: Mapping[str, str]
    """Templates by name: "default", and optionally "tool_use" for requests with tools."""
    tokens: Mapping[str, str]
    """Special tokens by their variable in templates: bos_token, eos_token ..."""
    where: str = "the folder"

    quick = False

    @property
    def source(self) -> str:
        if "default" not in self.named:
            raise TemplateError(f"{self.where} has chat templates named {', '.join(self.named)} and no default")
        return self.named["default"]

    @cached_property
    def knows_tools(self) -> bool:
        """Whether the template for requests with tools mentions ``tools``, so that it renders them."""
        return bool(_TOOLS.search(self._source_for(True)))

    def marks_assistant_text(self, chat: Chat) -> bool:
        """Whether the template for this chat has ``{% generation %}``."""
        return bool(_GENERATION.search(self._source_for(bool(chat.tools))))

    def _source_for(self, tools: bool) -> str:
        return self.named["tool_use"] if tools and "tool_use" in self.named else self.source

    def render(self, chats: Sequence[Chat], placeholders: Sequence[str] = ()) -> list[str]:
        """Text of each chat, cut at the end of an unfinished last message. placeholders: characters not to escape in
        JSON. Raises TemplateError if the template rejects a chat."""
        return [
            _cut(rendered.text) if chat.continue_final_message else rendered.text
            for chat, rendered in zip(chats, self._rendered(chats, placeholders), strict=True)
        ]

    def render_with_spans(self, chat: Chat, placeholders: Sequence[str] = ()) -> tuple[str, list[Span]]:
        """As ``ChatTemplate``. Raises TemplateError, also if later turns change how earlier ones appear."""
        if self.marks_assistant_text(chat):
            (rendered,) = self._rendered([chat], placeholders)
            return rendered.text, list(rendered.spans)
        at = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
        chats = [chat]
        for i in at:
            opening = replace(chat, messages=chat.messages[:i])
            chats += [opening, replace(opening, add_generation_prompt=True)]
            chats.append(replace(chat, messages=chat.messages[: i + 1]))
        whole, *parts = (rendered.text for rendered in self._rendered(chats, placeholders))
        spans = []
        for n, i in enumerate(at):
            before, prompt, after = parts[3 * n : 3 * n + 3]
            if not (after.startswith(before) and whole.startswith(after)):
                raise TemplateError(
                    f"the chat template shows message {i + 1} of {len(chat.messages)} otherwise once others follow, so "
                    "the text of the assistant cannot be separated from the rest: mark it in the template with "
                    "{% generation %} and {% endgeneration %}"
                )
            spans.append((max(len(before), _shared(prompt, after)), len(after)))
        return whole, spans

    def _rendered(self, chats: Sequence[Chat], placeholders: Sequence[str]) -> list[Rendered]:
        out: dict[int, Rendered] = {}
        for tools in (False, True):
            some = [i for i, chat in enumerate(chats) if bool(chat.tools) is tools]
            if some:
                source = self._source_for(tools)
                values = [self._values(chats[i], source) for i in some]
                out |= zip(some, render(source, values, placeholders), strict=True)
        return [out[i] for i in range(len(chats))]

    def _values(self, chat: Chat, source: str) -> dict[str, Any]:
        """Values of all variables of the template for this chat."""
        messages = [_message(message, source) for message in chat.messages]
        if chat.continue_final_message:
            if not isinstance(messages[-1].get("content"), str) or "content" not in source:
                raise TemplateError("the last message has no text that could go on")
            messages[-1]["content"] += f"{_ON} "
        return {
            **self.tokens,
            **chat.options,
            "messages": messages,
            "tools": list(chat.tools) or None,
            "documents": list(chat.documents) or None,
            "add_generation_prompt": chat.add_generation_prompt,
        }


def _shared(one: str, other: str) -> int:
    """Length of the common prefix of two texts."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _message(message: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Copy of a message for a template: without nulls, with reasoning under the names that templates use, and the
    role system for developer unless the template mentions developer."""
    out = {name: value for name, value in message.items() if value is not None}
    thoughts = next((out[name] for name in REASONING if name in out), None)
    if thoughts is not None:
        out = {"thinking": thoughts, **out, "reasoning_content": thoughts}
        if _REASONING.search(source):
            out["reasoning"] = thoughts
    if out.get("role") == "developer" and "developer" not in source:
        out["role"] = "system"
    return out


def _cut(text: str) -> str:
    """Cut a rendered text at the end of its unfinished message. Raises TemplateError if the message is not in it."""
    at = text.rfind(_ON)
    if at < 0:
        raise TemplateError("the chat template does not show the last message, so it cannot go on")
    return text[:at] if text.startswith(f"{_ON} ", at) else text[:at].rstrip()
