"""Tools of a request: their descriptions for the model, and the calls parsed from its reply.

The model reads the tools' schemas in the system turn, or as its chat template renders them. It calls a tool by a JSON
object between two tags, as ChatML models commonly do, or by JSON alone if its template has no such tags; a tool's
result is a turn of the role ``tool``. Text that resembles a call but is not one (no JSON, no name) stays text. A call
of a tool that was not offered is a call between tags, so that the caller sees the mistake, and text without tags.
Knows nothing of HTTP, engines or tokenizers."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.serve.openai.errors import invalid, is_utf8
from lemur_ray.serve.openai.structured_output import COMPACT, Structure, lark_structure
from lemur_ray.serve.openai.tool_models import NamedChoice, Tool, ToolChoice
from lemur_ray.text.tools_in_words import CLOSE, OPEN, describe_tools


@dataclass(frozen=True)
class Call:
    """A call of a tool by the model: name and arguments."""

    name: str
    arguments: str
    """A JSON object as text"""

    def to_json(self) -> dict[str, Any]:
        """The call in OpenAI's form, with a new random id."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


@dataclass(frozen=True)
class Toolbox:
    """The tools of a request, and how a reply may call them."""

    functions: tuple[Mapping[str, Any], ...]
    """name, description, parameters (a JSON schema) of each"""
    raw: tuple[Mapping[str, Any], ...] = ()
    """The tools with all fields of the request, for templates that know tools"""
    must_call: bool = False
    """Whether the reply must be a call of one of ``functions`` (``tool_choice``)"""
    parallel: bool = True
    """Whether a reply may hold several calls"""
    bare: bool = False
    """Whether a reply that is JSON as a whole is read as calls, too, for models whose templates have no tags"""

    def described(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation with descriptions of the tools in its system turn, for templates that know no tools."""
        return describe_tools(messages, self.functions)

    def structure(self) -> Structure | None:
        """The structure of a reply that must be one or more calls; None if it need not be a call. Raises ApiError 400
        if the tools' schemas are too long together."""
        if not self.must_call:
            return None
        rules = ['start: call ("\\n" call)*' if self.parallel else "start: call"]
        tail = json.dumps("}\n" + CLOSE)
        rules.append("call: " + " | ".join(f"call_{i}" for i in range(len(self.functions))))
        for i, function in enumerate(self.functions):
            # Each schema is separate, because its references start at its own root.
            schema = json.dumps({**function["parameters"], "type": "object", "x-guidance": COMPACT})
            head = json.dumps(f'{OPEN}\n{{"name": "{function["name"]}", "arguments": ')
            rules.append(f"call_{i}: {head} arguments_{i} {tail}")
            rules.append(f"arguments_{i}: %json {schema}")
        return lark_structure("\n".join(rules), "tools")


def toolbox(
    tools: Sequence[Tool], raw: Sequence[Mapping[str, Any]], choice: ToolChoice | None, parallel: bool
) -> Toolbox | None:
    """The tools that a reply may call; None if there are none, or if ``choice`` is "none". raw: ``tools`` with all
    fields of the request; parallel: whether a reply may have several calls.
    A ``choice`` that names a function leaves only that one. Raises ApiError 400 for a name that stands twice, an
    unknown name in ``choice``, and "required" without tools."""
    functions = tuple(tool.function.described() for tool in tools)
    names = [function["name"] for function in functions]
    if len(set(names)) < len(names):
        raise invalid("tools", "names a function twice")
    if isinstance(choice, NamedChoice):
        if choice.function.name not in names:
            raise invalid("tool_choice", "must name a function of tools: {type: function, function: {name}}")
        # Only the named tool may be called, and only that one is described.
        at = names.index(choice.function.name)
        return Toolbox((functions[at],), (raw[at],), True, False)
    if choice == "required" and not functions:
        raise invalid("tool_choice", "is required, but there are no tools")
    wanted = functions and choice != "none"
    return Toolbox(functions, tuple(raw), choice == "required", parallel) if wanted else None


class CallStream:
    """Splits a streamed reply into text and tool calls. Text that may belong to a call is held back until decided."""

    def __init__(self, tools: Toolbox):
        self._tools, self._pending, self._blank = tools, "", ""
        self._has_text = False
        self.num_calls = 0

    def push(self, text: str) -> tuple[str, list[Call]]:
        """Add a piece of the reply; returns (text, complete calls) as far as they are certain now, perhaps ("", [])."""
        self._pending += text
        if self._tools.bare and not self._has_text and self._pending.lstrip()[:1] in ("{", "["):
            return "", self._bare_calls()
        out, calls = "", list[Call]()
        while True:
            begin = self._pending.find(OPEN)
            if begin < 0:
                overlap = next((n for n in range(len(OPEN) - 1, 0, -1) if self._pending.endswith(OPEN[:n])), 0)
                cut = len(self._pending) - overlap
                return out + self._release(self._pending[:cut], cut), calls
            out += self._release(self._pending[:begin], begin)
            end = self._pending.find(CLOSE)
            if end < 0:
                return out, calls
            whole = self._pending[: end + len(CLOSE)]
            if (call := self._call(whole[len(OPEN) : -len(CLOSE)])) is None:
                out += self._release(whole, len(whole))
                continue
            self._pending, self._blank = self._pending[len(whole) :], ""
            if self._tools.parallel or not self.num_calls:
                self.num_calls += 1
                calls.append(call)

    def end(self, *, cut: bool = False) -> str:
        """End the reply; returns text that was held back, "" for none. An unfinished call becomes text, unless ``cut``:
        a limit or a stop string ended the reply."""
        if cut and self._is_begun():
            return ""
        text = self._release(self._pending, len(self._pending))
        return text if self.num_calls else text + self._blank

    def _is_begun(self) -> bool:
        """Whether the pending text begins a call: at least a tag, or more than half of one."""
        if not self._pending.startswith(OPEN):
            return self._tools.must_call or len(self._pending) > len(OPEN) // 2
        return self._pending[len(OPEN) :].lstrip()[:1] in ("", "{")

    def _release(self, text: str, cut: int) -> str:
        """Remove ``cut`` pending characters and return their text; white space waits until more text follows."""
        self._pending = self._pending[cut:]
        text = self._blank + text
        stripped = text.rstrip()
        self._blank = text[len(stripped) :]
        self._has_text = self._has_text or bool(stripped)
        return stripped

    def _bare_calls(self) -> list[Call]:
        """The calls of a pending text that is JSON as a whole: a call or a list of calls; empty until then."""
        try:
            value = json.loads(self._pending)
        except (ValueError, RecursionError):
            return []
        parsed = [self._parsed_call(one) for one in (value if isinstance(value, list) else [value])]
        names = {function["name"] for function in self._tools.functions}
        calls = [call for call in parsed if call is not None and call.name in names]
        if not calls or len(calls) < len(parsed):
            return []
        self._pending, self._blank, self._has_text = "", "", True
        self.num_calls += len(calls)
        return calls if self._tools.parallel else calls[:1]

    def _call(self, text: str) -> Call | None:
        try:
            return self._parsed_call(json.loads(text))
        except (ValueError, RecursionError):
            return None

    def _parsed_call(self, value: Any) -> Call | None:
        """The call that a JSON value spells, of whatever tool; None if it is not a call."""
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str) or not name or not is_utf8(name):
            return None
        arguments = value.get("arguments", value.get("parameters", {}) if self._tools.bare else {})
        if not isinstance(arguments, dict):
            return None
        try:
            text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        except ValueError:  # Python reads NaN, which is not JSON
            return None
        # A lone surrogate can be escaped in JSON, but not sent as text.
        return Call(name, text if is_utf8(text) else json.dumps(arguments))
