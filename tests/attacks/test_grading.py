"""Rows 24 to 31 and 37: what a grader believes. Answers are called in their own process, data is compared here."""

from __future__ import annotations

import math
import pickle
import sqlite3
import time
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from envs.intercode.sql.sqlite_engine import QueryLimits, Rows, SqlError, SqliteDatabase
from lemur_ray.sandbox.inside import plain
from lemur_ray.sandbox.sandbox import Sandbox, SandboxSpec, open_sandbox
from lemur_ray.sandbox.solution_process import AnswerProcess, same
from tests.attacks.arena import LIMITS, bash

LONG = replace(LIMITS, time_s=30.0)


def solves(box: Sandbox, code: str, expected: object = 9, function: str = "f", args: tuple[object, ...] = (3,)) -> bool:
    """Whether ``function(*args) == expected``, as our grader sees it."""
    answer = AnswerProcess(box, code, time_s=20.0)
    try:
        return answer.loaded.failure == "" and same(expected, answer.call(function, args).value)
    finally:
        answer.close()


def test_row_24_a_poisoned_git_has_no_say_in_what_the_grader_sees(box: Sandbox) -> None:
    poison = (
        "git init -q . 2>/dev/null; mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch /tmp/hooked\\n' > "
        ".git/hooks/pre-commit; "
        "cp .git/hooks/pre-commit .git/hooks/fsmonitor; chmod +x .git/hooks/*; "
        "printf '[core]\\n\\tfsmonitor = .git/hooks/fsmonitor\\n[diff]\\n\\texternal = "
        ".git/hooks/fsmonitor\\n' "
        ">> .git/config; echo '* filter=evil diff=evil' > .gitattributes; echo '*' > .gitignore"
    )
    bash(box, poison)
    before = box.snapshot()
    bash(box, "echo hidden > ignored.txt")
    assert box.snapshot() != before, "what git would ignore is seen"
    assert bash(box, "ls /tmp/hooked").exit_code != 0, "nothing of it ran"


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
def test_row_25_leaving_early_is_no_success(box: Sandbox, code: str) -> None:
    assert not solves(box, code)
    assert bash(box, "echo on").out == "on\n"


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
def test_row_26_only_exact_plain_types_are_compared(box: Sandbox, code: str) -> None:
    assert not solves(box, code)


def test_row_26_nan_and_kinds_are_told_apart() -> None:
    assert not same(math.nan, plain.encode(math.nan))
    assert not same([1, 2], plain.encode((1, 2)))
    assert not same("1", plain.encode(1))
    assert not same(9, ["unknown", "int"])
    assert not same(9, ["int", "not hex"])
    assert not same(9, ["int"])
    assert same(Fraction(1, 3), plain.encode(Fraction(1, 3)))
    for kind, huge in (
        ("Fraction", "1e99999999"),
        ("Fraction", "1/1e99999999"),
        ("Fraction", 5),
        ("Decimal", "1e99999999"),
    ):
        assert not same(0.5, [kind, huge], rel=0.1)
    assert not same({1}, ["set", 5])


PATCHES = [
    "import builtins; builtins.len = lambda x: 9; builtins.all = lambda x: True; builtins.isinstance = lambda *a: True",
    "import sys; sys.modules['pytest'] = None; sys.settrace(lambda *a: None)",
    'import json; json.dumps = lambda *a, **k: \'{"value": ["none", null]}\'',
    "import time, random; time.time = lambda: 0; random.seed = lambda *a: None",
    "import gc\nfor o in gc.get_objects():\n  if type(o) is dict and 'answer' in o: o['passed'] = True",
    "import sys\nframe = sys._getframe()\nwhile frame:\n  frame.f_locals.update(passed=True, "
    "expected=0); frame = frame.f_back",
    "import inspect, sys\nfor record in inspect.stack(): pass\nsys.exit = lambda *a: None",
]


@pytest.mark.parametrize("patch", PATCHES)
def test_row_27_patching_the_judge_changes_nothing(box: Sandbox, patch: str) -> None:
    assert not solves(box, patch + "\ndef f(x): return 0")
    assert same(9, plain.encode(9)), "the judge of this process is untouched"


