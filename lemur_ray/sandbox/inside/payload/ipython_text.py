"""Formats values and errors as IPython 8.12 does, without IPython.

Values: containers longer than a line have one element per line; everything else is its ``repr``. Errors: a rule, the
class, frames with two statements of context on either side, the message. The rules follow MINT's recorded runs."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import traceback
import types
from typing import Any

RULE = "-" * 75
HEADING = "Traceback (most recent call last)"
WIDTH = 79
LONGEST = 1000
CONTEXT = 2
PIECE_LINES = 6
BRACKETS = {"list": "[]", "tuple": "()", "set": "{}", "dict": "{}", "frozenset": ("frozenset({", "})")}
SHELL_LINE = re.compile(r"^(\s*)!(.+)$", re.M)
MAGIC_LINE = re.compile(r"^(\s*)%(\w+)(.*)$", re.M)
CELL = re.compile(r"<cell (\d+)>")


def translated(code: str) -> str:
    """``code`` as valid Python where IPython syntax made it invalid: ``!command`` lines run the command, ``%magic``
    lines print that the magic is unknown. Nothing else is changed."""
    try:
        ast.parse(code)
        return code
    except (SyntaxError, ValueError):
        pass
    code = SHELL_LINE.sub(lambda m: f"{m[1]}(__import__('os').system({m[2]!r}), None)[1]", code)
    unknown = "UsageError: Line magic function `%{}` not found."
    return MAGIC_LINE.sub(lambda m: f"{m[1]}print({unknown.format(m[2])!r})", code)


def silenced(code: str) -> bool:
    """Whether the last line of ``code`` ends with a semicolon (before a comment), which hides its value."""
    last = code.rstrip().rpartition("\n")[2]
    return last.partition("#")[0].rstrip().endswith(";")


def value_text(value: object) -> str:
    """The text that IPython 8.12 prints for ``value``: containers over several lines if they exceed 79 characters, cut
    after 1,000 elements. Raises what the value's ``repr`` raises."""
    return _value(value, 0, WIDTH, set())


def _value(value: Any, indent: int, room: int, above: set[int]) -> str:
    if isinstance(value, type):
        module = value.__module__
        return value.__qualname__ if module in ("builtins", "exceptions") else f"{module}.{value.__qualname__}"
    if isinstance(value, types.FunctionType):
        try:
            signature = str(inspect.signature(value))
        except (TypeError, ValueError):
            signature = ""
        return f"<function {value.__module__}.{value.__qualname__}{signature}>"
    kind = type(value)
    if kind not in (list, tuple, set, frozenset, dict) or not value:
        if kind.__repr__ is object.__repr__:
            return f"<{kind.__module__}.{kind.__qualname__} at {id(value):#x}>"
        return repr(value)
    if id(value) in above:
        return "[...]" if kind is list else "(...)" if kind is tuple else "{...}"
    return _container(value, kind, indent, room, above | {id(value)})


def _container(value: Any, kind: type, indent: int, room: int, above: set[int]) -> str:
    opened, closed = BRACKETS[kind.__name__]
    items: list[Any] = list(value.items()) if kind is dict else list(value)
    if kind in (set, frozenset):
        try:
            items.sort()
        except Exception:  # comparing may raise anything; an order is only a nicety
            items = list(value)
    inner = indent + len(opened)
    parts = []
    for item in items[:LONGEST]:
        if kind is dict:
            key = _value(item[0], inner, room, above)
            parts.append(f"{key}: {_value(item[1], inner + len(key) + 2, room, above)}")
        else:
            parts.append(_value(item, inner, room, above))
    if len(items) > LONGEST:
        parts.append("...")
    closed = f",{closed}" if kind is tuple and len(items) == 1 else closed
    line = opened + ", ".join(parts) + closed
    if "\n" not in line and indent + len(line) <= room:
        return line
    return opened + (",\n" + " " * inner).join(parts) + closed


def error_text(error: BaseException, cell: str) -> str:
    """The traceback that IPython 8.12 prints for an exception and those that caused it. ``cell``: the code's file name
    in frames, such as "<cell 3>"."""
    if isinstance(error, SyntaxError) and error.filename == cell:
        return _syntax_text(error)
    chain: list[tuple[BaseException, str]] = [(error, "")]
    seen = {id(error)}
    while True:
        last = chain[-1][0]
        cause, link = last.__cause__, "The above exception was the direct cause of the following exception:"
        if cause is None and not last.__suppress_context__:
            cause, link = last.__context__, "During handling of the above exception, another exception occurred:"
        if cause is None or id(cause) in seen:
            break
        seen.add(id(cause))
        chain.append((cause, link))
    parts = []
    for at in range(len(chain) - 1, -1, -1):
        parts.append(_one_error(chain[at][0]))
        if at:
            parts.append(f"\n{chain[at][1]}\n")
    return f"{RULE}\n" + "\n".join(parts)


def _one_error(error: BaseException) -> str:
    name = type(error).__name__
    lines = [name + " " * max(1, len(RULE) - len(name) - len(HEADING)) + HEADING]
    frames = [f for f in traceback.walk_tb(error.__traceback__) if not f[0].f_code.co_filename.startswith("<lemur")]
    lines += [_frame_text(frame, number) for frame, number in frames]
    if not frames:
        lines[-1] += "\n"
    return "\n".join([*lines, _message(error)])


