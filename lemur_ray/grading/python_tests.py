"""Runs the tests of a solution: solution and tests in separate sandboxes that exchange plain data.

The tests run unchanged in a process without code of the policy; calls of the solution are forwarded to its process,
which never receives a test or an expected value. A solution therefore cannot pass by changing its interpreter,
equality, builtins or its exit, and supplies only the names under test (``names_in_tests.py``). Verdicts on honest
programs equal those of one shared interpreter, as in mint-bench 3f7f12c (HumanEval, MBPP). Knows no benchmark."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from lemur_ray.grading.names_in_tests import names_used, requested_values
from lemur_ray.sandbox.programs import Failure, Program
from lemur_ray.sandbox.sandbox import Sandbox, SandboxDestroyed
from lemur_ray.sandbox.solution_process import Answer, SolutionProcess

TIME_S = 10.0
PATIENCE = 3.0
"""Wall time of a solution as a multiple of ``TIME_S``, its limit of processor time, for busy machines and sleeps."""
SLACK_S = 5.0
"""Additional seconds for the start of the process and the exchange with it."""
HASH_SEED = "0"
"""PYTHONHASHSEED of graded programs: the order of sets of strings decides some verdicts."""
_PROCESS: dict[str, Any] = {"patience_s": 60.0, "env": {"PYTHONHASHSEED": HASH_SEED}}
"""Options of both processes. ``patience_s``: extra wall seconds on an overloaded machine. A solution that then has had
less than its processor time, and was ready to run most of the rest, was starved."""
_TESTER_S = 10.0
"""Seconds for all tests of one solution, whose values may be hostile: an endless ``range``, a number that takes an hour
to print."""

_HARNESS_S = 10.0
"""Seconds of this thread's processor time for forwarding calls and results, which neither side's own limits cover. Not
of wall time, so that a busy machine ends no exchange."""


@dataclass(frozen=True)
class TestRun:
    """Result of a test run. ``note``: reason of a failure (message, or name of an exception), else empty."""

    __test__ = False  # pytest takes every class whose name begins so for a test

    passed: bool
    timed_out: bool = False
    note: str = ""


def run_tests(
    solution: str, tests: str, of_solution: Sandbox, of_tests: Sandbox, time_s: float = TIME_S, setup: str = ""
) -> TestRun:
    """Run tests (Python code that raises on failure) against a solution, each in a sandbox of its own. ``time_s``:
    processor seconds of the solution. ``setup``: code of the task that runs before the tests; its definitions are never
    taken from the solution. Raises ValueError for tests or setup that are not Python, SandboxDestroyed if the machine,
    not the solution, ended a sandbox or gave it no time."""
    return run_each(solution, [tests], of_solution, of_tests, time_s, setup)[0]


def run_each(
    solution: str,
    tests: Sequence[str],
    of_solution: Sandbox,
    of_tests: Sandbox,
    time_s: float = TIME_S,
    setup: str = "",
) -> list[TestRun]:
    """Run several tests one after another against one loaded solution; returns one result each. ``time_s``: processor
    seconds of the solution for all. The other arguments and the errors are those of ``run_tests``."""
    names = [names_used(test, setup) for test in tests]
    runs: list[TestRun] = []
    until_cpu_s, wall_s = time.thread_time() + _HARNESS_S, PATIENCE * time_s
    with ExitStack() as stack:
        try:
            process = SolutionProcess(
                of_solution, solution, time_s=wall_s, total_s=wall_s + SLACK_S, allowed_cpu_s=time_s, **_PROCESS
            )
            stack.callback(process.close)
            if fault := _fault(process, process.loaded, time_s):
                return [fault] * len(tests)
            tester = Program(
                of_tests, "tester", time_s=_TESTER_S, total_s=_TESTER_S, allowed_cpu_s=_TESTER_S, **_PROCESS
            )
            stack.callback(tester.close)
            for test, used in zip(tests, names, strict=True):
                defined = process.ask({"names": used.asked})
                if (run := _fault(process, defined, time_s)) is None:
                    values = requested_values(defined.value, used.asked)
                    order: dict[str, Any] = {"tests": test, "setup": setup}
                    order |= {"defined": {name: value for name, value in values.items() if name in used.of_solution}}
                    order |= {"modules": {name: of for name, of in used.modules.items() if name in values}}
                    run = _run_test(process, tester, order, time_s, until_cpu_s)
                runs.append(run)
        except SandboxDestroyed as error:
            if error.blame != "policy":
                raise
            runs += [TestRun(False, note=str(error))] * (len(tests) - len(runs))
    return runs


def _run_test(
    process: SolutionProcess, tester: Program, message: dict[str, Any], time_s: float, until_cpu_s: float
) -> TestRun:
    """Forward calls and results between the two processes until the tests end, or this thread's time is over."""
    while True:
        if time.thread_time() > until_cpu_s:
            return TestRun(False, True, "the tests: timed out")
        reply = tester.exchange(message)
        if reply.message is None:
            if reply.blame == "infra":
                raise SandboxDestroyed(f"the machine gave the tests no time: {reply.failure}", "infra")
            return TestRun(False, reply.failure is Failure.TIMED_OUT, f"the tests: {reply.failure}")
        if "ask" not in reply.message:
            return TestRun(reply.message.get("passed") is True, note=str(reply.message.get("raised", "")))
        answer = process.ask(reply.message["ask"])
        if answer.failure or process.cpu_s > time_s:
            return _lost(process, answer, time_s)
        message = {"raised": answer.raised} if answer.raised else {"value": answer.value}


def _fault(process: SolutionProcess, answer: Answer, time_s: float) -> TestRun | None:
    """The result for a solution that failed to load or answer; None if it did not fail."""
    if answer.failure or process.cpu_s > time_s:
        return _lost(process, answer, time_s)
    return TestRun(False, note=answer.raised) if answer.raised else None


def _lost(process: SolutionProcess, answer: Answer, time_s: float) -> TestRun:
    if answer.blame == "infra":
        raise SandboxDestroyed(f"the machine gave a solution no time: {answer.failure}", "infra")
    timed_out = answer.failure is Failure.TIMED_OUT or process.cpu_s > time_s
    return TestRun(False, timed_out, f"timed out after {time_s:g} s" if timed_out else answer.fault)
