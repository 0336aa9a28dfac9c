"""Grading without sharing a process: the answer runs in a sandbox and is called, the grader compares plain data here.

The answer's process never sees expected values, tests or the grader; what it sends is parsed as JSON, decoded by exact
type and compared by this module alone. Exit codes and printed words mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lemur_ray.sandbox.inside import plain
from lemur_ray.sandbox.programs import Program
from lemur_ray.sandbox.sandbox import Blame, Sandbox

NUMBERS = ("bool", "int", "float", "Decimal", "Fraction", "complex")
_KINDS = {"frozenset": "set", **dict.fromkeys(("dict", "Counter", "OrderedDict", "defaultdict"), "dict")}
"""Kinds that may equal each other -> the kind they are compared as."""


@dataclass(frozen=True)
class Answer:
    """What a call came to: ``value`` (encoded, see ``inside/plain.py``), or why there is none."""

    value: list[Any] | None
    failure: str = ""
    """Empty, the name of the exception, "timed out", "ended" or "no answer"."""
    blame: Blame | None = None
    """Whose doing a lost answer was, where the sandbox knows."""


class AnswerProcess:
    """Code of the policy, loaded in a process of its own in ``sandbox``.

    ``time_s``: wall time of one order; ``total_s``: of all together, else unbounded.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        code: str,
        *,
        time_s: float = 10.0,
        total_s: float = math.inf,
        env: Mapping[str, str] | None = None,
    ):
        self._program = Program(sandbox, "answerer", time_s=time_s, total_s=total_s, env=env)
        self.loaded = self.ask({"code": code})

    @property
    def cpu_s(self) -> float:
        """Processor seconds of the process and its children so far."""
        return self._program.cpu_s

    @property
    def wall_s(self) -> float:
        """Seconds it was waited for so far."""
        return self._program.wall_s

    def call(self, function: str, args: Sequence[object] = ()) -> Answer:
        """Apply a function to plain arguments; what the answer's code did before stays, as in one process."""
        return self.ask({"function": function, "args": plain.encode(tuple(args))})

    def ask(self, order: Mapping[str, Any]) -> Answer:
        """The answer to an order (``inside/answerer.py`` lists them)."""
        heard = self._program.exchange(order)
        if heard.said is None:
            return Answer(None, heard.failure, heard.blame)
        if "raised" in heard.said:
            return Answer(None, str(heard.said["raised"])[:200])
        return Answer(heard.said.get("value"))

    def close(self) -> None:
        self._program.close()


def same(expected: object, got: list[Any] | None, *, rel: float = 0.0, absolute: float = 0.0) -> bool:
    """Whether an encoded value equals ``expected`` as ``==`` would have it for honest values of known types.

    Numbers of different kinds are compared by value (``rel``, ``absolute`` as in math.isclose); lists, tuples, sets,
    arrays and tables are different kinds. NaN equals nothing, an unknown kind equals nothing.
    """
    return got is not None and _same(plain.encode(expected), got, rel, absolute)


def _same(a: Any, b: Any, rel: float, absolute: float) -> bool:
    if type(b) is not list or len(b) != 2 or "unknown" in (a[0], b[0]):
        return False
    if a[0] in NUMBERS and b[0] in NUMBERS:
        return _close(a, b, rel, absolute)
    if _KINDS.get(a[0], a[0]) != _KINDS.get(b[0], b[0]):
        return False
    if a[0] in ("set", "frozenset"):
        return _matched(a[1], b[1], rel, absolute)
    if _KINDS.get(a[0]) == "dict":
        return _matched([["list", p] for p in a[1]], [["list", p] for p in b[1]], rel, absolute)
    if a[0] in ("list", "tuple", "deque", "range"):
        return _rows(a[1], b[1], rel, absolute)
    if a[0] == "ndarray":
        return type(b[1]) is list and len(b[1]) == 2 and a[1][0] == b[1][0] and _same(a[1][1], b[1][1], rel, absolute)
    if a[0] == "dataframe":
        return _rows(a[1], b[1], rel, absolute)
    if a[0] == "series":
        return _same(a[1], b[1], rel, absolute)
    return type(a[1]) is type(b[1]) and a[1] == b[1]


def _rows(a: Any, b: Any, rel: float, absolute: float) -> bool:
    return type(b) is list and len(a) == len(b) and all(_same(x, y, rel, absolute) for x, y in zip(a, b, strict=True))


def _matched(a: Any, b: Any, rel: float, absolute: float) -> bool:
    """Whether the items of both can be paired, each once."""
    if type(b) is not list or len(a) != len(b):
        return False
    left = list(b)
    for item in a:
        found = next((i for i, other in enumerate(left) if _same(item, other, rel, absolute)), None)
        if found is None:
            return False
        del left[found]
    return True


def _close(a: Any, b: Any, rel: float, absolute: float) -> bool:
    try:
        x, y = plain.decode(a), plain.decode(b)
        if x == y:
            return True
        return bool(rel or absolute) and math.isclose(float(x), float(y), rel_tol=rel, abs_tol=absolute)
    except (plain.NotPlain, TypeError, ValueError, ArithmeticError):
        return False
