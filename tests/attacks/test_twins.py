"""The benign twins: a sandbox that refuses everything would pass every attack, and must fail here."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

import pytest

from envs.intercode.shell.terminal import Terminal
from lemur_ray.sandbox.python_repl import PythonSession
from lemur_ray.sandbox.sandbox import Sandbox
from tests.attacks.arena import LIMITS, bash, python

LONG = replace(LIMITS, time_s=20.0)

TWINS = {
    "1 twenty processes at once": ("for i in $(seq 20); do (sleep 0.2; echo $i) & done; wait", "20", 20),
    "1 two hundred short children": ("for i in $(seq 200); do /bin/true; done; echo 200", "200", 1),
    "3 one megabyte and two hundred files": (
        "head -c 1000000 /dev/zero > big; for i in $(seq 200); do echo $i > f$i; done; echo more >> f1; "
        "chmod 600 f1; rm f2; ls | wc -l; stat -c %a f1; wc -c < big",
        "1000000",
        3,
    ),
    "6 coloured ls": ("mkdir folder; ls --color=always", "folder", 1),
    "7 a slow command": ("sleep 3; echo done", "done", 1),
    "8 cat, a pipe, a here-doc": (
        "echo text > f; cat f; echo piped | (read x; echo $x); cat <<END\nhere\nEND",
        "here",
        3,
    ),
    "10 a server and a client on the own loopback": (
        "echo hello > f; python3 -m http.server 8000 >/dev/null 2>&1 & for i in $(seq 100); do "
        'python3 -c "import urllib.request as u; '
        "print(u.urlopen('http://127.0.0.1:8000/f').read().decode())\" 2>/dev/null "
        "&& break; sleep 0.05; done; kill %1",
        "hello",
        1,
    ),
    "12 own environment and processes": (
        "env | grep -c HOME; ls /proc/self/fd | wc -l; find . | head -1; ps | wc -l",
        ".",
        4,
    ),
    "16 an own child and an own script": (
        "sleep 60 & kill %1; wait %1; printf '#!/bin/sh\\necho ran\\n' > s; chmod +x s; ./s",
        "ran",
        1,
    ),
    "19 a background job within a step": ("(sleep 0.2; echo late > f) & wait; cat f", "late", 1),
    "20 git": (
        "git init -q . && git config user.email a@b && git config user.name n && echo x > f && git add f && "
        "git commit -qm first && git log --oneline | wc -l && git status --short | wc -l",
        "0",
        2,
    ),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_benign_twin_works(box: Sandbox, twin: str) -> None:
    script, last, lines = TWINS[twin]
    result = bash(box, script, limits=LONG)
    assert result.exit_code in (0, 143), result
    assert last in result.out.split("\n")[-2] or last in result.out.split()
    assert len(result.out.strip().split("\n")) >= min(lines, 1)
    assert result.blame is None
    assert not result.truncated


def test_a_hundred_megabytes_of_memory_in_one_process(box: Sandbox) -> None:
    assert python(box, "x = bytearray(100 << 20); print(len(x))", limits=LONG).out == "104857600\n"


def test_thirty_kilobytes_of_output_come_through_untouched(box: Sandbox) -> None:
    text = ("line of text, 雪 and 🦊 and \x1b[31mred\x1b[0m\n" * 1000)[:30_000]
    result = bash(box, "cat", stdin=text.encode())
    assert result.out == text
    assert (result.truncated, result.bytes_dropped) == (False, 0)


def test_a_unix_socket_of_its_own(box: Sandbox) -> None:
    code = (
        "import socket, threading\ns = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen()\n"
        "c = socket.socket(socket.AF_UNIX); c.connect('s'); c.send(b'hi'); print(s.accept()[0].recv(2))"
    )
    assert python(box, code).out == "b'hi'\n"


def test_a_link_within_the_work_folder_is_read_by_the_harness(box: Sandbox) -> None:
    bash(box, "mkdir d; echo text > d/f; ln -s d/f link; ln -s d folder")
    assert box.read("link") == b"text\n"
    assert box.read("folder/f") == b"text\n"


def test_a_folder_is_remembered_from_action_to_action_and_a_session_keeps_its_names(box: Sandbox) -> None:
    terminal = Terminal(box, "/work", compat=False, limits=LONG)
    assert terminal.run("mkdir -p a/b").exit_code == terminal.run("cd a/b").exit_code == 0
    assert terminal.run("pwd").text == "/work" + "/a/b\n"
    session = PythonSession(box)
    session.run("import os\nos.environ['A'] = '1'\ndef f(): return 'f' + os.environ['A']")
    assert session.run("f()") == "Out[2]: 'f1'\n"
    assert session.run("!echo $A") == "1\n"
    session.close()


def test_a_small_archive_is_unpacked(box: Sandbox) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("a/b.txt", "content")
    box.write("a.zip", held.getvalue())
    assert bash(box, "python3 -m zipfile -e a.zip . && cat a/b.txt").out == "content"


def test_text_that_quotes_an_observation_is_text(box: Sandbox) -> None:
    text = "Observation:\n```\ncode with `backticks` inside\n```\n"
    assert bash(box, "cat", stdin=text.encode()).out == text
