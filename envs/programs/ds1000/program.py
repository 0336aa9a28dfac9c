"""Extracts the solution from a reply to a DS-1000 prompt, and grades it by the item's own tests.

The tests are programs of the data. They run the solution in their own process, on objects that cannot be sent as plain
data (frames, tensors, figures), so solution and verdict are in one process. ``guarded_exec`` runs the solution in a
thread of its own and undoes what it changed in modules; the verdict is a random word at the end of the program. A
solution that searches the memory of the process can still find it."""

import re
import secrets
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from envs.programs.code_in_replies import code_in
from envs.programs.ds1000 import environment
from lemur_ray.benchmarks.question import Graded, cut_at
from lemur_ray.sandbox.backends.python_inside import VERSION
from lemur_ray.sandbox.programs import Failure, Program
from lemur_ray.sandbox.sandbox import Limits, SandboxDestroyed, SandboxSpec
from lemur_ray.sandbox.warm_pool import shared_pool

BEGINS = ("BEGIN SOLUTION", "# SOLUTION START")
STOPS = ("</code>", "# SOLUTION END", "\nEND SOLUTION", "### END SOLUTION")
HOLE = "[insert]"
"""Marks the solution's place in prompts of the data's older form (insertion)."""
TIME_S = 50.0
"""Seconds for a program, imports included, since an environment's step may take 60 s. Upstream allows 120 s."""
_CPU_S = 20.0
"""Seconds of processor time that count as a fair share: a program with less on a busy machine was starved."""
_PATIENCE_S = 60.0
_INSIDE = "/opt/ds1000"
_GUARD = (Path(__file__).parent / "guarded_exec.py").read_text(encoding="utf-8")
_LIMITS = Limits(memory_bytes=4 * 2**30, processes=256, disk_bytes=256 * 2**20)
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
_ENVIRONMENT = {
    **dict.fromkeys(_THREADS, "1"),
    "PYTHONHASHSEED": "0",
    "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
}
_BEFORE = {"Tensorflow": "try:\n    import distutils.spawn\nexcept ModuleNotFoundError:\n    import setuptools\n"}
"""Code before a library's programs. Tensorflow imports a module of the standard library that Debian packages
separately; setuptools, which Tensorflow requires anyway, replaces it."""


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the solution in a reply passes the item's tests in ``options["reference"]``, else 0 with the reason.
    Raises ValueError if the item's library is not installed, SandboxDestroyed if the machine failed."""
    asked, backend = options["reference"], options.get("backend", "bwrap")
    if why := environment.lacking(asked["environment"], [asked["library"]]):
        raise ValueError(why)
    solution, word = solution_of(reply), secrets.token_hex(16)
    program = _BEFORE.get(asked["library"], "") + program_of(solution, asked["code_context"])
    program = f"{_GUARD}\n{program}\nfinal_word = {word!r}\n"
    mounts = {_INSIDE: environment.folder_of(asked["environment"])}
    return _run(program, solution, SandboxSpec(limits=_LIMITS, mounts=mounts, run="ds1000"), backend, word)


def solution_of(reply: str) -> str:
    """The solution in a reply: after the last repeated marker, in its code tags or fence, up to the first stop."""
    for marker in BEGINS:
        reply = reply.rpartition(marker)[2]
    opened = reply.partition("<code>")
    solution = cut_at(opened[2] if opened[1] else reply, STOPS)
    return code_in(solution)


def around_hole(prompt: str) -> tuple[str, str]:
    """(prompt up to the place of the solution, text after that place; empty if the solution is at the end). Whitespace
    before the place is dropped, since the solution has its own indentation."""
    mark = max(prompt.rfind(one) for one in BEGINS)
    before, hole, behind = prompt[max(mark, 0) :].partition(HOLE)
    if mark < 0 or not hole:
        return prompt, ""
    return (prompt[:mark] + before).rstrip(" \t"), behind


def program_of(solution: str, code_context: str) -> str:
    """The Python program that tests a solution: the item's ``code_context``, the solution as a string, and calls of the
    item's tests of results and, if it has any, of source text."""
    calls = ["test_execution(solution)"]
    if re.search(r"^def test_string\(", code_context, re.MULTILINE):
        calls.append("test_string(solution)")
    return "\n".join([code_context, f"solution = {solution!r}", *calls, ""])


def _run(program: str, solution: str, spec: SandboxSpec, backend: str, word: str) -> Graded:
    with shared_pool(spec, backend).one() as sandbox:
        try:
            tester = Program(
                sandbox, "tester", time_s=TIME_S, total_s=TIME_S, patience_s=_PATIENCE_S, allowed_cpu_s=_CPU_S,
                env={**_ENVIRONMENT, "PYTHONPATH": _INSIDE}, python=f"python{VERSION}",
            )  # fmt: skip
            with closing(tester):
                reply = tester.exchange({"tests": program, "setup": "", "defined": {}, "modules": {}})
        except SandboxDestroyed as error:
            if error.blame != "policy":
                raise
            return Graded(0.0, solution, str(error))
    if reply.blame == "infra":
        raise SandboxDestroyed(f"the machine gave a solution no time: {reply.failure}", "infra")
    if reply.message is None:
        late = reply.failure is Failure.TIMED_OUT
        return Graded(0.0, solution, f"timed out after {TIME_S:g} s" if late else str(reply.failure))
    return Graded(float(reply.message.get("word") == word), solution, str(reply.message.get("raised", "")))
