"""Encodes Python values as plain JSON by their exact type, and decodes them: the format between solution and grader.

``type(x)`` decides, never ``isinstance`` or a method of the value, so a subclass with its own ``__eq__`` is an unknown
kind. Uses the standard library alone: its source is also sent into sandboxes."""

from __future__ import annotations

import collections
import decimal
import fractions
import sys
from collections.abc import Callable
from typing import Any

DEEPEST = 50
_SCALARS: dict[str, Any] = {
    "int": lambda digits: int(digits, 16),
    "float": float.fromhex,
    "complex": lambda parts: complex(*map(float.fromhex, parts)),
    "bytes": bytes.fromhex,
    "Decimal": decimal.Decimal,
}
_BACK: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
    "range": lambda ends: range(*ends),
}
_DICTS: dict[str, Any] = {
    "dict": dict,
    "Counter": lambda pairs: collections.Counter(dict(pairs)),
    "OrderedDict": collections.OrderedDict,
    "defaultdict": dict,
}
_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, range, object)
}
"""Types that may be passed as values."""


class NotPlain(ValueError):
    """Raised for data that does not encode a plain value, and for a value that has no plain form."""


def encode(value: object, depth: int = 0, keep: Callable[[Any], list[Any]] | None = None) -> list[Any]:
    """Encode a value as a JSON list ``[kind, content]``, recursively. A value whose exact type is not supported is
    passed to ``keep``, which returns its encoding; without ``keep`` it becomes ``["unknown", type name]``, as does
    everything nested deeper than 50 levels. ``depth``: present level of nesting."""
    kind = type(value)
    if depth > DEEPEST:
        return ["unknown", "too deep"]
    if value is None or kind in (bool, str):
        return ["none", None] if value is None else [kind.__name__, value]
    if kind is int:
        return ["int", hex(value)]  # type: ignore[arg-type]
    if kind is float:
        return ["float", value.hex()]  # type: ignore[attr-defined]
    if kind is complex:
        return ["complex", [value.real.hex(), value.imag.hex()]]  # type: ignore[attr-defined]
    if kind in (bytes, bytearray):
        return ["bytes", bytes(value).hex()]  # type: ignore[call-overload]
    if kind in (decimal.Decimal, fractions.Fraction):
        return [kind.__name__, str(value)]
    if kind is range:
        ends = (value.start, value.stop, value.step)  # type: ignore[attr-defined]
        return ["range", [encode(end, depth + 1) for end in ends]]
    if kind in (list, tuple, set, frozenset, collections.deque):
        return [kind.__name__, [encode(item, depth + 1, keep) for item in value]]  # type: ignore[attr-defined]
    if kind in (dict, collections.Counter, collections.OrderedDict, collections.defaultdict):
        items = value.items()  # type: ignore[attr-defined]
        return [kind.__name__, [[encode(k, depth + 1, keep), encode(v, depth + 1, keep)] for k, v in items]]
    if type(value) is type and _TYPES.get(value.__name__) is value:
        return ["type", value.__name__]
    if kind.__module__ == "numpy" and "numpy" in sys.modules and issubclass(kind, sys.modules["numpy"].generic):
        return encode(value.item(), depth + 1, keep)  # type: ignore[attr-defined]
    return keep(value) if keep is not None else ["unknown", f"{kind.__module__}.{kind.__qualname__}"[:200]]


def decode(plain: Any, depth: int = 0, kept: Callable[[Any], Any] | None = None) -> Any:
    """Inverse of ``encode``, except that bytearray becomes bytes, defaultdict dict, a NumPy scalar a Python value.
    ``kept``: returns the object for the number of a value of kind ``kept``. ``depth``: present level of nesting. Raises
    NotPlain for other data, kind ``unknown``, and nesting beyond 50 levels."""
    if depth > DEEPEST or type(plain) is not list or len(plain) != 2 or type(plain[0]) is not str:
        raise NotPlain(f"not a plain value: {str(plain)[:100]}")
    kind, content = plain
    try:
        if kind == "none":
            return None
        if (kind == "bool" and type(content) is bool) or (kind == "str" and type(content) is str):
            return content
        if kind in _SCALARS:
            return _SCALARS[kind](content)
        if kind == "Fraction":
            # As ``encode`` writes it: an exponent would make a number of any size out of a few letters.
            numerator, _, denominator = content.partition("/")
            return fractions.Fraction(int(numerator), int(denominator or "1"))
        if kind == "type" and type(content) is str and content in _TYPES:
            return _TYPES[content]
        if kind == "kept" and kept is not None:
            return kept(content)
        below = depth + 1
        if kind in _BACK:
            return _BACK[kind](decode(item, below, kept) for item in content)
        if kind in _DICTS:
            pairs = [(decode(k, below, kept), decode(v, below, kept)) for k, v in content]
            return _DICTS[kind](pairs)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise NotPlain(f"a {kind} that is none: {str(content)[:100]}") from error
    raise NotPlain(f"{kind!r} has no plain value")
