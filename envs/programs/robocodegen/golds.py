"""The reference functions as programs in the form of a model's answer. They must score 1 (``--check-gold``)."""

import ast
import inspect
from collections.abc import Iterable
from functools import cache

from envs.programs.robocodegen import reference


def gold(name: str, objects: Iterable[str]) -> str | None:
    """A program that defines the function ``name``; None without a reference. ``objects``: the scene's objects."""
    if name in reference.FUNCTIONS:
        return f"{_source()}\n\ndef {name}(*given):\n    return FUNCTIONS[{name!r}](*given)"
    if name not in reference.IN_SCENE:
        return None
    scene = f"{{name: get_obj_outer_pts_np(name) for name in {sorted(objects)!r}}}"
    return f"{_source()}\n\ndef {name}(*given):\n    return IN_SCENE[{name!r}]({scene}, *given)"


@cache
def _source() -> str:
    """Source of all reference functions without imports, docstrings and types, which are not allowed or not needed."""
    tree = ast.parse(inspect.getsource(reference))
    kept = [_plain(node) for node in tree.body if isinstance(node, ast.FunctionDef | ast.AnnAssign)]
    return ast.unparse(ast.fix_missing_locations(ast.Module(kept, [])))


def _plain(node: ast.FunctionDef | ast.AnnAssign) -> ast.stmt:
    if isinstance(node, ast.AnnAssign):
        assert node.value is not None
        return ast.Assign([node.target], node.value)
    node.returns = None
    for one in node.args.args:
        one.annotation = None
    if ast.get_docstring(node) is not None:
        del node.body[0]
    return node
