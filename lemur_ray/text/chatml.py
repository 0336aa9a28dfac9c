"""ChatML, the format of this project's chat models (paper A.2), rendered without Jinja.

Each turn is ``<|im_start|>role\\n``, the stripped content, ``<|im_end|>\\n``; BOS once in front, where there is one.
The assistant's content, its ``<|im_end|>`` and the newline after it are trained. There is no syntax for tools: callers
describe them in text."""

from collections.abc import Sequence
from dataclasses import dataclass

from lemur_ray.text.chat_template import Chat, Span, TemplateError

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] | trim) + "
    "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""Jinja source of the format, without BOS."""
WITH_BOS = "{{ bos_token }}" + TEMPLATE
"""Jinja source with BOS, as in exported tokenizers."""
NAME = "chatml"
"""Value that selects this format in options that otherwise take a template file."""


@dataclass(frozen=True)
class ChatML:
    """ChatML as a ``ChatTemplate``."""

    bos: str = ""
    """Text of the BOS token, empty if there is none."""

    knows_tools = False
    quick = True
    source = WITH_BOS

    def render(self, chats: Sequence[Chat], placeholders: Sequence[str] = ()) -> list[str]:
        return [self._page(chat)[0] for chat in chats]

    def render_with_spans(self, chat: Chat, placeholders: Sequence[str] = ()) -> tuple[str, list[Span]]:
        return self._page(chat)

    def _page(self, chat: Chat) -> tuple[str, list[Span]]:
        parts, length, spans = [self.bos], len(self.bos), list[Span]()
        for message in chat.messages:
            content = message.get("content")
            if not isinstance(content, str):
                raise TemplateError(f"ChatML has text alone, but a message has content {str(content)[:80]!r}")
            role = "system" if message["role"] == "developer" else message["role"]
            head, body = f"<|im_start|>{role}\n", f"{content.strip()}<|im_end|>\n"
            if role == "assistant":
                spans.append((length + len(head), length + len(head) + len(body)))
            parts += [head, body]
            length += len(head) + len(body)
        if chat.continue_final_message:
            parts[-1] = parts[-1].removesuffix("<|im_end|>\n")
        if chat.add_generation_prompt:
            parts.append("<|im_start|>assistant\n")
        return "".join(parts), spans
