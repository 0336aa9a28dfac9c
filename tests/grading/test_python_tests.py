"""Programs are graded by tests that they share no process with: honest ones pass, and tricks do not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from lemur_ray.grading import python_tests
from lemur_ray.grading.mint import grade
from lemur_ray.grading.names_in_tests import names_used, requested_values, task_definitions
from lemur_ray.grading.python_tests import TestRun, run_each, run_tests
from lemur_ray.sandbox.sandbox import SandboxSpec, open_sandbox

TESTS = "assert double(3) == 6\nassert double(-1) == -2"
Graded = Callable[..., TestRun]


@pytest.fixture(scope="module")
def graded() -> Iterator[Graded]:
    of_solution, of_tests = open_sandbox(SandboxSpec()), open_sandbox(SandboxSpec())

    def grade(solution: str, tests: str = TESTS, time_s: float = 10.0, setup: str = "") -> TestRun:
        of_solution.reset()
        return run_tests(solution, tests, of_solution, of_tests, time_s, setup)

    yield grade
    of_solution.close()
    of_tests.close()


def test_a_right_solution_passes_and_a_wrong_one_does_not(graded: Graded) -> None:
    assert graded("def double(x):\n    return 2 * x").passed
    wrong = graded("def double(x):\n    return x + 3")
    assert (wrong.passed, wrong.note) == (False, "AssertionError: ")
    assert graded("def double(x) return").note == "SyntaxError"
    assert graded("def twice(x): return 2 * x").note.startswith("NameError: name 'double'")
    assert graded("def double(x): return [][x]").note == "IndexError: IndexError"


def test_a_built_in_type_is_a_value_both_ways(graded: Graded) -> None:
    tests = "assert double((4, 7.5), int) == [7.5]\nassert double((), str) == []"
    assert graded("def double(x, kind): return [item for item in x if not isinstance(item, kind)]", tests).passed
    assert graded("def double(x): return type(x)", "assert double(3) == int\nassert double(3) is not str").passed
    own = "class int(int):\n    def __eq__(self, other): return True\n    __hash__ = None\ndef double(x): return int"
    assert not graded(own, "assert double(3) == int").passed


@pytest.mark.parametrize(
    "attack",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "import sys, os; sys.excepthook = lambda *a: os._exit(0)",
        "print('{\"passed\": true}'); raise SystemExit",
        "import os; os.kill(os.getpid(), 9)",
        "import os\nfor fd in range(64):\n    try: os.write(fd, b'{\"passed\": true}\\n')\n    except OSError: pass\n"
        "os._exit(0)",
        "import os; os.execv('/bin/true', ['true'])",
        "def double(x): raise SystemExit(0)",
    ],
)
def test_leaving_early_is_no_success(graded: Graded, attack: str) -> None:
    assert not graded(attack).passed


@pytest.mark.parametrize(
    "attack",
    [
        "class Always:\n    def __eq__(self, other): return True\ndef double(x): return Always()",
        "class Always(int):\n    def __eq__(self, other): return True\ndef double(x): return Always(1)",
        "class Always(dict):\n    def __missing__(self, key): return 6\ndef double(x): return Always()",
        "import builtins\nbuiltins.abs = builtins.sum = lambda *a: 0\ndef double(x): return x",
        "def abs(x): return 0\ndef AssertionError(*a): pass\ndef double(x): return x",
        "import sys\nframe = sys._getframe()\nwhile frame:\n"
        "    frame.f_globals.update(passed=True, __debug__=False); frame = frame.f_back\ndef double(x): return x",
        "import gc\nfor o in gc.get_objects():\n    if type(o) is dict and 'passed' in o: o['passed'] = True\n"
        "def double(x): return x",
        "from unittest.mock import ANY\ndef double(x): return ANY",
        "def double(x): return float('nan')",
    ],
)
def test_tricks_with_equality_builtins_and_frames_pass_nothing(graded: Graded, attack: str) -> None:
    assert not graded(attack).passed
    assert not graded(attack, "assert abs(double(3) - 6) < 1e-6").passed


def test_no_test_is_ever_where_the_solution_is(graded: Graded) -> None:
    spy = (
        "import gc, sys, os\ndef double(x):\n"
        "    seen = repr([o for o in gc.get_objects() if type(o) in (dict, list, tuple, str, bytes)])\n"
        "    seen += open('/proc/self/cmdline').read() + open('/proc/self/environ').read()\n"
        "    for top, _, names in os.walk('/tmp'): seen += repr(names)\n"
        "    return ''.join(['the_secret', '_value']) in seen"
    )
    assert graded(spy, "secret = 'the_secret_value'\nassert double(3) is False").passed


@pytest.mark.parametrize(
    ("solution", "tests"),
    [
        ("def f(n): return (i * i for i in range(n))", "assert list(f(2000))[-1] == 1999 ** 2"),
        (
            "import re\ndef f(s): return re.match('a+', s)",
            "assert f('aab')\nassert not f('b')\nassert f('aa').group(0) == 'aa'",
        ),
        ("from collections import Counter\ndef f(s): return Counter(s)", "assert f('aab') == {'a': 2, 'b': 1}"),
        ("def f(n): return range(n)", "assert f(3) == range(3)\nassert tuple(f(3)) == (0, 1, 2)"),
        ("class Pair:\n    def __init__(self, a): self.a = a\ndef f(p): return p.a", "assert f(Pair(4)) == 4"),
        ("import math\ndef f(x): return math.sqrt(x)", "assert math.isclose(f(2), 1.4142135, rel_tol=1e-6)"),
        ("def sum(a, b): return a * b", "assert sum(2, 5) == 10"),
        ("def f(x, key=0): return x, key", "def check(candidate):\n    assert candidate(1, key=2) == (1, 2)\ncheck(f)"),
        ("def f(x): raise KeyError(x)", "try:\n    f(1)\n    assert False\nexcept KeyError:\n    pass"),
        ("n = 0\ndef f():\n    global n\n    n += 1\n    return n", "assert [f(), f(), f()] == [1, 2, 3]"),
    ],
)
def test_honest_solutions_pass_whatever_they_return(graded: Graded, solution: str, tests: str) -> None:
    run = graded(solution, tests)
    assert run.passed, run.note


def test_a_time_out_is_said(graded: Graded) -> None:
    run = graded("def double(x):\n    while True: pass", time_s=0.5)
    assert (run.passed, run.timed_out, run.note) == (False, True, "timed out after 0.5 s")
    assert graded("while True: pass", time_s=0.5).timed_out


def test_neither_input_nor_output_reaches_a_program(graded: Graded) -> None:
    code = "import sys\nassert sys.stdin.read() == ''\nprint('x' * 10**6)\ndef double(x):\n    return 2 * x"
    assert graded(code).passed


def names_under_test(tests: str) -> list[str]:
    return list(names_used(tests).of_solution)


def test_names_under_test_are_those_that_the_tests_do_not_bring() -> None:
    assert names_under_test("assert f(len([1])) == 2") == ["f"]
    assert names_under_test("assert sum(10, 15) == 6") == ["sum"]
    assert names_under_test("import math\ndef check(c):\n    x = 1\n    assert c(x) == math.pi\ncheck(f)") == ["f"]
    with pytest.raises(ValueError, match="line 1"):
        names_under_test("assert (")


def test_each_of_several_tests_has_a_verdict_of_its_own(graded: Graded) -> None:
    code = "def f(x):\n    if x == 2: raise ValueError\n    if x == 4: import os; os._exit(0)\n    return x"
    tests = [f"assert f({x}) == {x}" for x in (1, 2, 3, 4, 5)]
    with closing(open_sandbox()) as of_solution, closing(open_sandbox()) as of_tests:
        runs = run_each(code, tests, of_solution, of_tests)
    assert [run.passed for run in runs] == [True, False, True, False, False]


FORGED = """
import sys
answers = sys._getframe(1).f_locals["self"]
honest = answers._plain.encode
def encode(value, depth=0, keep=None):
    encoded = honest(value, depth, keep)
    if depth == 0 and type(value) is dict and "f" in value:
        for name, function in EXTRA.items():
            encoded[1].append([["str", name], keep(function)])
        encoded[1].append([["str", "__builtins__"], ["dict", [[["str", "abs"], keep(lambda v: 0)]]]])
    return encoded
