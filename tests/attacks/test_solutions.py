"""Rows 25 to 29 and 31: what a solution does to be taken for right, against the graders that MINT and InterCode use.

Both run tests in a sandbox of their own (``grading/python_tests.py``) and only hear what the solution's process says.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import gymnasium
import pytest

from envs.mint.judges import AnswerJudge
from lemur_ray.grading import python_tests
from lemur_ray.grading.mint import GRADERS
from lemur_ray.sandbox.sandbox import SandboxDestroyed

Accepted = Callable[..., bool]


@pytest.fixture(scope="module")
def accepted(backend: str) -> Accepted:
    """Whether the judge of an episode of MINT's takes a program for solved, by any of its graders."""

    def judged(solution: str, tests: str = "assert f(3) == 9") -> bool:
        judge = AnswerJudge("mbpp", "", tests, "", "legacy", backend)
        for attempt in range(3):  # what the machine starved is tried again, as the runtime would
            try:
                judge.propose(solution)
                break
            except SandboxDestroyed as error:
                if error.blame != "infra" or attempt == 2:
                    raise
        return any(judge.solved(grader) for grader in GRADERS)

    return judged


Share = Callable[[str, list[str]], float]


@pytest.fixture(scope="module")
def share(backend: str) -> Iterator[Share]:
    """The share of tests that InterCode-Python says a submitted ``def`` passes."""
    env = gymnasium.make("envs:lemur/InterCodePython-v0", disable_env_checker=True)

    def submitted(code: str, tests: list[str]) -> float:
        env.reset(options={"question": "Nine.", "name": "f", "tests": tests, "backend": backend})
        return float(env.step(code)[1])

    yield submitted
    env.close()


LEAVING = [
    "import sys; sys.exit(0)",
    "import os; os._exit(0)",
    "raise SystemExit(0)",
    "import sys, os; sys.excepthook = lambda *a: os._exit(0)\ndef f(x): raise ValueError",
    "import atexit, os; atexit.register(os._exit, 0)\ndef f(x): return 0",
    "import os; os.execv('/bin/true', ['true'])",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "def f(x):\n  import os; os._exit(0)",
    'print(\'ALL_PASSED\'); print(\'{"value": ["int", "0x9"]}\')\ndef f(x): return 0',
    "import os\nfor fd in range(64):\n  try: os.write(fd, b'PASSED 0\\n')\n  except OSError: pass\ndef f(x): return 0",
]


@pytest.mark.parametrize("code", LEAVING)
def test_row_25_leaving_early_is_no_success(accepted: Accepted, code: str) -> None:
    assert not accepted(code)


EQUAL = [
    "class A:\n  __eq__ = lambda s, o: True\n  __ne__ = lambda s, o: False\n  __bool__ = lambda s: True\n"
    "  __hash__ = lambda s: 0\n  __float__ = lambda s: 9.0\ndef f(x): return A()",
    "class A(int):\n  def __eq__(s, o): return True\n  __hash__ = int.__hash__\ndef f(x): return A(1)",
    "class A(str):\n  def __eq__(s, o): return True\n  __hash__ = str.__hash__\ndef f(x): return A('x')",
    "class A(list):\n  def __eq__(s, o): return True\ndef f(x): return A([1])",
    "class A:\n  __class__ = int\ndef f(x): return A()",
    "class M(type):\n  __instancecheck__ = lambda c, o: True\n  __eq__ = lambda c, o: True\n  "
    "__hash__ = type.__hash__\n"
    "class A(metaclass=M): pass\ndef f(x): return A()",
    "def f(x): return float('nan')",
    "from unittest.mock import ANY\ndef f(x): return ANY",
    "def f(x): return f",
    "def f(x):\n  a = []; a.append(a); return a",
]


@pytest.mark.parametrize("code", EQUAL)
def test_row_26_only_exact_plain_types_are_compared(accepted: Accepted, code: str) -> None:
    tests = ("f(3) == 9", "not f(3) != 9", "f(3) in (9,)", "{f(3): 1}[9]", "abs(f(3) - 9) < 1e-6")
    either = "".join(f"\nif not done:\n  try: done = bool({test})\n  except Exception: pass" for test in tests)
    assert not accepted(code, f"done = False{either}\nassert done"), "by no way to ask"


FORGER = """def f(x):
    import sys
    frame = sys._getframe()
    while "self" not in frame.f_locals: frame = frame.f_back
    junk = [["int", "not hex"], ["int"], ["unknown", "int"], ["set", 5], ["kept", 10**9], ["kept", "f"], ["kept", {}],
            {"passed": True}, None, 9, [[]], ["dict", [[["list", []], ["int", "0x9"]]]], ["Fraction", "1e99999999"],
            ["range", [["int", "0x0"], ["int", hex(10**30)], ["int", "0x1"]]], ["bool", 9], ["str", 9]]
    deep = ["int", "0x9"]
    for _ in range(500): deep = ["list", [deep]]
    frame.f_locals["self"]._plain.encode = lambda *a, **k: (junk + [deep])[x]
"""


def test_row_26_what_no_encoder_of_ours_says_is_no_value(share: Share) -> None:
    assert share(FORGER, [f"assert f({number}) == 9" for number in range(17)]) == 0.0


PATCHES = [
    "import builtins; builtins.len = lambda x: 0; builtins.all = lambda x: True; builtins.isinstance = lambda *a: True",
    "import sys; sys.modules['pytest'] = None; sys.settrace(lambda *a: None)",
    'import json; json.dumps = lambda *a, **k: \'{"value": ["none", null]}\'',
    "import time, random; time.time = lambda: 0; random.seed = lambda *a: None",
    "import gc\nfor o in gc.get_objects():\n  if type(o) is dict and 'answer' in o: o['passed'] = True",
    "import sys\nframe = sys._getframe()\nwhile frame:\n  frame.f_locals.update(passed=True, "
    "expected=0); frame = frame.f_back",
    "import inspect, sys\nfor record in inspect.stack(): pass\nsys.exit = lambda *a: None",
]


