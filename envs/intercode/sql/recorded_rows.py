"""Parses query results in InterCode's logs, printed by Python as lists of a MySQL cursor's rows, into rows.

Parses literals and the four constructors that such a text can contain, and evaluates nothing."""

import ast
import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from envs.intercode.sql.engine import Row
from lemur_ray.host.python_source import parsed

_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "Decimal": Decimal,
    "datetime.date": datetime.date,
    "datetime.datetime": datetime.datetime,
    "datetime.timedelta": datetime.timedelta,
}


def read_rows(text: str) -> list[Row] | None:
    """Parse a list of row tuples that Python printed; None if the text is anything else, such as an error message."""
    if not text.startswith("["):
        return None
    try:
        value = _value(parsed(text, "eval").body)
    except (SyntaxError, ValueError, TypeError, ArithmeticError, MemoryError, RecursionError):
        return None
    if not isinstance(value, list) or not all(isinstance(row, tuple) for row in value):
        return None
    return value


def neutral(rows: Sequence[Row]) -> list[Row]:
    """Rows in a form for comparison: numbers as floats of ten significant digits, dates and times as text."""
    return [tuple(_neutral(value) for value in row) for row in rows]


def _neutral(value: Any) -> Any:
    if isinstance(value, (int, float, Decimal)):
        return float(f"{float(value):.10g}")
    if isinstance(value, (datetime.date, datetime.datetime, datetime.timedelta)):
        return str(value)
    return value


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.List():
            return [_value(item) for item in node.elts]
        case ast.Tuple():
            return tuple(_value(item) for item in node.elts)
        case ast.Set():
            return {_value(item) for item in node.elts}
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand)
        case ast.Call():
            name = ast.unparse(node.func)
            if name not in _CONSTRUCTORS:
                raise ValueError(f"{name}: not what a result holds")
            named = {item.arg: _value(item.value) for item in node.keywords if item.arg}
            return _CONSTRUCTORS[name](*(_value(item) for item in node.args), **named)
    raise ValueError(f"{type(node).__name__}: not what a result holds")
