"""For chat templates without tool support: describes tools in the system turn and writes earlier calls as text.

A call is a JSON object between two tags, as is common for ChatML models; a result is a turn with role ``tool``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemur_ray.agents.messages import Message, ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def describe_tools(messages: Sequence[Message], functions: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Messages with a description of tools in the system turn. functions: each {name, description, parameters}."""
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
        replace(message, content="\n".join(filter(None, (message.content, _spoken(message.tool_calls)))), tool_calls=())
        if message.tool_calls
        else message
        for message in messages
    )


def _spoken(calls: Sequence[ToolCall]) -> str:
    written = (_written(call.name, call.arguments) for call in calls)
    return "\n".join(f"{OPEN}\n{text}\n{CLOSE}" for text in written)


def _written(name: str, arguments: str) -> str:
    """JSON object of a tool call, as text. Arguments that are not valid JSON become a string."""
    try:
        written = json.dumps({"name": name, "arguments": json.loads(arguments)}, ensure_ascii=False)
        written.encode()
        return written
    except (ValueError, RecursionError):
        pass
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