@pytest.mark.parametrize("patch", PATCHES)
def test_row_27_patching_the_judge_changes_nothing(
    accepted: Accepted, patch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "len" in patch:  # its own process can then read nothing more, and waits until its time is over
        monkeypatch.setattr(python_tests, "PATIENCE", 0.1)
        monkeypatch.setattr(python_tests, "SLACK_S", 1.0)
    assert not accepted(patch + "\ndef f(x): return 0")
    tests = "import json, math\nassert math.fabs(len(json.dumps(f(3))) - 9) < 1"
    assert not accepted(patch + "\ndef f(x): return x", tests)


SPY = """
import gc, glob, inspect, linecache, os, sys, traceback
def f(x):
    seen = repr([o for o in gc.get_objects() if type(o) in (dict, list, tuple, str, bytes)])
    frame = sys._getframe()
    while frame: seen += repr(frame.f_locals) + repr(frame.f_globals.keys()); frame = frame.f_back
    seen += repr(linecache.cache) + repr(sys.argv) + "".join(traceback.format_stack()) + repr(inspect.stack())
    files = [*glob.glob('/proc/[0-9]*/cmdline'), *glob.glob('/proc/[0-9]*/environ'), *glob.glob('/tmp/**')]
    for name in files:
        try: seen += open(name).read()
        except (OSError, UnicodeDecodeError): pass
    return ''.join(['expected', '_secret']) in seen or ''.join(['answer_is', '_nine']) in seen
"""


def test_row_28_expected_values_are_nowhere_in_the_solutions_process(accepted: Accepted, share: Share) -> None:
    tests = "expected_secret = 9\nassert f('first') is False, 'answer_is_nine'\nassert f(3) is False"
    assert accepted(SPY, tests), "it saw something"
    imports, _, body = SPY.strip().partition("\ndef f(x):")
    assert share(f"def f(x):\n    {imports}{body}", [tests]) == 1.0


COUNTER = """
import os
def f(x):
    n = int(open('/tmp/n').read()) if os.path.exists('/tmp/n') else int(os.environ.get('N', '0'))
    for name in ('/tmp/n', '/work' + '/n', '/dev/shm/n', os.path.expanduser('~/n')): open(name, 'w').write(str(n + 1))
    os.environ['N'] = str(n + 1)
    return n
"""


def test_row_29_nothing_that_a_solution_counts_is_left_for_the_next_proposal(accepted: Accepted) -> None:
    for _ in range(3):
        assert accepted(COUNTER, "assert f(3) == 0\nassert f(3) == 1"), "within one proposal calls share their state"


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("__import__('os').environ.update(LEMUR_PWNED='1')",)


PICKLES = [
    "class A:\n  def __reduce__(self): return (print, ('x',))\ndef f(x): return A()",
    f"def f(x): return {pickle.dumps(Payload())!r}",
    "def f(x):\n  import os\n  for fd in range(3, 20):\n    try: os.write(fd, b'[' * 100000)\n"
    "    except OSError: pass\n  os._exit(0)",
    "def f(x): return 'x' * (33 << 20)",
]


@pytest.mark.parametrize("code", PICKLES)
def test_row_31_only_json_and_bounded_bytes_cross(accepted: Accepted, code: str) -> None:
    assert not accepted(code)


def test_row_31_bytes_stay_bytes(accepted: Accepted) -> None:
    assert accepted(f"def f(x): return {b'pickled'!r}", "assert f(3) == b'pickled'")


HONEST = [
    ("(1, 2.5, 'x')", "(1, 2.5, 'x')"),
    ("{1, 2, 3}", "{3, 2, 1}"),
    ("frozenset('ab')", "{'a', 'b'}"),
    ("0.1 + 0.2", "0.1 + 0.2"),
    ("__import__('decimal').Decimal('1.10')", "__import__('decimal').Decimal('1.1')"),
    ("__import__('fractions').Fraction(1, 3)", "__import__('fractions').Fraction(2, 6)"),
    ("{'a': [1, None, True], 2: b'x'}", "{'a': [1, None, True], 2: b'x'}"),
    ("1", "True"),
    ("2.0", "2"),
    ("print('noise') or [1]", "[1]"),
    ("3 + 4j", "3 + 4j"),
]


def test_a_correct_answer_passes_whatever_its_type(share: Share) -> None:
    values = ", ".join(f"lambda: {expression}" for expression, _ in HONEST)
    tests = [f"assert f({number}) == {expected}" for number, (_, expected) in enumerate(HONEST)]
    assert share(f"def f(x): return ({values})[x]()", tests) == 1.0
    assert share("def f(x): return 'none of them'", tests) == 0.0


PACKAGES = """
import numpy, pandas
print('loading')
def f(kind):
    if kind == 'scalar': return numpy.int64(9)
    if kind == 'array': return numpy.arange(3)
    return pandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})
"""


def test_a_correct_answer_made_of_numpy_and_pandas_passes(accepted: Accepted) -> None:
    tests = (
        "assert f('scalar') == 9\nassert list(f('array')) == [0, 1, 2]\nassert f('array').tolist() == [0, 1, 2]\n"
        "assert len(f('array')) == 3\nassert f('table').shape == (2, 2)\nassert f('table').to_dict('list') == "
        "{'a': [1, 2], 'b': ['x', 'y']}"
    )
    broadcast = "\ntry: true = bool(f('array') == 9)\nexcept Exception: true = False\nassert not true"
    assert accepted(PACKAGES, tests + broadcast)