def _message(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return _syntax_text(error)
    name = type(error).__name__
    try:
        message = str(error)
    except Exception:  # the policy's own __str__
        message = "<exception str() failed>"
    return f"{name}: {message}" if message else f"{name}: "


def _syntax_text(error: SyntaxError) -> str:
    match = CELL.fullmatch(error.filename or "")
    where = f"Cell In[{match[1]}], line {error.lineno}" if match else f"File {error.filename}:{error.lineno}"
    lines = [f"  {where}"]
    if error.text:
        text = error.text.rstrip("\n")
        stripped = text.lstrip()
        lines.append(f"    {stripped}")
        if error.offset:
            lines.append(" " * (3 + max(1, error.offset - (len(text) - len(stripped)))) + "^")
    return "\n".join([*lines, f"{type(error).__name__}: {error.msg}"])


def _frame_text(frame: types.FrameType, number: int) -> str:
    code = frame.f_code
    match = CELL.fullmatch(code.co_filename)
    where = f"Cell In[{match[1]}], line {number}" if match else f"File {code.co_filename}:{number}"
    if code.co_name != "<module>":
        name = getattr(code, "co_qualname", code.co_name)
        where += f", in {name}{_arguments(frame)}"
    return "\n".join([where, *_context(frame, number), ""])


def _arguments(frame: types.FrameType) -> str:
    code = frame.f_code
    if code.co_name.startswith("<"):
        return "(.0)" if ".0" in code.co_varnames else ""
    known = inspect.getargs(code)
    names = [*known.args]
    names += [f"*{known.varargs}"] if known.varargs else []
    names += [f"**{known.varkw}"] if known.varkw else []
    return f"({', '.join(names)})"


def _context(frame: types.FrameType, number: int) -> list[str]:
    source = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    if not source or not 0 < number <= len(source):
        return []
    try:
        pieces = _pieces(source, frame)
    except (SyntaxError, ValueError, RecursionError):
        pieces = [range(n, n + 1) for n in range(max(1, number - CONTEXT), min(len(source), number + CONTEXT) + 1)]
    at = next((i for i, piece in enumerate(pieces) if number in piece), None)
    if at is None:
        return [_line(number, source[number - 1], True)]
    chosen = list(range(max(0, at - CONTEXT), min(len(pieces), at + CONTEXT + 1)))
    in_function = frame.f_code.co_name not in ("<module>",) and not frame.f_code.co_name.startswith("<")
    if in_function and 0 not in chosen:
        chosen.insert(0, 0)
    numbers: list[int | None] = []
    last = None
    for index in chosen:
        if last is not None and index != last + 1:
            numbers.append(None)
        piece = list(pieces[index])
        if len(piece) > PIECE_LINES and number not in piece[PIECE_LINES // 2 : -2]:
            numbers += [*piece[: PIECE_LINES // 2], None, *piece[-2:]]
        else:
            numbers += piece
        last = index
    texts = [source[n - 1].rstrip("\n").expandtabs() for n in numbers if n is not None and source[n - 1].strip()]
    margin = min((len(t) - len(t.lstrip()) for t in texts), default=0)
    return [
        "   (...)" if n is None else _line(n, source[n - 1].rstrip("\n").expandtabs()[margin:], n == number)
        for n in numbers
    ]


def _line(number: int, text: str, marked: bool) -> str:
    text = text.rstrip("\n")
    if marked:
        return "-" * max(0, 5 - len(str(number))) + f"> {number} {text}"
    return f"{number:>7} {text}"


def _pieces(source: list[str], frame: types.FrameType) -> list[range]:
    """Line ranges of the statements of the frame's scope: headers of compound ones apart, comments between them too."""
    tree: ast.AST = ast.parse("".join(source))
    first, end = 1, len(source) + 1
    if frame.f_code.co_name != "<module>":
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                begin = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                if frame.f_code.co_firstlineno in (begin, node.lineno) and node.name == frame.f_code.co_name:
                    tree, first, end = node, begin, (node.end_lineno or node.lineno) + 1
                    break
    ranges = []
    for low, high in _split(tree, first, end):
        while low < high and not source[low - 1].strip():
            low += 1
        while low < high and not source[high - 2].strip():
            high -= 1
        if low < high:
            ranges.append(range(low, high))
    return ranges


def _split(node: ast.AST, start: int, end: int) -> list[tuple[int, int]]:
    parts: list[tuple[int, int]] = []
    bodies = [v for _, v in ast.iter_fields(node) if isinstance(v, list) and v and hasattr(v[0], "lineno")]
    children = [c for body in bodies for c in body if isinstance(c, ast.stmt | ast.ExceptHandler)]
    for child in sorted(children, key=lambda c: c.lineno):
        low = min([child.lineno, *(d.lineno for d in getattr(child, "decorator_list", []))])
        high = (child.end_lineno or child.lineno) + 1
        if low < start:
            continue
        if start < low:
            parts.append((start, low))
        parts += _split(child, low, high)
        start = high
    if start < end:
        parts.append((start, end))
    return parts
