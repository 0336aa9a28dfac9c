"""A solution that is called from outside: loads code of the policy and applies its functions to given arguments.

Runs as a program of the policy, in a process of its own; expected values never come here, arguments come one call at a
time. Whatever this sends is only data to compare: code that takes over this process can send any data, which is no more
than it could have returned. A value that has no plain form (an iterator, a match, an object of the code's own) stays
here and is named by a number.

| order | answer |
|---|---|
| ``code`` | loads it: ``ok`` |
| ``names`` | a dict of those that the code has defined |
| ``function``, ``args``, ``named`` | the value of a call of a name, or of the number of a value that stays here |
| ``about``, ``what``, ``args`` | the value of a question about a value that stays here (see ``_QUESTIONS``) |

``{"raised": NAME}`` where any of it raises.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

_QUESTIONS: dict[str, Callable[..., Any]] = {
    "attribute": getattr,
    "true": bool,
    "length": len,
    "item": lambda value, key: value[key],
    "iterator": iter,
    "some": lambda value, number: list(itertools.islice(value, number)),
    "text": str,
}


class Solution:
    """The code's names, and the values of its that have no plain form."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self._scope: dict[str, Any] = {"__name__": "answer"}
        self._kept: list[Any] = []

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """The answer to one order."""
        try:
            if "code" in order:
                exec(compile(order["code"], "<answer>", "exec", dont_inherit=True), self._scope)
                return {"ok": True}
            args = self._decode(order["args"]) if "args" in order else ()
            if "names" in order:
                value: Any = {name: self._scope[name] for name in order["names"] if name in self._scope}
            elif "function" in order:
                function = order["function"]
                call = self._scope[function] if isinstance(function, str) else self._kept[function]
                value = call(*args, **(self._decode(order["named"]) if "named" in order else {}))
            else:
                value = _QUESTIONS[order["what"]](self._kept[order["about"]], *args)
            return {"value": self._plain.encode(value, keep=self._keep)}
        except BaseException as error:  # a solution may raise anything, SystemExit too
            return {"raised": type(error).__name__}

    def _decode(self, encoded: Any) -> Any:
        return self._plain.decode(encoded, kept=self._kept.__getitem__)

    def _keep(self, value: Any) -> list[Any]:
        self._kept.append(value)
        return ["kept", len(self._kept) - 1]


def serve(plain: Any, channel: Any) -> None:
    """Answer orders until there is nothing more."""
    line, solution = channel.Channel(), Solution(plain)
    said: dict[str, Any] = {"ok": True}
    while True:
        try:
            order = line.exchange(said)
        except EOFError:
            return
        said = solution.answer(order)
