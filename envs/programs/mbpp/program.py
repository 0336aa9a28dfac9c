"""Turns a reply to an MBPP task into a program, and grades it."""

import re
from collections.abc import Mapping
from typing import Any

from envs.programs.code_in_replies import python_in
from envs.programs.sandboxed_tests import graded, parsed_or_none, run_of
from lemur_ray.benchmarks.question import FLEXIBLE, STRICT, Graded, cut_at
from lemur_ray.grading.names_in_tests import names_used

TIME_S = 10.0


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the program of a reply, leniently read, passes the tests in ``options["reference"]``, in sandboxes,
    else 0. ``scores``: by each way to read it. Raises SandboxDestroyed if the machine ended a sandbox."""
    asked = options["reference"]
    tests = "\n".join(asked["tests"]) + "\n"
    completion = cut_at(reply.rpartition("[PYTHON]")[2].rpartition("[BEGIN]")[2], ("\n[DONE]", "[/PYTHON]"))
    names = "|".join(map(re.escape, names_used(tests, asked["setup"]).of_solution))
    flexible = python_in(completion, rf"^(?:(?:async\s+)?def|class)\s+(?:{names})\b" if names else "")
    return graded(
        {STRICT: parsed_or_none(completion), FLEXIBLE: flexible},
        FLEXIBLE,
        lambda program: run_of(_with_setup(program, asked["setup"]), tests, options.get("backend", "bwrap"), TIME_S),
        reply,
    )


def _with_setup(program: str, setup: str) -> str:
    """The program with the task's setup code: before it if that code defines or imports something, else after it,
    because it makes values of classes that the program defines."""
    if not setup:
        return f"{program}\n"
    defines = re.search(r"^(class|def|import|from)\b", setup, re.MULTILINE)
    return f"{setup}\n{program}\n" if defines else f"{program}\n{setup}\n"
