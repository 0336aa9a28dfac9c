"""Makes conversations from Python functions: the user asks for a function by its docstring, or what a function does.

``standard_library`` yields the source texts of this machine's Python as input."""

import ast
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from lemur_ray.agents.messages import Message
from lemur_ray.host.python_source import parsed
from lemur_ray.instruct.conversation import Conversation

DATASET = "code_chats"
MAX_SUMMARY, MAX_CODE = 160, 600
"""Maximum characters of a docstring's first line, and of a function; others are skipped."""


def code_chats(sources: Iterable[tuple[str, str]]) -> Iterator[Conversation]:
    """Yield conversations about the functions of Python sources, each (id, text), in order: one per function.
    They alternate: the first asks for a function by the first line of its docstring, the second asks what a function
    does. Functions without docstring or body, or longer than MAX_SUMMARY and MAX_CODE, are skipped, as are sources that
    are not valid Python."""
    count = 0
    for source_id, text in sources:
        for node in _functions(text):
            summary = (ast.get_docstring(node) or "").strip().split("\n")[0].strip()
            if not summary or len(summary) > MAX_SUMMARY or len(code := _without_docstring(node)) > MAX_CODE:
                continue
            if count % 2 == 0:
                question = f"Write a Python function `{node.name}`: {summary}"
                answer = f"```python\n{code}\n```"
            else:
                question = f"What does this function do?\n```python\n{code}\n```"
                answer = summary
            yield Conversation(
                DATASET, f"{source_id}:{node.name}", (Message("user", question), Message("assistant", answer))
            )
            count += 1


def _functions(text: str) -> Iterator[ast.FunctionDef]:
    """Yield all non-async functions in a Python source whose body has two or more statements, outermost first."""
    try:
        tree = parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and len(node.body) > 1:
            yield node


def _without_docstring(node: ast.FunctionDef) -> str:
    """Source code of a function, formatted by ``ast.unparse``, without its first statement, the docstring."""
    bare = ast.FunctionDef(**{**{f: getattr(node, f) for f in node._fields}, "body": node.body[1:]})
    return ast.unparse(ast.copy_location(bare, node))


def standard_library() -> Iterator[tuple[str, str]]:
    """Yield (file name, text) of the top-level modules of this Python's standard library, sorted; no packages. Files
    that cannot be read are left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.glob("*.py")):
        try:
            yield path.name, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
