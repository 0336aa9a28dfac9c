"""The Python session: what IPython would show, what stays, and what ends it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lemur_ray.sandbox import python_repl
from lemur_ray.sandbox.inside.payload.ipython_text import value_text
from lemur_ray.sandbox.python_repl import LOST, PythonSession
from lemur_ray.sandbox.sandbox import Sandbox, SandboxDestroyed, SandboxSpec, open_sandbox

RULE = "-" * 75


@pytest.fixture
def session(box: Sandbox) -> Iterator[PythonSession]:
    made = PythonSession(box)
    yield made
    made.close()


def test_cells_share_variables_and_the_last_value_is_shown(session: PythonSession) -> None:
    assert session.run("x = 5\nprint('a')\nx * 2") == "a\nOut[1]: 10\n"
    assert session.run("x;") == ""
    assert session.run("None") == ""
    assert session.run("_ + Out[1] + x") == "Out[4]: 25\n"
    assert session.run("'a\\nb'") == "Out[5]: 'a\\nb'\n"


def test_an_error_shows_the_cell_as_ipython_does(session: PythonSession) -> None:
    session.run("a = 1")
    shown = session.run("from math import pi\n\n# the product\nf(pi)\nprint(1)\nprint(2)\nprint(3)")
    assert shown == (
        f"{RULE}\nNameError                                 Traceback (most recent call last)\n"
        "Cell In[2], line 4\n"
        "      1 from math import pi\n"
        "      3 # the product\n"
        "----> 4 f(pi)\n"
        "      5 print(1)\n"
        "      6 print(2)\n"
        "\nNameError: name 'f' is not defined\n"
    )


def test_an_error_in_a_function_shows_both_frames(session: PythonSession) -> None:
    shown = session.run("def f(x, *rest):\n    y = 1\n    return x / 0\n\nf(3)")
    assert "Cell In[1], line 5\n      1 def f(x, *rest):" not in shown
    assert (
        "Cell In[1], line 3, in f(x, *rest)\n      1 def f(x, *rest):\n      2     y = 1\n----> 3     return x / 0\n"
        in shown
    )
    assert shown.endswith("\nZeroDivisionError: division by zero\n")


def test_chained_errors_are_joined_by_their_sentence(session: PythonSession) -> None:
    shown = session.run("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('bad') from e")
    assert "\n\nThe above exception was the direct cause of the following exception:\n\nValueError  " in shown
    assert shown.count(RULE) == 1


def test_a_syntax_error_shows_its_line(session: PythonSession) -> None:
    assert session.run("y = 8 -").startswith("  Cell In[1], line 1\n    y = 8 -\n")
    assert session.run("1 +* 2").endswith("^\nSyntaxError: invalid syntax\n")


def test_a_cell_that_takes_too_long_gets_its_error_and_the_variables_stay(
    session: PythonSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_repl, "HARD_S", 20.0)  # on a busy machine the error may come late
    session.run("x = 5")
    late = session.cell("while True: pass", time_s=1.0)
    assert late.timed_out
    assert late.text.endswith("\nTimeoutError: Timed out after 1 seconds.\n")
    assert session.run("x") == "Out[3]: 5\n"


def test_a_cell_that_ignores_its_time_is_killed_and_the_text_says_so(session: PythonSession) -> None:
    started = time.monotonic()
    late = session.cell("import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass", time_s=0.5)
    assert time.monotonic() - started < 25.0
    assert late.restarted
    assert LOST in late.text
    assert session.run("1 + 1") == "Out[1]: 2\n"


@pytest.mark.parametrize("code", ["import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_a_session_that_ends_is_started_again(session: PythonSession, code: str) -> None:
    assert session.cell(code).restarted
    assert session.run("1 + 1") == "Out[1]: 2\n"


@pytest.mark.parametrize("name", ["ast", "inspect", "json", "site", "sitecustomize", "usercustomize", "signal"])
def test_files_of_the_policy_have_no_say_in_the_next_start(session: PythonSession, name: str) -> None:
    poison = (
        "import os, site\nhome = site.getusersitepackages()\nos.makedirs(home, exist_ok=True)\n"
        f"for folder in ('/work', home):\n    open(folder + '/{name}.py', 'w').write('import os; os._exit(7)')\n"
        "open(home + '/evil.pth', 'w').write('import os; os._exit(7)\\n')\nos._exit(1)"
    )
    assert session.cell(poison).restarted
    assert session.run("1 + 1") == "Out[1]: 2\n"


def test_modules_in_the_working_folder_can_be_imported(session: PythonSession) -> None:
    session.run("open('mine.py', 'w').write('x = 5');")
    assert session.run("import mine, sys\nmine.x, sys.path[0]") == "Out[2]: (5, '')\n"


@pytest.mark.parametrize("code", ["raise SystemExit", "exit()", "import sys; sys.exit(3)"])
def test_leaving_a_cell_does_not_leave_the_session(session: PythonSession, code: str) -> None:
    assert not session.cell(code).restarted
    assert session.run("1 + 1") == "Out[2]: 2\n"


def test_reading_standard_input_ends_at_once(session: PythonSession) -> None:
    assert "EOFError" in session.run("input()")


def test_a_shell_line_and_a_magic_line_are_understood(session: PythonSession) -> None:
    assert session.run("!echo hi") == "hi\n"
    assert "UsageError: Line magic function `%nothing` not found." in session.run("%nothing 3")


def test_values_are_broken_as_ipython_breaks_them() -> None:
    assert value_text([1, 2]) == "[1, 2]"
    assert value_text(list(range(40))) == "[" + ",\n ".join(map(str, range(40))) + "]"
    assert value_text({"b": 1, "a": {3, 1}}) == "{'b': 1, 'a': {1, 3}}"
    assert value_text((1,)) == "(1,)"
    assert value_text(int) == "int"
    assert value_text("x" * 200) == repr("x" * 200)
    nested: list[object] = []
    nested.append(nested)
    assert value_text(nested) == "[[...]]"


def test_a_reset_of_the_sandbox_begins_the_session_anew(box: Sandbox, session: PythonSession) -> None:
    session.run("import os; os.chdir('/tmp'); x = 1")
    box.reset()
    assert "NameError" in session.run("x")
    assert session.run("os.getcwd() if 'os' in globals() else __import__('os').getcwd()") == "Out[2]: '/work'\n"


def test_cells_that_leave_no_python_behind_have_destroyed_their_sandbox(backend: str) -> None:
    """Their policy is to blame, not the environment that wants to run the next one."""
    with open_sandbox(SandboxSpec(), backend) as sandbox:  # type: ignore[attr-defined]
        session = PythonSession(sandbox)
        assert session.cell("import os; os.chmod('/', 0o755); os.rename('/work', '/gone'); os._exit(1)").restarted
        with pytest.raises(SandboxDestroyed, match="no Python starts") as raised:
            session.cell("1 + 1")
        assert raised.value.blame == "policy"
