"""Runs a solution on the tests of LiveCodeBench, one process in a sandbox for each test, and compares its output here.

The process gets the input of one test and no expected output, so a solution can only pass by computing it. Rules of
comparison, time limit and the names that solutions may use without an import are those of the published evaluation."""

import ast
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from envs.programs.sandboxed_tests import SOLUTIONS
from lemur_ray.sandbox.backends.python_inside import VERSION
from lemur_ray.sandbox.sandbox import ExecResult, Limits, Sandbox, SandboxDestroyed
from lemur_ray.sandbox.warm_pool import shared_pool

TEST_S = 6.0
"""Seconds for one test, as published"""
TOTAL_S = 45.0
"""Seconds for all tests of a solution, since an environment's step has a limit. The published one is 7 s a test."""
_PATIENCE_S = 20.0
_LIMITS = Limits(
    time_s=TEST_S + 1.0, patience_s=_PATIENCE_S, output_bytes=16 * 2**20, kill_at_bytes=20 * 2**20,
    memory_bytes=4 * 2**30,
)  # fmt: skip
_SPEC = replace(SOLUTIONS, limits=_LIMITS, run="livecodebench")
_STARRED = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
_HOME = "/work"
"""Folder of the sandbox in which commands run"""
_MARK = "\x00result\x00"
_PROGRAM = f"""
import sys
sys.setrecursionlimit(50_000)
names = {{"__name__": "__main__"}}
for module in {_STARRED!r}:
    exec(f"from {{module}} import *", names)
    names[module] = __import__(module)
with open("solution.py", encoding="utf-8") as file:
    code = compile(file.read(), "solution.py", "exec")
try:
    exec(code, names)
    FUNCTION
    import json
    result = called(*map(json.loads, sys.stdin.read().split("\\n")))
    print({_MARK!r} + repr(list(result) if isinstance(result, tuple) else result))
except SystemExit:
    pass
"""
"""Runs the solution with the names that it may use without an import. FUNCTION stands for what finds the function."""


def fault(solution: str, tests: Sequence[Mapping[str, str]], function: str, backend: str) -> str:
    """Why a solution does not pass the tests ({input, output}): the first failing one and what is wrong; empty if it
    passes all. A test may take ``TEST_S`` seconds, all together about ``TOTAL_S``. ``function``: name of the function
    whose calls are tested; empty: the solution reads standard input. ``backend``: of the sandbox. Raises
    SandboxDestroyed if the machine failed."""
    called = f"names['Solution']().{function} if 'Solution' in names else names[{function!r}]"
    program = _PROGRAM.replace("FUNCTION", f"called = {called}" if function else "raise SystemExit")
    until = time.monotonic() + TOTAL_S
    with shared_pool(_SPEC, backend).one() as sandbox:
        for number, test in enumerate(tests, 1):
            if time.monotonic() > until:
                return f"test {number}: the tests took more than {TOTAL_S:g} s"
            if why := _fault_of_test(sandbox, program, solution, test, bool(function)):
                return f"test {number}: {why}"
    return ""


def _fault_of_test(sandbox: Sandbox, program: str, solution: str, test: Mapping[str, str], is_call: bool) -> str:
    try:
        sandbox.write(f"{_HOME}/run.py", program.encode())
        sandbox.write(f"{_HOME}/solution.py", solution.encode("utf-8", "replace"))
        done = sandbox.exec([f"python{VERSION}", f"{_HOME}/run.py"], stdin=test["input"].encode())
    except SandboxDestroyed as error:
        if error.blame != "policy":
            raise
        return str(error)
    if done.blame == "infra":
        raise SandboxDestroyed("the machine gave a solution no time", "infra")
    if why := _ended_badly(done):
        return why
    output = done.stdout.decode("utf-8", "replace")
    right = _is_result(output, test["output"]) if is_call else is_output(output, test["output"])
    return "" if right else f"another answer: {output[-200:]!r}"


def _ended_badly(done: ExecResult) -> str:
    if done.timed_out:
        return f"timed out after {TEST_S:g} s"
    if done.truncated:
        return "too much output"
    if done.exit_code != 0:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"ended with {last[:200] or done.notes or done.exit_code}"
    return ""


def is_output(output: str, expected: str) -> bool:
    """Whether an output has the expected lines: equal without blanks around them, or equal decimal numbers."""
    ours, theirs = ([line.strip() for line in text.strip().split("\n")] for text in (output, expected))
    return len(ours) == len(theirs) and all(a == b or _same_numbers(a, b) for a, b in zip(ours, theirs, strict=True))


def _same_numbers(one: str, other: str) -> bool:
    try:
        return [Decimal(part) for part in one.split()] == [Decimal(part) for part in other.split()]
    except InvalidOperation:  # not numbers, or a signalling NaN
        return False


def _is_result(output: str, expected: str) -> bool:
    """Whether the value after the last mark equals the expected JSON. A much longer text is not read."""
    _, mark, written = output.rpartition(_MARK)
    if len(written) > 10 * len(expected) + 1000:
        return False
    try:
        value: Any = ast.literal_eval(written.strip()) if mark else ...
        return bool(value == json.loads(expected))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return False
