"""Turns a reply to a HumanEval prompt into a program, and grades it."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from envs.programs.code_in_replies import python_in
from envs.programs.sandboxed_tests import graded, parsed_or_none, run_of
from lemur_ray.benchmarks.question import FLEXIBLE, RELEASED, STRICT, Graded, continues_prompt
from lemur_ray.grading.names_in_tests import task_definitions

TIME_S = 3.0


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the program of a reply passes the tests in ``options["reference"]``, in sandboxes, else 0. ``scores``:
    the same by each way to read a program from the reply. Raises SandboxDestroyed if the machine ended a sandbox."""
    asked = options["reference"]
    prompt, name = asked["prompt"], asked["entry_point"]
    readings = {STRICT: parsed_or_none(prompt + reply), FLEXIBLE: program_of(reply, prompt, name)}
    if asked["rule"] == "lemur":
        # The released script begins every reply; how one that has the whole function is read is the project's rule.
        begun = continues_prompt(options)
        whole = up_to_last_return(reply)
        readings[RELEASED] = prompt + whole if begun else program_of(reply, prompt, name, up_to_last_return)
    tests = f"{asked['test']}\ncheck({name})\n"
    setup, backend = task_definitions(prompt, asked["test"]), options.get("backend", "bwrap")
    return graded(
        readings,
        RELEASED if RELEASED in readings else FLEXIBLE,
        lambda program: run_of(f"{program}\n", tests, backend, TIME_S, setup),
        reply,
    )


def program_of(reply: str, prompt: str, name: str, kept: Callable[[str], str] = str) -> str:
    """The program to test. If the code in ``reply`` defines function ``name``: that code after the prompt's imports and
    helpers; else the prompt with the code as the function's body. ``kept``: applied to the code first, to cut it."""
    begins = rf"^(?:async\s+)?def\s+{re.escape(name)}\s*\("
    code = kept(python_in(reply, begins))
    if re.search(begins, code, re.MULTILINE):
        above = re.split(begins, prompt, maxsplit=1, flags=re.MULTILINE)[0]
        return f"{above}\n{code}"
    # Servers of chat models strip what a reply begins with, and with it the first line's indent.
    if code[:1] not in (" ", "\t", "\n", "\r", ""):
        code = f"    {code}"
    return prompt + code


def up_to_last_return(reply: str) -> str:
    """Part of a reply that the script released with Lemur uses: up to the last line beginning with return, or ""."""
    lines = reply.split("\n")
    last = max((n for n, line in enumerate(lines) if line.strip().startswith("return")), default=-1)
    return "\n".join(lines[: last + 1])
