"""Extracts the program from a reply: a chat model's fenced block, a program between sentences, or a completion."""

import ast
import re

from lemur_ray.host.python_source import parsed

_FENCED = re.compile(
    r"(?P<indent>(?:^|(?<=\n))[ \t]*)?(?P<fence>`{3,}|~{3,})[ \t]*[^\n`]*\n"
    r"(?P<block>.*?)(?:\n[ \t]*(?P=fence)(?!\w+\()|\Z)",
    re.DOTALL,
)
_BEGINS = re.compile(r"(?:async\s+def|def|class|import|from)\s+\w|@\w")


def code_in(reply: str, defined: str = "") -> str:
    """The last fenced block that matches ``defined``, else the longest block; a reply without fences unchanged.
    ``defined`` is a regular expression. Fences are three or more backticks or tildes; the lines of an indented one lose
    its indentation. A block without an end extends to the end of the reply."""
    blocks = [_outdented(match["block"], match["indent"] or "") for match in _FENCED.finditer(reply)]
    if not blocks:
        return reply
    right = [block for block in blocks if defined and re.search(defined, block, re.MULTILINE)]
    return right[-1] if right else max(blocks, key=len)


def has_fence(reply: str) -> bool:
    """Whether a reply contains a fenced block, closed or not."""
    return _FENCED.search(reply) is not None


def python_in(reply: str, defined: str) -> str:
    """The Python program in a reply: as ``code_in`` returns it, but in a reply without fences also without the prose
    around it. Prose is dropped only if a line matches the regular expression ``defined`` and the reply is no program;
    the program is then the first run of lines that parses, begins with a statement and matches ``defined``."""
    code = code_in(reply, defined)
    if has_fence(reply) or not re.search(defined, code, re.MULTILINE):
        return code
    if _is_program(code):
        return code
    lines = code.splitlines()
    behind = 0
    for first in [n for n, line in enumerate(lines) if _BEGINS.match(line)] or [0]:
        if first < behind:
            continue
        last = len(lines)
        while last > first:
            part = "\n".join(lines[first:last])
            wrong = _wrong_line(part)
            if wrong is None:
                break
            last = min(last, first + wrong) - 1
        if last > first and re.search(defined, part, re.MULTILINE):
            return part
        behind = last
    return code


def _is_program(code: str) -> bool:
    """Whether a text is Python without a bare expression (``Sure``) among its statements."""
    if not can_be_parsed(code):
        return False
    bare = [node.value for node in parsed(code).body if isinstance(node, ast.Expr)]
    return all(isinstance(value, ast.Constant | ast.Call | ast.Await) for value in bare)


def _wrong_line(code: str) -> int | None:
    """Number, from 1, of the line with the first syntax error in ``code``; None if it parses."""
    try:
        parsed(code)
    except SyntaxError as error:
        return error.lineno or code.count("\n") + 1
    except (ValueError, RecursionError, MemoryError):
        return code.count("\n") + 1
    return None


def _outdented(block: str, indent: str) -> str:
    if not indent.strip("\n"):
        return block
    return "\n".join(line[len(indent) :] if line.startswith(indent) else line.lstrip() for line in block.split("\n"))


def can_be_parsed(code: str) -> bool:
    """Whether a text parses as Python; never raises."""
    return _wrong_line(code) is None
