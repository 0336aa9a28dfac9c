"""Loads a solution, the policy's code, and calls its functions with given arguments.

Runs as a program of the policy in its own process; expected values never reach it, and arguments arrive one call at a
time. Answers are only data to compare: code that takes over this process can send any data, which is no more than it
could have returned. A value without a plain form (an iterator, an object of the code's own classes) stays here and is
referred to by a number.

| order | answer |
|---|---|
| ``code`` | ``ok`` once the code is loaded |
| ``names`` | a dict of the names that the code has defined |
| ``function``, ``args``, ``named`` | the result of calling a name, or the number of a kept value |
| ``about``, ``what``, ``args`` | the result of a query of a kept value (see ``_QUESTIONS``) |

The answer is ``{"raised": NAME}`` if the order raises an exception."""

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
    """The namespace of the loaded code, and the values of it that later orders may refer to by number."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self._scope: dict[str, Any] = {"__name__": "answer"}
        self._kept: list[Any] = []

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Execute one order of the module's table and return its answer. An exception, also from the solution's code,
        becomes ``{"raised": NAME}``."""
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
    """Answer orders until the session ends. Arguments: the modules ``plain_values`` and ``channel``."""
    channel.Channel().serve(Solution(plain).answer)
