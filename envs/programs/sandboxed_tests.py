"""Runs a Python program and its tests, each in a fresh sandbox without network."""

from __future__ import annotations

from lemur_ray.benchmarks.question import Graded
from lemur_ray.grading.python_tests import TestRun, run_tests
from lemur_ray.sandbox.sandbox import SandboxSpec
from lemur_ray.sandbox.warm_pool import shared_pool

_SOLUTIONS = SandboxSpec(run="program-solutions")
_TESTS = SandboxSpec(run="program-tests")


def run_of(program: str, tests: str, backend: str, time_s: float, setup: str = "") -> TestRun:
    """Run a program's tests. ``setup`` is code that the tests need, which the program cannot replace.

    Raises SandboxDestroyed if the machine ended a sandbox.
    """
    with shared_pool(_SOLUTIONS, backend).one() as of_solution, shared_pool(_TESTS, backend).one() as of_tests:
        return run_tests(program, tests, of_solution, of_tests, time_s, setup)


def graded(run: TestRun, program: str) -> Graded:
    """Grade a test run: score 1.0 if all passed, else 0.0; the program as the answer; the run's note."""
    return Graded(float(run.passed), program, run.note)
