"""Evaluates an arithmetic expression in Python's notation without running Python.

For graders whose rule says "evaluate the answer". Accepts numbers, strings, booleans, operators, lists, tuples, sets,
``math.NAME`` (also ``np.NAME``), ``Rational(a, b)`` and a few functions; everything else raises. Run time is bounded:
values, powers, roundings and strings of numbers have a maximum size. Knows no benchmark."""

import ast
import cmath
import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from lemur_ray.host.python_source import parsed

MAX_CHARS = 2_000
MAX_DEPTH = 60
MAX_BITS = 20_000
MAX_ITEMS = 10_000
MAX_WEIGHT = 2 * MAX_ITEMS
"""Maximum weight of a value and its elements: one per item, more for large numbers and long strings."""
MAX_DIGITS = 400
"""Maximum number of digits to round to, and maximum exponent of a number in a string."""

_EXPONENT = re.compile(r"[eE]([-+]?[\d_]+)")
_MODULES = frozenset({"math", "np", "numpy"})
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": math.inf}
_MATH: Mapping[str, Callable[..., Any]] = {
    name: getattr(math, name)
    for name in (
        *("sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan"),
        *("atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "ceil", "floor", "fabs", "hypot", "degrees"),
        *("radians", "gcd", "trunc"),
    )
}


class NotArithmetic(ValueError):
    """Raised if a text is not an accepted expression, or its value cannot be computed within the limits."""


def evaluate(text: str, names: Mapping[str, Any] | None = None) -> Any:
    """Value of an arithmetic expression in Python's notation, within limits of size and time. ``names``: values of
    further names. Raises NotArithmetic for anything not accepted, an empty text included."""
    if len(text) > MAX_CHARS:
        raise NotArithmetic(f"{len(text)} characters: expected at most {MAX_CHARS}")
    try:
        tree = parsed(text.strip(), "eval")
        return _Evaluator(names or {}).value(tree.body, 0)
    except NotArithmetic:
        raise
    except (SyntaxError, ValueError, TypeError, ArithmeticError, MemoryError, RecursionError, IndexError) as error:
        raise NotArithmetic(f"{type(error).__name__}: {error}") from error


def _bits(value: Any) -> int:
    if isinstance(value, Fraction):
        return value.numerator.bit_length() + value.denominator.bit_length()
    return value.bit_length() if isinstance(value, int) else 64


def _weight(value: Any, left: int = MAX_WEIGHT) -> int:
    """Weight of a value; counting stops once it exceeds ``left``."""
    if isinstance(value, str):
        return 1 + len(value) // 64
    if not isinstance(value, list | tuple | set):
        return 1 + _bits(value) // 256
    weight = 1
    for item in value:
        weight += _weight(item, left - weight)
        if weight > left:
            break
    return weight


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int | Fraction) and isinstance(exponent, int) and _bits(base) * abs(exponent) > MAX_BITS:
        raise NotArithmetic(f"a power of more than {MAX_BITS} bits")
    return base**exponent


def _plus(a: Any, b: Any) -> Any:
    if isinstance(a, str | list | tuple) and isinstance(b, str | list | tuple) and len(a) + len(b) > MAX_ITEMS:
        raise NotArithmetic(f"a text or list longer than {MAX_ITEMS}")
    return a + b


def _sum(items: Any, start: Any = 0) -> Any:
    """The sum of numbers. Sums of lists are refused, since each addition would copy the list."""
    total = start
    for item in items:
        if not isinstance(total, int | float | complex | Fraction) or _bits(total) > 4 * MAX_BITS:
            raise NotArithmetic("a sum of a value that is no number, or too large")
        total += item
    return total


def _round(number: Any, digits: Any = None) -> Any:
    if digits is not None and not (isinstance(digits, int) and abs(digits) <= MAX_DIGITS):
        raise NotArithmetic(f"rounding to {digits!r} digits: expected at most {MAX_DIGITS}")
    return round(number, digits)


def _fraction(*parts: Any) -> Fraction:
    for part in parts:
        if isinstance(part, str) and (
            len(part) > MAX_CHARS or any(len(e) > 6 or abs(int(e)) > MAX_DIGITS for e in _EXPONENT.findall(part))
        ):
            raise NotArithmetic(f"a number written {part[:20]!r}: expected an exponent of at most {MAX_DIGITS}")
    return Fraction(*parts)


