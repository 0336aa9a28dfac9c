"""A Python loop over cells that prints what IPython 8.12 would: output, ``Out[n]``, tracebacks.

Runs as a program of the policy in a plain interpreter, so this file uses the standard library and the modules sent with
it alone (``ipython_text.py``, ``channel.py``, ``harness_functions.py``). Its output is untrusted.

| order | effect |
|---|---|
| ``code``, ``time_s`` | runs the cell: output on standard output as it arrives, status as ``Interpreter.run`` returns |
| ``functions`` | from now on cells may call these functions, and the output is the answer: ``{"out": text}`` |"""

from __future__ import annotations

import ast
import builtins
import linecache
import signal
import sys
import types
from typing import Any

QUIT = (SystemExit,)
RAISED, LATE = 1, 2
"""Statuses of a cell that raised, and of one that raised after its time was over."""


class Interpreter:
    """Runs cells of Python code in one namespace ``__main__``, which has IPython's In, Out, _, __ and ___.
    ``ipython_text``: the module beside this one, which the harness loads and passes."""

    def __init__(self, ipython_text: Any) -> None:
        self.ipython_text = ipython_text
        self.count = 0
        self.main = types.ModuleType("__main__")
        self.main.__dict__.update(In=[""], Out={}, _="", __="", ___="", __builtins__=builtins)
        sys.modules["__main__"] = self.main

    def run(self, code: str, time_s: float) -> int:
        """Run a cell and print its output as IPython does: the value of its last expression, or a traceback. After
        ``time_s`` seconds SIGALRM raises TimeoutError in it. Returns 0, RAISED (an exception) or LATE (time is up)."""
        self.count += 1
        name = f"<cell {self.count}>"
        scope = self.main.__dict__
        scope["In"].append(code)
        scope[f"_i{self.count}"] = code
        code = self.ipython_text.translated(code)
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        alarm = _Alarm(time_s)
        signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, time_s)
        try:
            self._execute(code, name)
            return 0
        except QUIT as error:
            text = f"An exception has occurred, use %tb to see the full traceback.\n\n{type(error).__name__}: {error}"
            print(text.rstrip(": "))
            return LATE if alarm.rang else RAISED
        except BaseException as error:  # whatever a cell raises is shown, as IPython does
            signal.setitimer(signal.ITIMER_REAL, 0)
            print(self.ipython_text.error_text(error, name))
            return LATE if alarm.rang else RAISED
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.stdout.flush()

    def _execute(self, code: str, name: str) -> None:
        tree = ast.parse(code, name)
        shown = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not self.ipython_text.silenced(code):
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
        text = self.ipython_text.value_text(value)
        print(f"Out[{self.count}]: " + ("\n" if "\n" in text else "") + text)


class _Alarm:
    """The handler of SIGALRM: raises TimeoutError in the cell and records that it did."""

    def __init__(self, time_s: float) -> None:
        self._time_s = time_s
        self.rang = False

    def __call__(self, number: int, frame: object) -> None:
        self.rang = True
        raise TimeoutError(f"Timed out after {self._time_s:g} seconds.")


def serve(ipython_text: Any, channel: Any, harness_functions: Any) -> None:
    """Run the cells that the harness sends, until the session ends. Arguments: the modules of these names."""
    line, interpreter = channel.Channel(speaks=False), Interpreter(ipython_text)
    sys.stderr = sys.stdout
    answer: dict[str, Any] | None = None
    cells, status = None, 0
    while True:
        try:
            order = line.exchange(answer, status)
        except EOFError:
            return
        if "functions" in order:
            cells = harness_functions.TextCells(line, interpreter, order["functions"])
        if cells is None:
            status = interpreter.run(order["code"], order["time_s"])
        else:  # an answer to a call that no cell waits for any more is ignored
            answer = {"out": cells.run(order["code"], order["time_s"]) if "code" in order else ""}
