"""Parses untrusted JSON from a sandbox within bounds; the only parser for bytes that the policy may have chosen.

Size, number of values and depth are counted in the bytes before parsing, since a few bytes of JSON can become large
objects. Errors are blamed on the policy. Knows no protocol: callers state the shape that they expect."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lemur_ray.sandbox.sandbox import SandboxError

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A JSON string; an unclosed one extends to the end. Matches in linear time."""
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_HALF_A_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")


class UntrustedData(SandboxError):
    """Raised if data from a sandbox exceeds its bounds or has another shape than expected; the policy is to blame."""

    blame = "policy"


@dataclass(frozen=True)
class Bounds:
    """Limits of a JSON text: its bytes, the number of values in it (keys included), and the depth of nesting."""

    size_bytes: int
    nodes: int
    depth: int


def untrusted_json(data: bytes, bounds: Bounds) -> Any:
    """Parse a JSON text from a sandbox; lone surrogates become U+FFFD. Raises UntrustedData, blamed on the policy, if
    it is no JSON or exceeds ``bounds``."""
    if len(data) > bounds.size_bytes:
        raise UntrustedData(f"{len(data)} bytes of JSON: expected at most {bounds.size_bytes}")
    # Strings are recognised correctly up to the first syntax error, and nothing behind that is parsed.
    bare = _STRING.sub(b"", data)
    nodes = 1 + sum(bare.count(sign) for sign in (b"[", b"{", b",", b":"))
    if nodes > bounds.nodes:
        raise UntrustedData(f"a JSON of {nodes} values: expected at most {bounds.nodes}")
    if (deepest := _depth(bare.translate(None, _NO_BRACKET))) > bounds.depth:
        raise UntrustedData(f"a JSON of depth {deepest}: expected at most {bounds.depth}")
    try:
        value = json.loads(data.decode("utf-8", "replace"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UntrustedData(f"no JSON: {str(error)[:200]}") from error
    return _valid_unicode(value) if _HALF_A_PAIR.search(data) else value


def _depth(brackets: bytes) -> int:
    deepest = now = 0
    for sign in brackets:
        now += 1 if sign in b"[{" else -1
        if now < 0:  # not JSON from here on
            break
        deepest = max(deepest, now)
    return deepest


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _valid_unicode(value: Any) -> Any:
    """``value`` with lone surrogates replaced by U+FFFD. Recursion is limited by the bounds of the parsed text."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_valid_unicode(item) for item in value]
    if isinstance(value, dict):
        return {_valid_unicode(key): _valid_unicode(item) for key, item in value.items()}
    return value


def has_shape(value: Any, shape: Any) -> bool:
    """Whether a parsed JSON value matches ``shape``: a type (exactly, so True is no int), ``[shape]`` for a list of any
    length, a tuple of shapes for a list of that length, a mapping for an object with exactly those keys."""
    if isinstance(shape, type):
        return type(value) is shape
    if isinstance(shape, Mapping):
        named = type(value) is dict and value.keys() == shape.keys()
        return named and all(has_shape(value[key], of) for key, of in shape.items())
    if type(value) is not list:
        return False
    if isinstance(shape, tuple):
        return len(value) == len(shape) and all(map(has_shape, value, shape))
    return all(has_shape(item, shape[0]) for item in value)
