"""Prompts as token ids and as ChatML, in one call: what tests compare requests and other libraries with."""

from __future__ import annotations

from collections.abc import Sequence

from lemur_ray.agents.messages import Message
from lemur_ray.text.chat import Prompt, template_messages
from lemur_ray.text.chat_template import Chat, ChatTemplate
from lemur_ray.text.chatml import ChatML
from lemur_ray.text.tokenizer import Tokenizer


def encode_prompt(tokenizer: Tokenizer, messages: Sequence[Message], template: ChatTemplate | None = None) -> list[int]:
    """Token ids of a conversation, ending with the header of the next assistant turn."""
    return encode_chat_prompt(tokenizer, Chat(template_messages(messages), add_generation_prompt=True), template)


def encode_chat_prompt(tokenizer: Tokenizer, chat: Chat, template: ChatTemplate | None = None) -> list[int]:
    """Token ids of a chat, which may have tools, documents and template options."""
    return Prompt(tokenizer, chat, template).ids()


def render(messages: Sequence[Message]) -> str:
    """Text of the conversation in ChatML, without BOS."""
    return ChatML().render([Chat(template_messages(messages))])[0]
