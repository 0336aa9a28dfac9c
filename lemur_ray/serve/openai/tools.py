"""Tools: what a request offers, how the model is told, and calls found in what it answers.

The model reads the tools' schemas in the system turn, or as its chat template shows them, and calls one by writing a
JSON object between two tags, the way ChatML models commonly do, or in JSON alone where its template has other ways; a
tool's result is a turn of the role ``tool``. Text that looks like a call but is none (no
JSON, an unknown name) stays text. Knows nothing of HTTP, engines or tokenizers.
"""

from __future__ import annotations

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
    """The model wants a tool to run."""

    name: str
    arguments: str
    """A JSON object as text"""

    def to_json(self) -> dict[str, Any]:
        """OpenAI's form, with an id of its own."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


@dataclass(frozen=True)
class Toolbox:
    """The tools of a request."""

    functions: tuple[Mapping[str, Any], ...]
    """name, description, parameters (a JSON schema) of each"""
    given: tuple[Mapping[str, Any], ...] = ()
    """The same as the request has them, for templates that know tools"""
    must_call: bool = False
    """``tool_choice``: the reply is a call; of which tool, says ``functions``"""
    parallel: bool = True
    """A reply may hold several calls"""
    bare: bool = False
    """A whole reply of JSON may be calls, too: so models write them whose templates have no such tags"""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(function["name"] for function in self.functions)

    def described(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation with the tools in its system turn: for templates that know of none."""
        return describe_tools(messages, self.functions)

    def structure(self) -> Structure | None:
        """What a reply has to be, where it has to be a call."""
        if not self.must_call:
            return None
        rules = ['start: call ("\\n" call)*' if self.parallel else "start: call"]
        tail = json.dumps("}\n" + CLOSE)
        rules.append("call: " + " | ".join(f"call_{i}" for i in range(len(self.functions))))
        for i, function in enumerate(self.functions):
            # Every schema by itself: references inside it begin at its own root.
            schema = json.dumps({**function["parameters"], "type": "object", "x-guidance": COMPACT})
            head = json.dumps(f'{OPEN}\n{{"name": "{function["name"]}", "arguments": ')
            rules.append(f"call_{i}: {head} arguments_{i} {tail}")
            rules.append(f"arguments_{i}: %json {schema}")
        return lark_structure("\n".join(rules), "tools")


def toolbox(
    tools: Sequence[Tool], given: Sequence[Mapping[str, Any]], choice: ToolChoice | None, parallel: bool
) -> Toolbox | None:
    """What ``tools``, ``tool_choice`` and ``parallel_tool_calls`` mean together; given: ``tools`` as they came.

    Raises ApiError 400.
    """
    functions = tuple(tool.function.described() for tool in tools)
    names = [function["name"] for function in functions]
    if len(set(names)) < len(names):
        raise invalid("tools", "names a function twice")
    if isinstance(choice, NamedChoice):
        if choice.function.name not in names:
            raise invalid("tool_choice", "must name a function of tools: {type: function, function: {name}}")
        # Only the named one may be called; the model still reads about that one alone.
        at = names.index(choice.function.name)
        return Toolbox((functions[at],), (given[at],), True, False)
    if choice == "required" and not functions:
        raise invalid("tool_choice", "is required, but there are no tools")
    wanted = functions and choice != "none"
    return Toolbox(functions, tuple(given), choice == "required", parallel) if wanted else None


class CallStream:
    """Splits a reply into text and calls while it arrives. Nothing is shown that may belong to a call."""

    def __init__(self, tools: Toolbox):
        self._tools, self._held, self._blank = tools, "", ""
        self._spoke = False
        self.num_calls = 0

    def push(self, text: str) -> tuple[str, list[Call]]:
        """Some more of the reply: text that is certain now, and the calls that are complete."""
        self._held += text
        if self._tools.bare and not self._spoke and self._held.lstrip()[:1] in ("{", "["):
            return "", self._bare_calls()
        out, calls = "", list[Call]()
        while True:
            begin = self._held.find(OPEN)
            if begin < 0:
                keep = next((n for n in range(len(OPEN) - 1, 0, -1) if self._held.endswith(OPEN[:n])), 0)
                cut = len(self._held) - keep
                return out + self._shown(self._held[:cut], cut), calls
            out += self._shown(self._held[:begin], begin)
            end = self._held.find(CLOSE)
            if end < 0:
                return out, calls
            whole = self._held[: end + len(CLOSE)]
            if (call := self._call(whole[len(OPEN) : -len(CLOSE)])) is None:
                out += self._shown(whole, len(whole))
                continue
            self._held, self._blank = self._held[len(whole) :], ""
            if self._tools.parallel or not self.num_calls:
                self.num_calls += 1
                calls.append(call)

    def end(self, *, cut: bool = False) -> str:
        """No more text comes: what was held back. A call that the model left open is text, one that was cut is none."""
        if cut and self._is_begun():
            return ""
        text = self._shown(self._held, len(self._held))
        return text if self.num_calls else text + self._blank

    def _is_begun(self) -> bool:
        """Whether what is held is the begin of a call: of a tag alone so much that it can hardly be text."""
        if not self._held.startswith(OPEN):
            return self._tools.must_call or len(self._held) > len(OPEN) // 2
        return self._held[len(OPEN) :].lstrip()[:1] in ("", "{")

    def _shown(self, text: str, cut: int) -> str:
        """Take text out of what is held. White space around calls belongs to nobody: it waits for text behind it."""
        self._held = self._held[cut:]
        text = self._blank + text
        bare = text.rstrip()
        self._blank = text[len(bare) :]
        self._spoke = self._spoke or bool(bare)
        return bare

    def _bare_calls(self) -> list[Call]:
        """What is held, once it is one call or a list of them; until then nothing of it is shown."""
        try:
            found = json.loads(self._held)
        except (ValueError, RecursionError):
            return []
        calls = [self._made(one) for one in (found if isinstance(found, list) else [found])]
        known = [call for call in calls if call is not None]
        if not known or len(known) < len(calls):
            return []
        self._held, self._blank, self._spoke = "", "", True
        self.num_calls += len(known)
        return known if self._tools.parallel else known[:1]

    def _call(self, text: str) -> Call | None:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return self._made(found)

    def _made(self, found: Any) -> Call | None:
        """The call that an object is, if it is one."""
        if not isinstance(found, dict) or not isinstance(found.get("name"), str):
            return None
        if found["name"] not in self._tools.names:
            return None
        arguments = found.get("arguments", found.get("parameters", {}) if self._tools.bare else {})
        if not isinstance(arguments, dict):
            return None
        try:
            written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        except ValueError:  # Python reads NaN, which is no JSON
            return None
        # Half of a surrogate pair can be spelled, but not sent as text.
        return Call(found["name"], written if is_utf8(written) else json.dumps(arguments))
