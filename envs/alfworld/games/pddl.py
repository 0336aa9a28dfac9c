"""A parser of PDDL text into nested lists of words; knows none of ALFWorld's predicates."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

_COMMENTS = re.compile(r";[^\n]*")


def parse_pddl(text: str) -> Any:
    """Parse the first s-expression into nested lists of lower-case words. Raises ValueError for unbalanced brackets."""
    stack: list[list[Any]] = [[]]
    for word in _COMMENTS.sub("", text.lower()).replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            stack.append([])
        elif word == ")":
            if len(stack) == 1:
                raise ValueError("PDDL: a ) without its (")
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    if len(stack) != 1 or not stack[0] or not isinstance(stack[0][0], list):
        raise ValueError("PDDL: brackets do not match, or there are none")
    return stack[0][0]


def declared(words: Sequence[str]) -> dict[str, list[str]]:
    """Parse a typed PDDL list, ``a b - t c - u``, into a dict from type to names: ``{t: [a, b], u: [c]}``."""
    by_type: dict[str, list[str]] = defaultdict(list)
    names: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-":
            by_type[next(rest, "")] += names
            names = []
        else:
            names.append(word)
    return by_type


def atoms(expression: Any) -> Iterator[list[str]]:
    """Yield the atoms (predicates with arguments) of a formula of and, or, not and exists, from left to right."""
    if not expression:
        return
    if expression[0] == "exists":
        yield from atoms(expression[2])
    elif expression[0] in ("and", "or", "not"):
        for part in expression[1:]:
            yield from atoms(part)
    else:
        yield expression
