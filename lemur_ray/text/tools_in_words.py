"""For chat templates without tool support: describes tools in the system turn and writes earlier calls as text.

A call is a JSON object between two tags, as is common for ChatML models; a result is a turn with role ``tool``."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemur_ray.agents.messages import Message, ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CALL = re.compile(f"{OPEN}((?:(?!{OPEN}).)*?){CLOSE}", re.DOTALL)


def describe_tools(messages: Sequence[Message], functions: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """The messages with a description of the tools at the end of the system turn, which is added if there is none.
    functions: each {name, description, parameters}."""
    shown = "\n".join(json.dumps({"type": "function", "function": f}, ensure_ascii=False) for f in functions)
    form = f'{OPEN}\n{{"name": "...", "arguments": {{...}}}}\n{CLOSE}'
    text = f"These functions can be called, each given by its JSON schema:\n<tools>\n{shown}\n</tools>\n"
    text += f"To call one, answer with its name and its arguments in this form:\n{form}"
    if messages and messages[0].role in ("system", "developer"):
        first = replace(messages[0], content=f"{messages[0].content.strip()}\n\n{text}")
        return (first, *messages[1:])
    return (Message("system", text), *messages)


def tool_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """{name, description, parameters} of a tool in OpenAI's format; missing ones are empty."""
    function = tool["function"]
    return {
        "name": function["name"],
        "description": function.get("description") or "",
        "parameters": function.get("parameters") or {},
    }


def spell_out_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Copy of the messages in which tool calls are text at the end of the content of their turn."""
    return tuple(
        replace(message, content=spell_out(message.content, message.tool_calls), tool_calls=())
        if message.tool_calls
        else message
        for message in messages
    )


def spell_out(content: str, calls: Sequence[ToolCall]) -> str:
    """A reply's text with its calls as text, between tags, at the end. Inverse: ``read_calls``."""
    written = (f"{OPEN}\n{_written(call.name, call.arguments)}\n{CLOSE}" for call in calls)
    return "\n".join(filter(None, (content, *written)))


def read_calls(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Split a reply into (text without the calls, calls), with ids call_0, call_1, ... Text between the tags that is
    not a call stays in the text; without any call, (text, ())."""
    calls, rest, at = list[ToolCall](), list[str](), 0
    for match in _CALL.finditer(text):
        if call := _parsed(match[1], f"call_{len(calls)}"):
            calls.append(call)
            rest.append(text[at : match.start()])
            at = match.end()
    return ("".join([*rest, text[at:]]).strip(), tuple(calls)) if calls else (text, ())


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """The arguments of a call; None if they are no JSON object."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def _parsed(text: str, call_id: str) -> ToolCall | None:
    """The call that a JSON object with a name and arguments spells; None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", {})
    return ToolCall(
        value["name"], arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False), call_id
    )


def _written(name: str, arguments: str) -> str:
    """JSON object of a tool call, as text without tags. Arguments that are no JSON become a string."""
    try:
        written = json.dumps({"name": name, "arguments": json.loads(arguments)}, ensure_ascii=False)
        written.encode()
    except (ValueError, RecursionError):
        written = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    # Tags can only stand in strings of the JSON, where their first character may be escaped.
    return written.replace(CLOSE, r"\u003c" + CLOSE[1:]).replace(OPEN, r"\u003c" + OPEN[1:])