def test_row_28_expected_values_are_nowhere_in_the_answers_process(box: Sandbox) -> None:
    code = (
        "import gc, inspect, linecache, sys\n"
        "def f(x):\n"
        "  seen = repr([o for o in gc.get_objects() if type(o) in (dict, list, tuple, str)])\n"
        "  frame = sys._getframe()\n"
        "  while frame: seen += repr(frame.f_locals) + repr(frame.f_globals.keys()); frame = frame.f_back\n"
        "  seen += repr(linecache.cache) + repr(sys.argv) + open('/proc/self/cmdline').read()\n"
        "  seen += open('/proc/self/environ').read()\n"
        "  return ('expected' + '_secret') in seen\n"
    )
    answer = AnswerProcess(box, code)
    expected = {"expected_secret": 9}
    assert same(False, answer.call("f", (3,)).value)
    assert not same(expected, answer.call("f", (3,)).value)
    answer.close()


def test_row_29_counting_calls_does_not_survive_a_wiped_state(box: Sandbox) -> None:
    code = (
        "import os\ndef f(x):\n  n = int(open('/tmp/n').read()) if os.path.exists('/tmp/n') else 0\n"
        "  open('/tmp/n', 'w').write(str(n + 1))\n  return n\n"
    )
    for _ in range(3):
        box.reset()
        answer = AnswerProcess(box, code)
        assert same(0, answer.call("f", (3,)).value), "each test begins in a wiped state"
        answer.close()


HONEST = [
    ("(1, 2.5, 'x')", (1, 2.5, "x")),
    ("{1, 2, 3}", {3, 2, 1}),
    ("frozenset('ab')", {"a", "b"}),
    ("0.1 + 0.2", 0.1 + 0.2),
    ("__import__('decimal').Decimal('1.10')", Decimal("1.10")),
    ("{'a': [1, None, True], 2: b'x'}", {"a": [1, None, True], 2: b"x"}),
    ("1", True),
    ("2.0", 2),
    ("print('noise') or [1]", [1]),
    ("3 + 4j", 3 + 4j),
]


@pytest.mark.parametrize(("expression", "expected"), HONEST)
def test_a_correct_answer_passes_whatever_its_type(box: Sandbox, expression: str, expected: object) -> None:
    assert solves(box, f"print('loading')\ndef f(x): return {expression}", expected)


def test_numpy_and_pandas_values_are_compared_by_content() -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    assert same(numpy.arange(3), plain.encode(numpy.array([0, 1, 2])))
    assert not same(numpy.arange(3), plain.encode(numpy.arange(4)))
    assert not same(numpy.arange(3), plain.encode(9)), "no truth by broadcasting"
    assert same(9, plain.encode(numpy.int64(9)))
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert same(frame, plain.encode(frame.copy()))
    assert not same(frame, plain.encode(frame.assign(a=0)))
    assert same(1.0, plain.encode(1.0 + 1e-9), rel=1e-6)
    assert not same(1.0, plain.encode(1.0 + 1e-9))


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    path = tmp_path / "data.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t (a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'x'), (1, 'x'), (2, NULL);")
    connection.close()
    return SqliteDatabase(path)


SQL_ATTACKS = [
    "DROP TABLE t",
    "UPDATE t SET a = 9",
    "DELETE FROM t",
    "INSERT INTO t VALUES (5, 'z')",
    "PRAGMA writable_schema = 1",
    "ATTACH DATABASE '/tmp/evil' AS evil",
    "SELECT load_extension('/tmp/x')",
    "SELECT readfile('/etc/passwd')",
    ".shell id",
    "SELECT LOAD_FILE('/etc/passwd')",
    "SELECT 1 INTO OUTFILE '/tmp/x'",
    "SELECT SLEEP(9999)",
    "SELECT GET_LOCK('x', 9)",
    "KILL 1",
    "SET GLOBAL x = 1",
    "SELECT 1; DROP TABLE t",
    "VACUUM INTO '/tmp/x'",
]


