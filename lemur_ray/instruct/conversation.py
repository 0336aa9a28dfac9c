"""Training conversations: the record, the rules for a valid one, and their JSON lines file format.

A valid conversation has at most one system turn, first, then alternating turns of user and assistant, beginning with
the user. Tool calls of the assistant are followed by their results and another assistant turn."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.host.json_files import NotJson
from lemur_ray.instruct.chat_rows import FORMS, chat_files, local_chat_file, messages_of, rows, tools_of
from lemur_ray.text.tool_results import stray_result

_FIRST = ("system", "developer")
RULES = {
    "no_turns": "it has no turn of a user",
    "empty_content": "a turn has no text",
    "system_turn_not_first": "a system turn stands first or nowhere",
    "roles_do_not_alternate": "after a user comes the assistant, after the assistant a user",
    "answers_no_call": "a result of a tool follows a call with its id",
    "no_assistant_turn": "without an answer of the assistant there is nothing to train on",
}
"""Name of a rule of valid conversations -> its requirement, for error messages."""


@dataclass(frozen=True)
class Conversation:
    """One conversation to train on; ``dataset`` names the data set it comes from, ``id`` identifies it there."""

    dataset: str
    id: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools offered to the assistant in OpenAI's format: {type: function, function: {name, ...}}"""


@dataclass(frozen=True)
class Dropped:
    """A record that is left out of a data set. id: in the set; reason: rule that it breaks, as "no_turns"."""

    dataset: str
    id: str
    reason: str


ReadResult = Conversation | Dropped
"""Result of reading one record of a data set."""


def readable(text: str) -> str:
    """The text with U+FFFD in place of unpaired surrogates, which UTF-8 cannot encode; else the text itself."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def checked_conversations(file: str | Path) -> Iterator[Conversation | ValueError]:
    """Yield the conversations of a chat file: a path, a URL or a data set of the Hub (formats: ``instruct.chat_rows``);
    for an invalid row, a ValueError naming file and line. ``dataset`` and ``id`` of a row without them are the file's
    name and the row's number. Raises ValueError for a damaged file or an ambiguous name, OSError (ReadFailure from the
    Hub) if it cannot be read."""
    for name in chat_files(str(file)):
        with local_chat_file(name) as path:
            for place, row in _named(name, rows(path)):
                try:
                    yield _conversation(row, path.name.partition(".")[0], place.rpartition(" ")[2])
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    wrong = ValueError(
                        f"{name}, {place}: not a conversation ({type(error).__name__}: {error}); expected {FORMS}; "
                        "correct the row or leave it out"
                    )
                    wrong.__cause__ = error
                    yield wrong


def _named(name: str, places: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield ``places``, the rows of the file ``name``. Raises ValueError with its name if it is damaged."""
    try:
        yield from places
    except ValueError as error:  # also what pyarrow raises
        raise ValueError(f"{name}: {error}") from error


def _conversation(row: Any, dataset: str, number: str) -> Conversation:
    if isinstance(row, NotJson):
        raise row.__cause__ or row
    if not isinstance(row, Mapping):
        raise TypeError(f"a {type(row).__name__}")
    name, row_id = str(row.get("dataset", dataset)), str(row.get("id", number))
    conversation = Conversation(name, row_id, messages_of(row), _tools(tools_of(row)))
    if rule := fault(conversation):
        raise ValueError(f"{rule}: {RULES[rule]}")
    return conversation


def conversation_lines(conversations: Iterable[Conversation]) -> Iterator[str]:
    """Yield each conversation as a line of JSON, with its newline, that ``checked_conversations`` reads."""
    for one in conversations:
        row: dict[str, Any] = {"dataset": one.dataset, "id": one.id, "messages": [m.to_json() for m in one.messages]}
        row |= {"tools": list(one.tools)} if one.tools else {}
        yield json.dumps(row, ensure_ascii=False) + "\n"


def _tools(listed: Any) -> tuple[Mapping[str, Any], ...]:
    """The ``tools`` of a record as a tuple, () if it has none. Raises ValueError unless each is a tool description."""
    if not isinstance(listed or [], list):
        raise ValueError(f"tools of type {type(listed).__name__}: expected a list")
    for tool in listed or ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ValueError(
                f"tool {tool!r:.80}: expected {{type: function, function: {{name, description, parameters}}}}"
            )
    return tuple(listed or ())


def fault(conversation: Conversation, *, allow_empty_system: bool = False) -> str | None:
    """Name of the first of RULES that a conversation breaks, or None if it is valid. allow_empty_system: accept an
    empty system turn."""
    messages = conversation.messages
    turns = messages[1:] if messages and messages[0].role in _FIRST else messages
    if not turns:
        return "no_turns"
    spoken = turns if allow_empty_system else messages
    if any(not m.content.strip() and not m.tool_calls and m.role != "tool" for m in spoken):
        return "empty_content"
    if any(m.role in _FIRST for m in turns):
        return "system_turn_not_first"
    before = [Message("assistant", ""), *turns]
    if any(m.role not in _after(previous) for previous, m in zip(before, turns, strict=False)):
        return "roles_do_not_alternate"
    if stray_result(turns):
        return "answers_no_call"
    if len(turns) < 2:
        return "no_assistant_turn"
    return None


def _after(turn: Message) -> tuple[str, ...]:
    """Roles that the message after ``turn`` may have."""
    if turn.role == "assistant":
        return ("tool",) if turn.tool_calls else ("user",)
    return ("tool", "assistant") if turn.role == "tool" else ("assistant",)
