"""Parses and writes actions as Python calls: ``type(id=164, content='pens', press_enter_after=True)``.

Calls are never executed. The grammar is the project's own; the paper has one sentence about it (section 4.5, Figure 4).
Common variations are accepted and counted (``coerced``): 0 and 1 for a flag, digits in quotes for a number, a bare
number for a text, adjacent strings, several calls of which the first counts."""

import ast
import io
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from envs.webarena.actions.action import Action, ActionParsingError, Kind, Reading
from envs.webarena.actions.symbolic import MAX_DIGITS
from lemur_ray.host.python_source import parsed

_REQUIRED = object()


@dataclass(frozen=True)
class Parameter:
    """A parameter of a call: name, field of ``Action`` that it fills, type (int, bool or str), default."""

    name: str
    field: str
    type: str
    default: Any = _REQUIRED


@dataclass(frozen=True)
class Signature:
    """Signature of a function of the action language: the kind of action that a call makes, and the parameters."""

    kind: Kind
    parameters: tuple[Parameter, ...] = ()


_ID = Parameter("id", "element_id", "int")
SIGNATURES: Mapping[str, Signature] = {
    "click": Signature(Kind.CLICK, (_ID,)),
    "hover": Signature(Kind.HOVER, (_ID,)),
    "type": Signature(
        Kind.TYPE, (_ID, Parameter("content", "text", "str"), Parameter("press_enter_after", "enter", "bool", True))
    ),
    "press": Signature(Kind.KEY_PRESS, (Parameter("key_comb", "key_comb", "str"),)),
    "scroll": Signature(Kind.SCROLL, (Parameter("direction", "direction", "str"),)),
    "new_tab": Signature(Kind.NEW_TAB),
    "tab_focus": Signature(Kind.PAGE_FOCUS, (Parameter("tab_index", "page_number", "int"),)),
    "close_tab": Signature(Kind.PAGE_CLOSE),
    "goto": Signature(Kind.GOTO_URL, (Parameter("url", "url", "str"),)),
    "go_back": Signature(Kind.GO_BACK),
    "go_forward": Signature(Kind.GO_FORWARD),
    "stop": Signature(Kind.STOP, (Parameter("answer", "answer", "str", ""),)),
}
_NOT_EMPTY = ("key_comb", "url")
_FROM_NUMBERS = ("text", "answer")


def signature_of(name: str) -> str:
    """Return a function's signature for a prompt: ``type(id: int, content: str, press_enter_after: bool = True)``."""
    shown = [
        f"{p.name}: {p.type}" + ("" if p.default is _REQUIRED else f" = {p.default!r}")
        for p in SIGNATURES[name].parameters
    ]
    return f"{name}({', '.join(shown)})"


def render_call(action: Action) -> str:
    """Write an action as a call with keyword arguments. Raises ValueError for the none-action."""
    if action.kind is Kind.NONE:
        raise ValueError(f"{action.kind} is no action that can be called")
    name, _ = action.written
    given = [f"{p.name}={_literal(p, getattr(action, p.field))}" for p in SIGNATURES[name].parameters]
    return f"{name}({', '.join(given)})"


def _literal(parameter: Parameter, value: Any) -> str:
    if parameter.field == "element_id" and _is_plain_number(value):
        return str(value)
    return repr(value)


def _is_plain_number(digits: str) -> bool:
    return digits.isascii() and digits.isdecimal() and len(digits) <= MAX_DIGITS and str(int(digits)) == digits


def parse_calls(code: str) -> Reading:
    """Parse a text of Python calls and return the first. Raises ActionParsingError for any other text."""
    try:
        body = parsed(code.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ActionParsingError(f"{code[:80]!r}: no Python ({error})") from None
    if not body:
        raise ActionParsingError("no call: expected one such as click(id=12)")
    calls = [one.value for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    if len(calls) < len(body):
        raise ActionParsingError(f"{code[:80]!r}: expected one call and nothing else")
    reading = _read(calls[0], code.strip())
    return replace(reading, coerced=reading.coerced + (len(calls) > 1))


def _read(call: ast.Call, source: str) -> Reading:
    if not isinstance(call.func, ast.Name) or call.func.id not in SIGNATURES:
        raise ActionParsingError(f"unknown function: expected one of {', '.join(SIGNATURES)}")
    name = call.func.id
    signature = SIGNATURES[name]
    given: dict[str, ast.expr] = {}
    if len(call.args) > len(signature.parameters):
        raise ActionParsingError(f"{name}: {len(call.args)} arguments, expected {signature_of(name)}")
    for parameter, value in zip(signature.parameters, call.args, strict=False):
        given[parameter.name] = value
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg not in {p.name for p in signature.parameters} or keyword.arg in given:
            raise ActionParsingError(f"{name}: argument {keyword.arg!r} is unknown or twice: {signature_of(name)}")
        given[keyword.arg] = keyword.value
    fields: dict[str, Any] = {}
    coerced = 0
    for parameter in signature.parameters:
        if parameter.name in given:
            value, other = _READ[parameter.type](given[parameter.name], parameter, source)
            coerced += other
        elif parameter.default is _REQUIRED:
            raise ActionParsingError(f"{name}: {parameter.name} is missing: {signature_of(name)}")
        else:
            value = parameter.default
        fields[parameter.field] = value
    if signature.kind is Kind.SCROLL and fields["direction"] not in ("up", "down"):
        raise ActionParsingError(f"scroll: direction {fields['direction'][:40]!r}, expected 'up' or 'down'")
    return Reading(Action(signature.kind, **fields), coerced)


def _int(node: ast.expr, parameter: Parameter, source: str) -> tuple[Any, bool]:
    value = node.value if isinstance(node, ast.Constant) else None
    quoted = isinstance(value, str) and value.isdecimal()
    if not quoted and (not isinstance(value, int) or isinstance(value, bool) or value >= 10**MAX_DIGITS):
        raise ActionParsingError(f"{parameter.name}: expected a whole number, 0 or more")
    if parameter.field == "element_id":
        return str(value), quoted
    if quoted and len(str(value)) > MAX_DIGITS:
        raise ActionParsingError(f"{parameter.name}: expected a smaller number")
    return int(str(value)), quoted


def _bool(node: ast.expr, parameter: Parameter, source: str) -> tuple[Any, bool]:
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool):
        return value, False
    if isinstance(value, int) and value in (0, 1):
        return bool(value), True
    raise ActionParsingError(f"{parameter.name}: expected True or False")


def _str(node: ast.expr, parameter: Parameter, source: str) -> tuple[Any, bool]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if not node.value and parameter.field in _NOT_EMPTY:
            raise ActionParsingError(f"{parameter.name}: empty")
        return node.value, _is_joined(node, source)
    bare = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd) else node
    is_number = isinstance(bare, ast.Constant) and type(bare.value) in (int, float)
    if is_number and parameter.field in _FROM_NUMBERS:
        return ast.get_source_segment(source, node) or "", True
    raise ActionParsingError(f"{parameter.name}: expected a string in quotes")


def _is_joined(node: ast.Constant, source: str) -> bool:
    """Whether a string is written as several adjacent literals, which Python joins."""
    segment = ast.get_source_segment(source, node) or ""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(f"({segment})").readline))
    except (tokenize.TokenError, SyntaxError):  # ast has parsed it, so it is code: count it as one string
        return False
    return sum(token.type == tokenize.STRING for token in tokens) > 1


_READ: Mapping[str, Callable[[ast.expr, Parameter, str], tuple[Any, bool]]] = {"int": _int, "bool": _bool, "str": _str}
