"""Does a solution pass its tests: the solution in one sandbox, the tests in another, plain data between them.

The tests run as they are, in a process with no code of the policy in it; what they call is called in the solution's
process, where no test and no expected value ever comes. So nothing that a solution does to its interpreter, to
equality, to builtins or to its own exit makes a test pass. Verdicts on honest programs are meant to be those of one
shared interpreter, as in mint-bench 3f7f12c (HumanEval, MBPP); recorded runs are the proof. Knows no benchmark.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from lemur_ray.sandbox.answers import Answer, AnswerProcess
from lemur_ray.sandbox.programs import Program
from lemur_ray.sandbox.sandbox import Sandbox, SandboxDestroyed

TIME_S = 10.0
PATIENCE = 3.0
"""A solution has ``TIME_S`` of processor time, however busy the machine is, and at most so many times of wall time."""
HASH_SEED = "0"
"""PYTHONHASHSEED of graded programs: the order of sets of strings decides some verdicts."""
_ENVIRONMENT = {"PYTHONHASHSEED": HASH_SEED}
_TESTER_S = 60.0


@dataclass(frozen=True)
class TestRun:
    """How a program did. ``note``: why it did not pass; the harness's own words or the name of an exception."""

    __test__ = False  # pytest takes every class whose name begins so for a test

    passed: bool
    timed_out: bool = False
    note: str = ""


def run_tests(solution: str, tests: str, of_solution: Sandbox, of_tests: Sandbox, time_s: float = TIME_S) -> TestRun:
    """Run tests against a solution, each in a sandbox of its own.

    Raises ValueError for tests that are no Python, SandboxDestroyed where the machine and not the solution ended it.
    """
    return run_each(solution, [tests], of_solution, of_tests, time_s)[0]


def run_each(
    solution: str, tests: Sequence[str], of_solution: Sandbox, of_tests: Sandbox, time_s: float = TIME_S
) -> list[TestRun]:
    """Several tests one after another against one loaded solution, ``time_s`` for all. Raises as ``run_tests`` does."""
    names = [names_under_test(test) for test in tests]
    runs: list[TestRun] = []
    answers: AnswerProcess | None = None
    tester: Program | None = None
    try:
        answers = AnswerProcess(of_solution, solution, time_s=PATIENCE * time_s, env=_ENVIRONMENT)
        fault = _fault(answers, answers.loaded, time_s)
        tester = None if fault else Program(of_tests, "tester", time_s=_TESTER_S, env=_ENVIRONMENT)
        for test, used in zip(tests, names, strict=True):
            defined = answers.ask({"names": used})
            found = fault or _fault(answers, defined, time_s)
            if found is None and tester is not None:
                found = _conversation(answers, tester, {"tests": test, "defined": defined.value}, time_s)
            runs.append(found or TestRun(False, note="the tests ended"))
    except SandboxDestroyed as error:
        if error.blame != "policy":
            raise
        runs += [TestRun(False, note=str(error))] * (len(tests) - len(runs))
    finally:
        if answers is not None:
            answers.close()
        if tester is not None:
            tester.close()
    return runs


def _conversation(answers: AnswerProcess, tester: Program, message: dict[str, object], time_s: float) -> TestRun:
    """Carry questions and answers between the two until the tests have ended."""
    while True:
        heard = tester.exchange(message)
        if heard.said is None:
            if heard.blame == "infra":
                raise SandboxDestroyed(f"the machine gave the tests no time: {heard.failure}", "infra")
            return TestRun(False, heard.failure == "timed out", f"the tests: {heard.failure}")
        if "ask" not in heard.said:
            return TestRun(heard.said.get("passed") is True, note=str(heard.said.get("raised", "")))
        answer = answers.ask(heard.said["ask"])
        if answer.failure in _LOST or answers.cpu_s > time_s:
            return _lost(answers, answer, time_s)
        message = {"raised": answer.failure} if answer.failure else {"value": answer.value}


_LOST = ("timed out", "ended", "no answer")


def _fault(answers: AnswerProcess, answer: Answer, time_s: float) -> TestRun | None:
    """The verdict where a solution does not even load; None where it does."""
    if answer.failure in _LOST or answers.cpu_s > time_s:
        return _lost(answers, answer, time_s)
    return TestRun(False, note=answer.failure) if answer.failure else None


def _lost(answers: AnswerProcess, answer: Answer, time_s: float) -> TestRun:
    if answer.blame == "infra":
        raise SandboxDestroyed(f"the machine gave a solution no time: {answer.failure}", "infra")
    timed_out = answer.failure == "timed out" or answers.cpu_s > time_s
    return TestRun(False, timed_out, f"timed out after {time_s:g} s" if timed_out else answer.failure)


def names_under_test(tests: str) -> list[str]:
    """Names that tests use and do not define: those that the solution has to.

    A builtin's name is under test only where nothing else is (MBPP has a function called ``sum``): a solution may not
    replace what its tests compute with. Raises ValueError for tests that are no Python.
    """
    try:
        tree = parsed(tests)
    except SyntaxError as error:
        raise ValueError(f"tests that are no Python, line {error.lineno}: {error.msg}") from error
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            stored |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    free = used - stored
    return sorted(name for name in free if not hasattr(builtins, name)) or sorted(free)


def parsed(code: str) -> ast.Module:
    """The syntax tree of a program; what Python only warns of (``"\\w"``) is the program's own affair.

    Raises SyntaxError, ValueError, RecursionError, MemoryError.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)
