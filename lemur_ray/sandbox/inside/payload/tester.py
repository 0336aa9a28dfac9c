"""Runs tests whose subject, the solution, lives in another process; only plain data comes back from there.

Runs in a sandbox without code of the policy, so its verdict can be trusted. A name that the solution defined is a plain
value here, or an ``Absent``: a proxy that forwards every operation. A proxy equals only itself, so an ``__eq__`` of the
solution has no effect."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Iterator
from typing import Any


class AnswerRaised(Exception):
    """Raised in the tests if the solution raised an exception that is no builtin; the message is its name."""


class Absent:
    """Proxy of an object in the solution's process: attribute access, calls, indexing, iteration, ``len``, ``bool`` and
    ``str`` are forwarded. It equals only itself."""

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
            items = iterator._question("some", number)
            yield from items
            if len(items) < number:
                return
            number = min(2 * number, 1024)

    def _question(self, what: str, *args: Any) -> Any:
        return self._ask({"about": self._number, "what": what}, args, {})


class Tests:
    """Runs tests of a solution that lives in another process; ``channel`` forwards calls of its functions. ``plain``:
    the module ``plain_values``."""

    def __init__(self, plain: Any, channel: Any) -> None:
        self._plain, self._channel = plain, channel

    def run(self, tests: str, defined: dict[str, Any], modules: dict[str, str], setup: str) -> dict[str, Any]:
        """Execute the source ``setup`` (the task's own code), then the source ``tests``, in one scope. ``defined``:
        name -> encoded value, for names of the solution; ``modules``: name -> module to import under that name. Returns
        ``{"passed": True, "word": TEXT}``, where TEXT is the variable ``final_word`` that the tests may set (64
        characters, else empty), or ``{"passed": False, "raised": "NAME: message"}`` if anything raised."""
        try:
            scope: dict[str, Any] = {name: self._decode(value) for name, value in defined.items()}
            scope |= {name: importlib.import_module(module) for name, module in modules.items()}
            scope["__name__"] = "tests"
            exec(compile(setup, "<setup>", "exec", dont_inherit=True), scope)
            exec(compile(tests, "<tests>", "exec", dont_inherit=True), scope)
        except BaseException as error:  # a test fails by raising anything
            return {"passed": False, "raised": f"{type(error).__name__}: {error}"[:200]}
        return {"passed": True, "word": str(scope.get("final_word", ""))[:64]}

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
    """For each order of the harness, run its tests and answer as ``Tests.run``, until the session ends. Arguments: the
    modules ``plain_values`` and ``channel``."""
    line = channel.Channel()
    line.serve(lambda order: Tests(plain, line).run(**order))
