"""Thread-safe parsing of Python source: one thread at a time uses Python's parser."""

import ast
import threading
import warnings
from typing import Literal, overload

# Below CPython 3.13 the parser's depth counter and the warning filters are global. If a garbage collection in a parse
# lets another thread parse, the first fails with "AST constructor recursion depth mismatch". Reentrant, since a
# finaliser of such a collection may parse.
_ONE_AT_A_TIME = threading.RLock()


@overload
def parsed(code: str) -> ast.Module: ...
@overload
def parsed(code: str, mode: Literal["eval"]) -> ast.Expression: ...
def parsed(code: str, mode: str = "exec") -> ast.AST:
    """The syntax tree of a program, without the parser's warnings (``"\\w"``). ``mode``: ``eval`` for one expression.
    Raises SyntaxError, ValueError, RecursionError or MemoryError if it cannot be parsed."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code, mode=mode)
