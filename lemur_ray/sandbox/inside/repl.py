"""A Python that runs one cell after another and shows what IPython 8.12 would: output, ``Out[n]``, tracebacks.

Runs as a program of the policy: its text is handed to a plain interpreter, so this file uses nothing but the standard
library and stands alone with ``look.py`` (how values and errors look). Everything it prints is the policy's; nothing of
it is trusted. Messages on descriptor 9: four bytes of length, then JSON ``{"code", "time_s"}``, then the word of the
step, which is told back on descriptor 8.
"""

from __future__ import annotations

import ast
import builtins
import json
import linecache
import os
import signal
import sys
import types
from typing import Any

ORDERS_FD, REPORT_FD = 9, 8
QUIT = (SystemExit,)


class Interpreter:
    """One namespace ``__main__`` with IPython's In, Out, _, __, ___ in it."""

    def __init__(self, look: Any) -> None:
        self.look = look
        self.count = 0
        self.main = types.ModuleType("__main__")
        self.main.__dict__.update(In=[""], Out={}, _="", __="", ___="", __builtins__=builtins)
        sys.modules["__main__"] = self.main

    def run(self, code: str, time_s: float) -> int:
        """Run a cell; 0 if it came through, 1 if it raised. What it shows goes to standard output."""
        self.count += 1
        name = f"<cell {self.count}>"
        scope = self.main.__dict__
        scope["In"].append(code)
        scope[f"_i{self.count}"] = code
        code = self.look.translated(code)
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        signal.signal(signal.SIGALRM, _too_late(time_s))
        signal.setitimer(signal.ITIMER_REAL, time_s)
        try:
            self._execute(code, name)
            return 0
        except QUIT as error:
            text = f"An exception has occurred, use %tb to see the full traceback.\n\n{type(error).__name__}: {error}"
            print(text.rstrip(": "))
            return 1
        except BaseException as error:  # whatever a cell raises is shown, as IPython does
            signal.setitimer(signal.ITIMER_REAL, 0)
            print(self.look.error_text(error, name))
            return 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.stdout.flush()

    def _execute(self, code: str, name: str) -> None:
        tree = ast.parse(code, name)
        shown = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not self.look.silenced(code):
            shown = tree.body.pop()
        scope = self.main.__dict__
        if tree.body:
            exec(compile(tree, name, "exec", dont_inherit=True), scope)
        if shown is not None:
            assert isinstance(shown, ast.Expr)
            self._show(eval(compile(ast.Expression(shown.value), name, "eval", dont_inherit=True), scope))

    def _show(self, value: object) -> None:
        if value is None:
            return
        scope = self.main.__dict__
        scope["___"], scope["__"], scope["_"] = scope["__"], scope["_"], value
        scope["Out"][self.count] = scope[f"_{self.count}"] = value
        text = self.look.value_text(value)
        print(f"Out[{self.count}]: " + ("\n" if "\n" in text else "") + text)


def _too_late(time_s: float) -> Any:
    def strike(number: int, frame: object) -> None:
        raise TimeoutError(f"Timed out after {time_s:g} seconds.")

    return strike


def _exactly(size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        more = os.read(ORDERS_FD, size - len(parts))
        if not more:
            raise EOFError
        parts += more
    return parts


def serve(look: Any) -> None:
    """Run cells until there are no more."""
    # Programs that a cell starts must not hold the channel.
    os.set_inheritable(ORDERS_FD, False)
    os.set_inheritable(REPORT_FD, False)
    sys.stderr = sys.stdout
    interpreter = Interpreter(look)
    status = 0
    while True:
        word = bytearray()
        while (letter := os.read(ORDERS_FD, 1)) != b"\n":
            if not letter:
                return
            word += letter
        os.write(REPORT_FD, bytes(word) + b" %d\n" % status)
        try:
            size = int.from_bytes(_exactly(4), "big")
            order = json.loads(_exactly(size))
        except EOFError:
            return
        status = interpreter.run(order["code"], order["time_s"])