def _times(a: Any, b: Any) -> Any:
    for sequence, count in ((a, b), (b, a)):
        if isinstance(sequence, str | list | tuple) and (
            not isinstance(count, int) or len(sequence) * count > MAX_ITEMS
        ):
            raise NotArithmetic("a text or list repeated too often")
    return a * b


def _factorial(n: Any) -> int:
    if not isinstance(n, int) or not 0 <= n <= 1_000:
        raise NotArithmetic(f"factorial of {n!r}: expected a whole number from 0 to 1000")
    return math.factorial(n)


def _choose(function: Callable[[int, int], int]) -> Callable[[Any, Any], int]:
    def bounded(n: Any, k: Any) -> int:
        if not (isinstance(n, int) and isinstance(k, int) and 0 <= n <= 1_000 and 0 <= k <= 1_000):
            raise NotArithmetic(f"of {n!r} and {k!r}: expected whole numbers from 0 to 1000")
        return function(n, k)

    return bounded


def _range(*bounds: Any) -> list[int]:
    numbers = range(*bounds)
    if len(numbers) > MAX_ITEMS:
        raise NotArithmetic(f"a range of {len(numbers)} numbers: expected at most {MAX_ITEMS}")
    return list(numbers)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (abs, min, max, list, tuple, set, sorted, len, int, float, complex)},
    "sum": _sum, "round": _round, "range": _range, "Rational": _fraction, "Fraction": _fraction,
}  # fmt: skip
_MODULE_MEMBERS: Mapping[str, Any] = {
    **_MATH, **_CONSTANTS, "pow": lambda a, b: _power(float(a), float(b)), "power": _power, "factorial": _factorial,
    "comb": _choose(math.comb), "perm": _choose(math.perm), "abs": abs, "round": _round, "array": list,
    "csqrt": cmath.sqrt,
}  # fmt: skip
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _plus, ast.Sub: operator.sub, ast.Mult: _times, ast.Pow: _power,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda a, b: operator.mod(a, b) if not isinstance(a, str) else _refuse("a formatted text"),
    ast.BitXor: operator.xor, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Not: operator.not_, ast.Invert: operator.invert,
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def _refuse(what: str) -> Any:
    raise NotArithmetic(f"{what} is not arithmetic")


class _Evaluator:
    """Evaluates a syntax tree; a kind of node that is not listed is refused."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def value(self, node: ast.expr, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise NotArithmetic(f"nested deeper than {MAX_DEPTH}")
        value = self._value(node, depth + 1)
        if _bits(value) > 4 * MAX_BITS or _weight(value) > MAX_WEIGHT:
            raise NotArithmetic("a value too large")
        return value

    def _value(self, node: ast.expr, depth: int) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() | complex() | str() | None as value):
                return value
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _UNARY[type(op)](self.value(operand, depth))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](self.value(left, depth), self.value(right, depth))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return _COMPARE[type(op)](self.value(left, depth), self.value(right, depth))
            case ast.List(elts=items):
                return [self.value(item, depth) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.value(item, depth) for item in items)
            case ast.Set(elts=items):
                return {self.value(item, depth) for item in items}
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in _MODULES and name in _CONSTANTS:
                return _CONSTANTS[name]
            case ast.Call(func=function, args=args, keywords=[]):
                return self._function(function)(*(self.value(arg, depth) for arg in args))
        return _refuse(ast.dump(node)[:80])

    def _function(self, node: ast.expr) -> Callable[..., Any]:
        match node:
            case ast.Name(id=name) if name in _FUNCTIONS:
                return _FUNCTIONS[name]
            case ast.Name(id=name) if name in self._names and callable(self._names[name]):
                return self._names[name]
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in _MODULES and name in _MODULE_MEMBERS:
                member = _MODULE_MEMBERS[name]
                return member if callable(member) else _refuse(name)
        return _refuse(ast.dump(node)[:80])


MATH_NAMES: Mapping[str, Any] = {**_CONSTANTS, **_MATH, "factorial": _factorial}
"""Members of ``math`` that a grader may accept without the prefix ``math.``."""
