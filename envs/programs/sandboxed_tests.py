"""Runs a Python program and its tests, each in a fresh sandbox without network."""

from collections.abc import Callable, Mapping

from envs.programs.code_in_replies import can_be_parsed
from lemur_ray.benchmarks.question import Graded
from lemur_ray.grading.python_tests import TestRun, run_tests
from lemur_ray.sandbox.python_repl import own_packages
from lemur_ray.sandbox.sandbox import SandboxSpec
from lemur_ray.sandbox.warm_pool import shared_pool

_NUMPY = {
    f"{place}/{name}": folder / name
    for place, folder in own_packages().items()
    for name in ("numpy", "numpy.libs")
    if (folder / name).is_dir()
}
SOLUTIONS = SandboxSpec(mounts=_NUMPY, env={"PYTHONPATH": ":".join(own_packages())}, run="program-solutions")
"""Solutions can import NumPy, as in HumanEval's first runs."""
_TESTS = SandboxSpec(run="program-tests")


def run_of(program: str, tests: str, backend: str, time_s: float, setup: str = "") -> TestRun:
    """Run ``tests`` (Python code that raises on failure) against ``program``, each in a fresh sandbox of ``backend``.
    ``time_s``: processor seconds of the program; ``setup``: code that the tests need and the program cannot replace.
    Raises SandboxDestroyed if the machine ended a sandbox."""
    with shared_pool(SOLUTIONS, backend).one() as of_solution, shared_pool(_TESTS, backend).one() as of_tests:
        return run_tests(program, tests, of_solution, of_tests, time_s, setup)


def graded(readings: Mapping[str, str | None], headline: str, run: Callable[[str], TestRun], reply: str) -> Graded:
    """Grade every reading of a reply. ``readings``: name of a reading -> program, or None if it finds none (score 0).
    ``run`` runs the tests of a program, once for equal programs. Score 1.0 if all tests pass; the grade's score is that
    of reading ``headline``, its ``scores`` has all of them."""
    runs: dict[str | None, TestRun] = {None: TestRun(False, note="no program")}
    if not reply.strip():
        runs |= dict.fromkeys(readings.values(), TestRun(False, note="an empty reply never scores"))
    for program in readings.values():
        if program not in runs:
            runs[program] = run(program or "")
    scores = {name: float(runs[program].passed) for name, program in readings.items()}
    return Graded(scores[headline], readings[headline], runs[readings[headline]].note, scores)


def parsed_or_none(program: str) -> str | None:
    """``program`` unchanged; None if it does not parse as Python."""
    return program if can_be_parsed(program) else None
