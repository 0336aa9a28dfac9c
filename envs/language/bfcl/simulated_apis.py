"""The simulated APIs of a BFCL multi-turn task and their published checks, in a process of their own for each episode.

The classes are those of the package bfcl-eval; verdicts follow its ``multi_turn_checker`` (2026.3.23).
``SimulatedApis`` starts this file as a program: a call that never ends, or one that changes what its library shares
between tasks (the precision of mpmath), then concerns one episode alone.
"""

import ast
import contextlib
import inspect
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from importlib import import_module
from typing import Any

from lemur_ray.host.json_process import START_S, JsonProcess, ProcessEnded, open_channel

CALLS_S = 20.0
"""Time limit of the calls of one reply, in seconds"""
_MOST_CHARACTERS = 10_000_000
"""Limit of the text of one result"""
WrittenCall = tuple[str, Sequence[Any], Mapping[str, Any]]
"""Name, positional and named arguments of a call"""


class SimulatedApis(JsonProcess):
    """The simulated APIs of one BFCL task, in a process of their own. ``task``: entries ``classes`` (name -> module),
    stateless ones, ``initial_config`` and ``long_context``. Raises RuntimeError if they do not start."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        super().__init__(__file__, "the simulated APIs")
        try:
            fault = self.ask(dict(task), START_S)
        except ProcessEnded as error:
            fault = str(error)
        if fault:
            self.close()
            raise RuntimeError(f"the simulated APIs of bfcl-eval do not start: {fault}")

    def call(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
        """Results of a model's calls (name, arguments), in their order. Raises ProcessEnded if their process ends or
        does not answer in time."""
        results: list[str] = self.ask({"calls": [(name, (), arguments) for name, arguments in calls]}, CALLS_S)
        return results

    def fault_of_turn(self, gold: Sequence[WrittenCall]) -> str:
        """Run a turn's gold calls on instances of their own, and return why the model's turn fails (no call, another
        state, or a gold result that none of its calls so far had); empty if it passes, or if ``gold`` is empty. Call
        once a turn, in order. Raises ProcessEnded if their process ends or does not answer in time."""
        return str(self.ask({"gold": list(gold)}, CALLS_S))


def written_call(text: str) -> WrittenCall:
    """Parse a gold call as the data writes it, ``name(1, key='value')``. Raises ValueError for anything else."""
    call = ast.parse(text.strip(), mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{text!r} is no call with literal arguments")
    positional = [ast.literal_eval(one) for one in call.args]
    return call.func.id, positional, {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}


class _Instances:
    """One instance of each class of a task, and their public methods by name."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        self.by_class: dict[str, Any] = {}
        self._methods: dict[str, Any] = {}
        for name, module in task["classes"].items():
            instance = self.by_class[name] = getattr(import_module(module), name)()
            if name not in task["stateless"]:
                config = deepcopy(task["initial_config"].get(name, {}))
                instance._load_scenario(config, long_context=task["long_context"])
            methods = inspect.getmembers(instance, inspect.ismethod)
            self._methods |= {name: method for name, method in methods if not name.startswith("_")}

    def call(self, call: WrittenCall) -> str:
        name, positional, named = call
        try:
            if name not in self._methods:
                raise NameError(f"name '{name}' is not defined")
            return _shown(self._methods[name](*positional, **named))[:_MOST_CHARACTERS]
        except Exception as error:  # any error of a call is its result
            return f"Error during execution: {error}"


def _shown(result: Any) -> str:
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        with contextlib.suppress(Exception):
            return json.dumps(result)
    return str(result)


class _Episode:
    """The model's instances and those of the gold calls."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        self._model, self._gold = _Instances(task), _Instances(task)
        self._results: list[str] = []
        self._has_called = False

    def call(self, calls: Sequence[WrittenCall]) -> list[str]:
        results = [self._model.call(call) for call in calls]
        self._results += results
        self._has_called |= bool(calls)
        return results

    def fault_of_turn(self, gold: Sequence[WrittenCall]) -> str:
        expected = [self._gold.call(call) for call in gold]
        called, self._has_called = self._has_called, False
        if not gold:
            return ""
        if not called:
            return "no function was called"
        for name, instance in self._gold.by_class.items():
            for field, value in vars(instance).items():
                if not field.startswith("_") and getattr(self._model.by_class[name], field, ...) != value:
                    return f"the state of {name} differs: {field}"
        missing = Counter(expected) - Counter(self._results)
        return f"no call had the result {next(iter(missing))[:300]}" if missing else ""


def _serve() -> None:
    """Answer requests, of which the first is the task."""
    requests, send = open_channel()
    episode: _Episode | None = None
    for request in requests:
        answer: Any = None
        if episode is None:
            try:
                episode = _Episode(request)
            except Exception as error:  # a missing package, a class that is not there
                answer = f"{type(error).__name__}: {error}"
        elif "calls" in request:
            answer = episode.call(request["calls"])
        else:
            answer = episode.fault_of_turn(request["gold"])
        send(answer)


if __name__ == "__main__":
    _serve()
