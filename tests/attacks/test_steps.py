"""Rows 7, 8, 9, 22, 23 and 32: time, standard input, terminals, shells and sessions that are broken, the clock."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace

import pytest

from envs.intercode.shell.terminal import Terminal
from lemur_ray.sandbox import python_repl
from lemur_ray.sandbox.python_repl import LOST, PythonSession
from lemur_ray.sandbox.sandbox import Sandbox
from tests.attacks.arena import LIMITS, bash, processes, python

SHORT = replace(LIMITS, time_s=1.0)


@pytest.mark.parametrize(
    "script",
    [
        "while :; do :; done",
        "sleep 1000000000",
        "trap '' TERM INT ALRM HUP; while :; do sleep 100; done",
        "python3 -c 'import signal; signal.signal(signal.SIGALRM, signal.SIG_IGN); signal.pause()'",
        "setsid sleep 1000 & sleep 1000",
    ],
)
def test_row_07_a_step_is_killed_at_its_limit_and_the_episode_goes_on(box: Sandbox, script: str) -> None:
    result = bash(box, script, limits=SHORT)
    assert result.timed_out
    assert result.note.startswith("timed out after 1 s")
    assert result.signal == 9
    assert 0.9 < result.wall_s < 3.0
    assert processes(box) == 0
    assert bash(box, "echo on").out == "on\n"


@pytest.mark.parametrize(
    "script",
    [
        "read line; echo ended",
        "cat; echo ended",
        "python3 -c 'input()'; echo ended",
        "python3; echo ended",
        "python3 -i -c 1; echo ended",
        "less /etc/passwd; echo ended",
        "vi x; echo ended",
        "sudo -S true; echo ended",
        "ssh nowhere; echo ended",
        "git -C / log; echo ended",
        "apt-get install nothing; echo ended",
    ],
)
def test_row_08_who_reads_standard_input_sees_its_end(box: Sandbox, script: str) -> None:
    if not shutil.which(script.split()[0].strip(";")) and script.split()[0] not in ("read", "cat"):
        script = f"command -v {script.split()[0]} || echo ended"
    result = bash(box, script)
    assert "ended" in result.out or result.timed_out, result
    assert processes(box) == 0


def test_row_09_there_is_no_terminal_to_read_or_to_type_into(box: Sandbox) -> None:
    result = python(
        box,
        "import fcntl, os\n"
        "try: os.open('/dev/tty', os.O_RDWR)\n"
        "except OSError as e: print(e.errno)\n"
        "for fd in range(3):\n"
        "  print(os.isatty(fd))\n"
        "  try: fcntl.ioctl(fd, 0x5412, b'x')\n"
        "  except OSError as e: print(e.strerror)\n",
    )
    lines = result.out.split("\n")
    assert lines[0] in ("6", "2"), "ENXIO, or no such device at all"
    assert lines[1::2][:3] == ["False"] * 3
    assert all(line in ("Operation not permitted", "Inappropriate ioctl for device") for line in lines[2:7:2])


@pytest.fixture
def terminal(box: Sandbox) -> Terminal:
    """As InterCode's environments carry out actions: each in a shell of its own, in a folder that is remembered."""
    return Terminal(box, "/work", compat=False, limits=SHORT)


ENDINGS = [
    *("exit 3", "exec sleep 0.2", "exec python3 -c 1", "kill -9 $$", "kill -9 $PPID", "set -e; false"),
    *("set -u; echo $nothing", "echo 'unclosed", "cat <<END\nnever closed", "echo trailing \\", "if true; then"),
    *("PS1=; PS2=; PROMPT_COMMAND='exit 1'", "trap 'echo bye' EXIT", "stty sane", "IFS=; unset PATH; hash -r"),
    "exec 0<&- 1>&- 2>&-; sleep 100 & disown",
]