@pytest.mark.parametrize("query", SQL_ATTACKS)
def test_row_30_sql_that_is_no_reading_is_an_error_and_changes_nothing(database: SqliteDatabase, query: str) -> None:
    before = database.execute("SELECT * FROM t ORDER BY rowid")
    assert isinstance(database.execute(query), SqlError)
    assert database.execute("SELECT * FROM t ORDER BY rowid") == before


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 1000000) "
        "SELECT count(*) FROM c a, c b, c d",
    ],
)
def test_row_30_an_endless_query_is_stopped(database: SqliteDatabase, query: str) -> None:
    started = time.monotonic()
    result = database.execute(query, QueryLimits(time_s=0.5))
    assert isinstance(result, SqlError)
    assert result.timed_out
    assert time.monotonic() - started < 30


def test_row_30_rows_are_capped_and_honest_queries_work(database: SqliteDatabase) -> None:
    many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT {}) SELECT n FROM c"
    capped = database.execute(many.format(1_000_000), QueryLimits(max_rows=10_000))
    assert isinstance(capped, Rows)
    assert capped.cut
    assert len(capped.rows) <= 10_000
    whole = database.execute(many.format(10_000))
    assert isinstance(whole, Rows)
    assert (len(whole.rows), whole.cut) == (10_000, False)
    joined = database.execute("SELECT x.a, y.b FROM t x JOIN t y ON x.a = y.a WHERE y.b IS NULL")
    assert isinstance(joined, Rows)
    assert joined.rows == ((2, None),)


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("__import__('os').environ.update(LEMUR_PWNED='1')",)


def test_row_31_only_json_and_bounded_bytes_cross(box: Sandbox) -> None:
    code = f"import pickle\ndef f(x): return {pickle.dumps(Payload())!r}"
    answer = AnswerProcess(box, code)
    value = answer.call("f", (3,)).value
    assert same(pickle.dumps(Payload()), value), "bytes stay bytes"
    answer.close()
    assert not solves(box, "class A:\n  def __reduce__(self): return (print, ('x',))\ndef f(x): return A()")
    deep = AnswerProcess(
        box,
        "def f(x):\n  import os, sys\n  for fd in range(3, 20):\n    try: os.write(fd, b'[' * 100000)\n"
        "    except OSError: pass\n  os._exit(0)",
    )
    assert deep.call("f", (3,)).value is None
    deep.close()


def test_row_31_archives_hit_the_quota_and_do_not_climb(box: Sandbox) -> None:
    bash(
        box,
        "python3 - <<'END'\nimport zipfile\nwith zipfile.ZipFile('slip.zip', 'w') as z:\n  "
        "z.writestr('../../usr/x', 'x')\n"
        "  z.writestr('../escaped', 'x')\nwith zipfile.ZipFile('bomb.zip', 'w', zipfile.ZIP_DEFLATED) as z:\n"
        "  for i in range(20): z.writestr(f'b{i}', b'0' * 2_000_000, compresslevel=1)\nEND",
        limits=LONG,
    )
    assert bash(box, "python3 -m zipfile -e slip.zip out; ls /usr/x").exit_code != 0
    bomb = bash(box, "python3 -m zipfile -e bomb.zip out2", limits=LONG)
    assert "No space left" in bomb.err
    assert bash(box, "rm -rf out2; echo x > y; cat y").out == "x\n"


def test_row_37_a_flag_is_only_where_the_task_puts_it(backend: str, tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task/flag.txt").write_text("flag{in_its_place}")
    (tmp_path / "solution.txt").write_text("flag{canary_of_the_solution}")
    sandbox = open_sandbox(SandboxSpec(trees={"/ctf/1": tmp_path / "task"}, run="ctf"), backend)
    try:
        assert sandbox.exec(["cat", "/ctf/1/flag.txt"], cwd="/ctf/1").out == "flag{in_its_place}"
        places = "--exclude-dir=proc --exclude-dir=usr --exclude-dir=dev --exclude-dir=python"
        found = sandbox.exec(["bash", "-c", f"grep -rl 'flag{{' / {places} 2>/dev/null"])
        assert found.out == "/ctf/1/flag.txt\n"
        found = sandbox.exec(["bash", "-c", "env; cat ~/.bash_history; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
        assert "canary_of_the_solution" not in found.out
    finally:
        sandbox.close()
