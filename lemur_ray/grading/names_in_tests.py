"""Source of each name in tests: the solution, the standard library, or the text of the task.

A solution supplies only the names under test: with a ``math`` or a ``poly`` of its own it could change what its tests
compute. Knows no sandbox and runs nothing."""

import ast
import builtins
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lemur_ray.host.python_source import parsed

ALIASES = {"np": "numpy", "numpy": "numpy"}
"""Modules beyond the standard library that tests may use, by name in the tests."""
_CODE = ("def ", "class ", "import ", "from ", "@")


@dataclass(frozen=True)
class Names:
    """Names that tests use. ``of_solution``: those that the solution has to define. ``modules``: name -> module,
    imported in the tests' process if the solution has the name, as in one shared interpreter."""

    of_solution: tuple[str, ...]
    modules: dict[str, str]

    @property
    def asked(self) -> list[str]:
        """Names whose values are requested from the solution: its own and those of modules."""
        return sorted({*self.of_solution, *self.modules})


def names_used(tests: str, setup: str = "") -> Names:
    """Source of each name that ``tests`` use and neither they nor ``setup`` define. The name of a builtin is under test
    only if no other name is (MBPP has a function called ``sum``), so that a solution cannot replace the builtins of its
    tests. A name of the standard library that only appears before a dot (``math.pi``) is the module. Raises ValueError
    for tests or setup that are not Python."""
    try:
        tree, given = parsed(tests), parsed(setup)
    except SyntaxError as error:
        raise ValueError(f"tests that are no Python, line {error.lineno}: {error.msg}") from error
    free = {name for name in _used(tree) - _stored(tree) - _stored(given) if not name.startswith("__")}
    importable = sys.stdlib_module_names | ALIASES.keys()
    modules = {name: ALIASES.get(name, name) for name in free & _only_before_dots(tree) & importable}
    if modules.keys() == free:  # then one of them is under test, whatever its name
        modules = {}
    left = free - modules.keys()
    under_test = sorted(name for name in left if not hasattr(builtins, name)) or sorted(left)
    return Names(tuple(under_test), modules)


def requested_values(defined: Any, asked: Sequence[str]) -> dict[str, Any]:
    """The values, encoded as by ``sandbox.inside.payload.plain_values``, of the requested names that the solution
    defined. ``defined``: untrusted answer of its process; anything malformed or not asked for is dropped."""
    if type(defined) is not list or len(defined) != 2 or defined[0] != "dict" or type(defined[1]) is not list:
        return {}
    values: dict[str, Any] = {}
    for pair in defined[1]:
        if type(pair) is list and len(pair) == 2 and type(pair[0]) is list and pair[0][:1] == ["str"]:
            name = pair[0][1] if len(pair[0]) == 2 else None
            if type(name) is str and name in asked:
                values[name] = pair[1]
    return values


def task_definitions(prompt: str, tests: str) -> str:
    """Definitions in a task's prompt before the function to complete, if ``tests`` use any of them; else empty.
    HumanEval has such prompts: code may follow a sentence, and its last function is the one to complete."""
    lines = prompt.splitlines(keepends=True)
    first = next((n for n, line in enumerate(lines) if line.startswith(_CODE)), len(lines))
    try:
        tree = parsed("".join(lines[first:]))
        used = _used(parsed(tests)) - _stored(parsed(tests))
    except (SyntaxError, ValueError):
        return ""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not functions:
        return ""
    tree.body = tree.body[: tree.body.index(functions[-1])]
    return ast.unparse(tree) if used & _stored(tree) else ""


def _used(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _stored(tree: ast.Module) -> set[str]:
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            stored |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return stored


def _only_before_dots(tree: ast.Module) -> set[str]:
    """Names whose every use is before a dot."""
    looked = [node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    before = {id(node) for node in looked if isinstance(node, ast.Name)}
    bare = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in before}
    return _used(tree) - bare
