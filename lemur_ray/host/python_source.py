"""Python's own parser, for threads: source becomes a syntax tree in one of them at a time."""

from __future__ import annotations

import ast
import threading
import warnings
from typing import Literal, overload

# Two reasons, both of CPython below 3.13: what the parser counts its depth with, and the filters of warnings, belong to
# the whole process. A collection of garbage in mid-parse lets another thread in, and the first one then fails with
# "AST constructor recursion depth mismatch". Reentrant, as a finaliser of such a collection may parse.
_ONE_AT_A_TIME = threading.RLock()


@overload
def parsed(code: str) -> ast.Module: ...
@overload
def parsed(code: str, mode: Literal["eval"]) -> ast.Expression: ...
def parsed(code: str, mode: str = "exec") -> ast.AST:
    """The syntax tree of a program; what Python only warns of (``"\\w"``) is the program's own affair.

    ``mode``: ``eval`` for one expression. Raises SyntaxError, ValueError, RecursionError, MemoryError.
    """
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code, mode=mode)