@pytest.mark.parametrize("command", ENDINGS)
def test_row_22_whatever_ends_or_breaks_a_shell_the_next_action_has_a_new_one(terminal: Terminal, command: str) -> None:
    assert terminal.run("cd /tmp").exit_code == 0
    broken = terminal.run(f"export A=1; {command}")
    assert not broken.destroyed
    again = terminal.run("pwd; echo [$A]")
    assert (again.text, again.exit_code) == ("/tmp\n[]\n", 0), (
        "the folder is the harness's to remember, not the shell's"
    )


LEAVING = [
    "import os; os._exit(3)",
    "import os; os.execvp('sleep', ['sleep', '0.2'])",
    "import os; os.kill(os.getpid(), 9)",
]


@pytest.mark.parametrize("code", LEAVING)
def test_row_22_a_session_that_ends_is_started_again_and_the_text_says_so(box: Sandbox, code: str) -> None:
    session = PythonSession(box)
    session.run("x = 1")
    ended = session.cell(code, 5.0)
    assert ended.restarted
    assert LOST in ended.text
    assert "NameError" in session.run("x")
    session.close()


FORGERIES = [
    "for fd in /proc/$$/fd/* 3 8 9; do echo 0123456789abcdef0123456789abcdef 0 >&${fd##*/}; done 2>/dev/null",
    "exec 3>&- 8>&- 9<&-",
    "exec 3>/dev/null 8>/dev/null 9</dev/null",
    "PROMPT_COMMAND='echo forged'; printf() { echo forged; }; read() { echo forged; }",
    "alias echo='exit 0'; cd() { exit 0; }; exec() { exit 0; }",
    "kill -STOP $PPID",
]


@pytest.mark.parametrize("command", FORGERIES)
def test_row_23_the_end_of_an_action_cannot_be_forged(terminal: Terminal, command: str) -> None:
    output = terminal.run(f"{command}; sleep 0.3; builtin echo real >&2")
    assert output.text.endswith("real\n"), "the action was taken to be over before it was"
    assert terminal.run("echo next").text == "next\n"


CELL_FORGERIES = [
    "import os\nfor fd in range(3, 32):\n  try: os.write(fd, b'0123456789abcdef0123456789abcdef 0\\n')\n"
    "  except OSError: pass",
    "import os; os.dup2(os.open('/dev/null', os.O_RDWR), 9)",
    "import os; os.close(8)",
    "import os, select\nwhile select.select([9], [], [], 0.1)[0]: word = os.read(9, 100)\nos.write(8, word + b' 0\\n')",
    "import sys\nframe = sys._getframe()\nwhile frame: frame.f_locals.clear(); frame = frame.f_back",
]


@pytest.mark.parametrize("code", CELL_FORGERIES)
def test_row_23_the_end_of_a_cell_cannot_be_forged_by_guessing_and_forging_it_costs_only_the_session(
    box: Sandbox, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_repl, "HARD_S", 1.0)
    session = PythonSession(box)
    session.run("x = 1")
    cell = session.cell(f"{code}\nimport time; time.sleep(0.3); print('real')", 5.0)
    assert "real" in cell.text or "word" in code, "the cell was taken to be over before it was"
    answered = [session.run("6 * 7", 1.0) for _ in range(3)]
    assert any("42" in text for text in answered), answered
    assert bash(box, "echo on").out == "on\n"
    session.close()


def test_row_23_who_writes_where_the_end_is_said_without_end_is_ended_and_not_waited_for(box: Sandbox) -> None:
    session = PythonSession(box)
    began = time.monotonic()
    cell = session.cell("import os\nwhile True: os.write(8, b'0' * 60_000)", 60.0)
    assert LOST in cell.text
    assert time.monotonic() - began < 50.0
    session.close()


def test_row_32_the_clock_of_the_harness_cannot_be_set(box: Sandbox) -> None:
    before, steady = time.time(), time.monotonic()
    result = bash(box, "date -s '2001-01-01' 2>&1; faketime 2>&1; date +%Y")
    assert "cannot set date" in result.out
    assert abs((time.time() - before) - (time.monotonic() - steady)) < 1.0
    assert int(result.out.split()[-1]) == time.gmtime().tm_year
    assert os.getpid() > 0
