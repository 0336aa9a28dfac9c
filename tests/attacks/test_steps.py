"""Rows 7, 8, 9, 22, 23 and 32: time, standard input, terminals, the persistent shell, the clock."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace

import pytest

from lemur_ray.sandbox.sandbox import Sandbox
from lemur_ray.sandbox.shell import Shell
from tests.attacks.arena import LIMITS, bash, python

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
    assert box.processes() == 0
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
    assert box.processes() == 0


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


ENDINGS = ["exit 3", "exec sleep 0.2", "exec python3 -c 1", "kill -9 $$", "set -e; false", "set -u; echo $nothing"]


@pytest.mark.parametrize("command", ENDINGS)
def test_row_22_a_shell_that_ends_is_started_again_and_the_result_says_so(box: Sandbox, command: str) -> None:
    shell = Shell(box)
    assert shell.run("cd /tmp; export A=1").exit_code == 0
    ended = shell.run(command)
    assert ended.restarted
    assert "directory, variables and functions are lost" in ended.note
    again = shell.run("pwd; echo [$A]")
    assert again.out == "/work\n[]\n"
    shell.close()


STAYING = [
    "echo 'unclosed",
    "cat <<END\nnever closed",
    "echo trailing \\",
    "PS1=; PS2=; PROMPT_COMMAND='exit 1'",
    "trap 'echo bye' EXIT",
    "stty sane",
    "if true; then",
    "IFS=; unset PATH; hash -r",
]


@pytest.mark.parametrize("command", STAYING)
def test_row_22_a_broken_command_ends_and_the_shell_stays(box: Sandbox, command: str) -> None:
    shell = Shell(box)
    shell.run("cd /tmp")
    assert not shell.run(command, 20.0).timed_out
    assert shell.run("pwd").out.endswith("/tmp\n")
    shell.close()


FORGERIES = [
    "echo 0123456789abcdef0123456789abcdef 0 >&8; sleep 0.3; echo real",
    "exec 8>&-; exec 9<&-; sleep 0.3; echo real",
    "exec 8>/dev/null 9</dev/null; echo real",
    "for fd in /proc/$$/fd/*; do echo 0 0 >$fd; done 2>/dev/null; sleep 0.3; echo real >&2",
    "PROMPT_COMMAND='echo forged'; printf() { echo forged; }; read() { echo forged; }; sleep 0.3; echo real",
    "alias echo='exit 0'; cd() { exit 0; }; sleep 0.3; command echo real",
    "while read -t 0.1 -u 9 line; do echo stolen; done; echo real",
]


@pytest.mark.parametrize("command", FORGERIES)
def test_row_23_the_end_of_a_command_cannot_be_forged(box: Sandbox, command: str) -> None:
    shell = Shell(box)
    result = shell.run(command, 20.0)
    assert "real" in result.out + result.err, "the step was taken to be over before it was"
    assert "stolen" not in result.out
    assert shell.run("builtin echo next", 20.0).out.endswith("next\n")
    shell.close()


def test_row_23_fake_programs_in_the_path_do_not_reach_the_harness(box: Sandbox) -> None:
    box.write("a.txt", b"before\n")
    shell = Shell(box)
    shell.run("mkdir -p bin; for p in ls diff md5sum git cat; do printf '#!/bin/sh\\necho fake\\n' > bin/$p; done")
    shell.run("chmod +x bin/*; export PATH=bin:$PATH; cat() { echo fake; }")
    assert shell.run("cat a.txt").out == "fake\n"
    before = box.snapshot()
    assert box.read("a.txt") == b"before\n"
    shell.run("echo changed > a.txt")
    assert box.snapshot() != before
    shell.close()


def test_row_32_the_clock_of_the_harness_cannot_be_set(box: Sandbox) -> None:
    before, steady = time.time(), time.monotonic()
    result = bash(box, "date -s '2001-01-01' 2>&1; faketime 2>&1; date +%Y")
    assert "cannot set date" in result.out
    assert abs((time.time() - before) - (time.monotonic() - steady)) < 1.0
    assert int(result.out.split()[-1]) == time.gmtime().tm_year
    assert os.getpid() > 0
