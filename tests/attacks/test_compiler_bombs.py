"""A program that keeps its compiler busy for ever, or makes it eat everything, fails; in bounded time and memory."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from envs.programs.multipl_e.program import PATIENCE_S, grade
from envs.programs.multipl_e.toolchains import TOOLCHAINS
from lemur_ray.benchmarks.question import Graded
from lemur_ray.sandbox.sandbox import SandboxDestroyed
from tests.attacks.arena import children, ready

COMPILE_S = 10.0
TRIES = 3
SLACK_S = 30.0
"""Of a busy machine: opening a sandbox, taking turns, ending a crowd."""
OVER_BYTES = 384 * 2**20
"""Of all processes beyond the sandbox's limit: the harness's own in there, and what grows between two looks."""
PROMPT = "#include <string>\nlong f(long x) {\n"
TESTS = "}\nint main() { if (f(1) != 2) return 1; }\n"
BOMBS = {
    "a template that instantiates itself for ever": (
        "template<int N> struct A { typedef typename A<N + 1>::t t; };\nA<1>::t y;"
    ),
    "templates that double at every level": (
        "template<int N, long M> struct F { enum { v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v }; };\n"
        "template<long M> struct F<0, M> { enum { v = 1 }; };\nlong y = F<40, 1>::v;"
    ),
    "macros that double at every level": "#define A0 1 +\n"
    + "\n".join(f"#define A{n + 1} A{n} A{n}" for n in range(40))
    + "\nlong y = A40 0;",
    "a file that includes itself twice": "#include __FILE__\n#include __FILE__",
    "a file without an end": '#include "/dev/zero"',
    "a constant that is computed for ever": (
        "constexpr long g(long n) { return n < 2 ? 1 : g(n - 1) + g(n - 2) + g(n - 2); }\nconstexpr long y = g(60);"
    ),
    "a binary of a terabyte": "char y[1UL << 40] = {1};",
    "an assembler that is handed a device": 'asm(".incbin \\"/dev/zero\\"");',
}
FAST = {"a template that instantiates itself for ever"}
BACKENDS = ("bwrap", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.sweep]))
needs_compiler = pytest.mark.skipif(
    shutil.which("g++", path="/usr/bin:/bin") is None, reason="needs g++: apt-get install -y g++"
)


def graded(reply: str, backend: str) -> Graded:
    """Tried again where the machine gave the compiler no time, as a run does."""
    asked = {"language": "cpp", "prompt": PROMPT, "tests": TESTS, "stops": []}
    for _ in range(TRIES):
        try:
            return grade(reply, {"reference": asked, "backend": backend})
        except SandboxDestroyed as error:
            if error.blame != "infra":
                raise
    pytest.skip(f"this machine gave {TRIES} compilers less than a quarter of a processor")


def resident_bytes() -> int:
    """Resident memory of the processes in this process's sandboxes; pages that they share count for each of them.

    A descendant in this process's own namespace is none of theirs: a child between fork and exec still has the whole
    memory of the test run (2 GB at its end), and on a busy machine it stays so for long enough to be seen.
    """
    total, pending = 0, children(os.getpid())
    while pending:
        pid = pending.pop()
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if in_own_namespace(pid):
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            pending += children(pid)
    return total


def in_own_namespace(pid: int) -> bool:
    """Whether a process has a process namespace other than this one's, in which it has another number."""
    status = Path(f"/proc/{pid}/status").read_text()
    return len(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()) > 2


@contextmanager
def greatest(measure: Callable[[], int]) -> Iterator[list[int]]:
    """The greatest value of something meanwhile, in a list of one."""
    found, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            found[0] = max(found[0], measure())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        over.set()
        looking.join()


def test_memory_of_the_test_run_is_not_counted_as_a_sandboxs() -> None:
    before = resident_bytes()
    with subprocess.Popen(["sleep", "60"]) as other:
        assert (in_own_namespace(other.pid), resident_bytes()) == (False, before)
        other.kill()


@needs_compiler
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "bomb", [*FAST, *(pytest.param(bomb, marks=pytest.mark.slow) for bomb in BOMBS if bomb not in FAST)]
)
def test_a_bomb_for_the_compiler_is_the_programs_fault_in_bounded_time_and_memory(
    bomb: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(backend)
    tools = replace(TOOLCHAINS["cpp"], compile_s=COMPILE_S)
    monkeypatch.setitem(TOOLCHAINS, "cpp", tools)
    began, before = time.monotonic(), resident_bytes()  # idle sandboxes of earlier tests may still be here
    with greatest(resident_bytes) as most:
        verdict = graded(f"    return x + 1;\n}}\n{BOMBS[bomb]}\nlong z(long x) {{\n    return x;\n", backend)
    assert (verdict.score, verdict.note.startswith("g++: ")) == (0.0, True), verdict.note
    assert time.monotonic() - began < TRIES * (COMPILE_S + PATIENCE_S) + SLACK_S
    assert most[0] - before < tools.memory_bytes + OVER_BYTES, (most, before)
    assert backend != "bwrap" or most[0] > 0, "the count includes the sandbox"
    print(f"{bomb}: {time.monotonic() - began:.1f} s, {(most[0] - before) >> 20} MiB: {verdict.note[:150]!r}")
    assert graded("    return x + 1;\n", backend).score == 1, "the next program is as well off as ever"
