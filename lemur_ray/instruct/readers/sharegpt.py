"""Reader of ShareGPT and chat logs: maps senders to roles, converts HTML to Markdown, drops malformed records."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import Message, Role
from lemur_ray.instruct.config import SetsConfig
from lemur_ray.instruct.conversation import Conversation, ReadResult, readable
from lemur_ray.instruct.readers.chat_html import looks_like_html, to_markdown
from lemur_ray.instruct.readers.questions import read_each
from lemur_ray.outside_data.record_formats import BadRecord

NAME = "sharegpt"
ROLES: dict[str, Role] = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant"}
UNWANTED = ("system", "bing")
"""Senders for which the whole conversation is dropped."""


def read_sharegpt(path: Path, config: SetsConfig) -> Iterator[ReadResult]:
    """Yield a conversation, or a Dropped, per record {id, conversations: [{from, value}]} of a file; errors as
    ``read_each``. Assistant turns before the first question are removed, and turns in HTML become Markdown
    (``config.sharegpt_html``); the caller checks that turns alternate."""

    def convert(record: Any, where: str) -> Conversation:
        messages = _messages(record, config)
        return Conversation(NAME, str(record.get("id") or where), messages)

    return read_each(NAME, path, convert)


def _messages(record: Any, config: SetsConfig) -> tuple[Message, ...]:
    turns = record.get("conversations") if isinstance(record, dict) else None
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise BadRecord("no_conversations")
    senders = [turn.get("from") for turn in turns]
    if any(sender in UNWANTED for sender in senders):
        raise BadRecord("system_or_bing_turn")
    if any(sender not in ROLES for sender in senders):
        raise BadRecord("unknown_sender")
    if not all(isinstance(turn.get("value"), str) for turn in turns):
        raise BadRecord("no_value")
    messages = [Message(ROLES[turn["from"]], _text(turn["value"], config)) for turn in turns]
    first = next((i for i, message in enumerate(messages) if message.role == "user"), len(messages))
    return tuple(messages[first:])


def _text(value: str, config: SetsConfig) -> str:
    value = readable(value)
    how = config.sharegpt_html
    if how == "never" or (how == "auto" and not looks_like_html(value)):
        return value
    try:
        return to_markdown(value)
    except RecursionError as error:
        raise BadRecord("nested_too_deep") from error
