"""Tests that run beside nothing: what they call lives in another process, and only plain data comes back from there.

Runs in a sandbox of its own with no code of the policy in it, so its verdict can be believed. A name that the answer
defined is a value here, or an ``Absent``: a stand-in that asks for everything it is asked. A stand-in equals only
itself, so no ``__eq__`` of the answer's has a say.
"""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Iterator
from typing import Any


class AnswerRaised(Exception):
    """The answer raised what has no name here."""


class Absent:
    """A value of the answer's process. Not comparable, not an instance of anything."""

    __slots__ = ("_ask", "_number")

    def __init__(self, ask: Any, number: int | str) -> None:
        self._ask, self._number = ask, number

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._ask({"function": self._number}, args, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._question("attribute", name)

    def __bool__(self) -> bool:
        return bool(self._question("true"))

    def __len__(self) -> int:
        return int(self._question("length"))

    def __getitem__(self, key: Any) -> Any:
        return self._question("item", key)

    def __str__(self) -> str:
        return str(self._question("text"))

    def __iter__(self) -> Iterator[Any]:
        iterator = self._question("iterator")
        number = 1
        while True:
            found = iterator._question("some", number)
            yield from found
            if len(found) < number:
                return
            number = min(2 * number, 1024)

    def _question(self, what: str, *args: Any) -> Any:
        return self._ask({"about": self._number, "what": what}, args, {})


class Tests:
    """Runs tests; ``channel`` leads to the answer."""

    def __init__(self, plain: Any, channel: Any) -> None:
        self._plain, self._channel = plain, channel

    def run(self, tests: str, defined: dict[str, Any], modules: dict[str, str], setup: str) -> dict[str, Any]:
        """``defined``: encoded values of the names under test. ``modules``: name -> module that it stands for.

        ``setup`` is the task's own and comes before the tests.
        """
        try:
            scope: dict[str, Any] = {name: self._decode(value) for name, value in defined.items()}
            scope |= {name: importlib.import_module(module) for name, module in modules.items()}
            scope["__name__"] = "tests"
            exec(compile(setup, "<setup>", "exec", dont_inherit=True), scope)
            exec(compile(tests, "<tests>", "exec", dont_inherit=True), scope)
        except BaseException as error:  # a test fails by raising anything
            return {"passed": False, "raised": f"{type(error).__name__}: {error}"[:200]}
        return {"passed": True}

    def _ask(self, order: dict[str, Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        whole = {**order, "args": self._encode(args), **({"named": self._encode(named)} if named else {})}
        answer = self._channel.exchange({"ask": whole})
        if "value" in answer:
            return self._decode(answer["value"])
        kind = getattr(builtins, str(answer.get("raised")), None)
        error: type[Exception] = AnswerRaised
        if isinstance(kind, type) and issubclass(kind, Exception):
            error = kind
        raise error(str(answer.get("raised", "nothing")))

    def _encode(self, value: Any) -> Any:
        return self._plain.encode(value, keep=_number_of)

    def _decode(self, encoded: Any) -> Any:
        return self._plain.decode(encoded, kept=lambda number: Absent(self._ask, number))


def _number_of(value: Any) -> list[Any]:
    if type(value) is not Absent:
        raise TypeError(f"a {type(value).__name__} cannot be handed over to the answer")
    return ["kept", value._number]


def serve(plain: Any, channel: Any) -> None:
    """Run one set of tests after another until there is nothing more."""
    line = channel.Channel()
    said: dict[str, Any] = {"ok": True}
    while True:
        try:
            order = line.exchange(said)
        except EOFError:
            return
        said = Tests(plain, line).run(order["tests"], order["defined"], order["modules"], order["setup"])