answers._plain.encode = encode
EXTRA = {name: lambda *a, **k: 0 for name in ("abs", "set", "sorted", "math", "__import__")}
def f(x): return 0
"""


@pytest.mark.parametrize(
    "tests",
    [
        "assert abs(f(2) - 4) < 1e-6",
        "assert sorted(f(1)) == sorted([3])",
        "assert set(f(2)) == {4, 5}",
        "import math\nassert math.isclose(f(2), 4)",
        "assert math.isclose(f(2), 4)",
    ],
)
def test_a_solution_that_sends_names_nobody_asked_for_changes_no_test(graded: Graded, tests: str) -> None:
    assert not graded(FORGED, tests).passed


def test_only_names_that_were_asked_for_are_taken() -> None:
    value = ["int", "0x1"]
    sent = ["dict", [[["str", "f"], value], [["str", "abs"], value], [["int", "0x1"], value], "?", [["str"], 1]]]
    assert requested_values(sent, ["f"]) == {"f": value}
    assert [requested_values(bad, ["f"]) for bad in (None, [], ["dict", 5], ["list", []], "f")] == [{}] * 5


ZERO = "def check(c):\n  for xs in ([1, 2], [-6, 11, -6, 1]):\n    assert math.fabs(poly(xs, c(xs))) < 1e-4\ncheck(z)\n"
POLY = "import math\ndef poly(xs, x):\n    return sum([c * math.pow(x, i) for i, c in enumerate(xs)])\n"
PROMPT = f'Complete:\n\n{POLY}\ndef z(xs):\n    """A zero of it."""\n'


@pytest.mark.parametrize(
    "helpers",
    ["import math\ndef poly(xs, x): return 0.0\n", "class math:\n    fabs = staticmethod(lambda v: 0.0)\n"],
)
def test_what_the_task_itself_defines_is_not_taken_from_the_solution(graded: Graded, helpers: str) -> None:
    assert not graded(f"{helpers}def z(xs): return 0\n", ZERO, setup=task_definitions(PROMPT, ZERO)).passed
    right = f"{helpers}def z(xs): return -0.5 if len(xs) == 2 else 1.0\n"
    assert graded(right, ZERO, setup=task_definitions(PROMPT, ZERO)).passed


def test_the_strict_verdict_on_humaneval_uses_the_tasks_helpers_and_the_recorded_one_the_answers(
    graded: Graded,
) -> None:
    def run(solution: str, tests: str, setup: str = "") -> TestRun:
        return graded(solution, tests, setup=setup)

    cheat = "import math\ndef poly(xs, x): return 0.0\ndef z(xs): return 0\n"
    verdicts = grade("humaneval", cheat, ZERO, prompt=PROMPT, run_tests=run)
    assert (verdicts.mint_2023, verdicts.strict) == (True, False)


def test_a_module_that_tests_look_into_is_the_standard_librarys(graded: Graded) -> None:
    tests = "assert math.isclose(area(2), 12.566, rel_tol=0.001)"
    forged = "class math:\n    isclose = staticmethod(lambda *a, **k: True)\ndef area(r): return 0\n"
    assert not graded(forged, tests).passed
    assert graded("import math\ndef area(r): return math.pi * r * r\n", tests).passed
    assert graded("def area(r): return 3.1416 * r * r\n", tests).note.startswith("NameError"), "as in one interpreter"


def test_where_the_names_in_tests_come_from() -> None:
    found = names_used("assert tuple_size(x) == sys.getsizeof(np.array(x))")
    assert (found.of_solution, found.modules) == (("tuple_size", "x"), {"np": "numpy", "sys": "sys"})
    assert names_under_test("assert copy(3) == 3") == ["copy"], "called: a function of that name"
    assert names_under_test("assert random.f() == 3") == ["random"], "nothing else is under test"
    assert names_used(ZERO, task_definitions(PROMPT, ZERO)).asked == ["z"]
    assert names_under_test("assert f(__builtins__)") == ["f"]
    assert task_definitions("def f(x):\n    ...", "assert f(1)") == ""
    assert task_definitions("Only words.", "assert f(1)") == ""
    assert task_definitions("from typing import List\ndef f(x): ...\n", "assert f(1)") == ""


def test_sleeping_through_many_calls_is_bounded_as_a_whole(graded: Graded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_tests, "SLACK_S", 1.5)
    solution = "import time\ndef f(x):\n    time.sleep(1.4)\n    return x\n"
    started = time.monotonic()
    run = graded(solution, "\n".join(f"assert f({i}) == {i}" for i in range(20)), time_s=0.5)
    assert (run.passed, run.timed_out) == (False, True)
    assert time.monotonic() - started < 20 * 1.4, "not even the sum of all calls"


@pytest.mark.parametrize("end", ["os._exit(0)", "time.sleep(60)"])
def test_the_processor_time_of_a_solutions_children_counts(graded: Graded, end: str) -> None:
    solution = (
        "import os, time\ndef f(x):\n    r, w = os.pipe()\n    if os.fork() == 0:\n"
        "        end = time.process_time() + 0.9\n        while time.process_time() < end: pass\n"
        f"        os.write(w, b'x'); {end}\n    os.read(r, 1)\n    return x\n"
    )
    run = graded(solution, "assert f(1) == 1\nassert f(2) == 2\nassert f(3) == 3", time_s=1.0)
    assert (run.passed, run.timed_out) == (False, True)
