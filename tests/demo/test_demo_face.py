"""What a person sees of the demo, with quick made-up jobs: with and without a terminal, of a failure, after Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("made_up_demo.py")
WITHIN_S = 120.0


def command(mode: str, folder: Path) -> dict[str, object]:
    args = [sys.executable, str(SCRIPT), mode, str(folder)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "jobs")])
    # The width is the terminal's own, whatever this test itself runs in.
    own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return {
        "args": args,
        "env": {**own, "LEMUR_HOME": str(folder / "home"), "TERM": "xterm", "PYTHONPATH": path},
    }


def without_terminal(mode: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(**command(mode, folder), capture_output=True, text=True, timeout=WITHIN_S)  # type: ignore[call-overload]


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def of_made_up_head(folder: Path) -> list[int]:
    """Processes of the made-up head and its jobs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"token-of-{folder}".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def _hears_ctrl_c() -> None:
    """As programs of a terminal do; what a script starts in the background inherits that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class OnTerminal:
    """The demo on a terminal of 90 columns."""

    def __init__(self, mode: str, folder: Path):
        self.main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 90, 0, 0))
        self.process = subprocess.Popen(  # type: ignore[call-overload]
            **command(mode, folder), stdin=other, stdout=other, stderr=other, start_new_session=True,
            preexec_fn=_hears_ctrl_c,
        )  # fmt: skip
        os.close(other)
        self.raw = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other side is closed
            while piece := os.read(self.main, 4096):
                self.raw += piece

    def shows(self, pattern: str) -> bool:
        return re.search(pattern, self.text()) is not None

    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw.decode(errors="replace")).replace("\r", "")


@pytest.fixture
def on_terminal(tmp_path: Path) -> Iterator[Callable[[str], OnTerminal]]:
    started: list[OnTerminal] = []

    def start(mode: str) -> OnTerminal:
        started.append(OnTerminal(mode, tmp_path))
        return started[-1]

    yield start
    for demo in started:
        demo.process.kill()
        demo.process.wait()
    for pid in of_made_up_head(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for demo in started:
        demo.reader.join(WITHIN_S)  # or it would read from what is opened next under that number
        os.close(demo.main)


def test_on_a_terminal_it_is_one_screen_that_is_drawn_in_place(
    on_terminal: Callable[[str], OnTerminal], tmp_path: Path
) -> None:
    demo = on_terminal("well")
    row = r"now +pretraining +\d:\d\d +50% 1,234 tokens/s +0:09 left loss 3.250"
    until(lambda: demo.shows(row), "half of pretraining is never shown")
    (tmp_path / "go").touch()
    assert demo.process.wait(WITHIN_S) == 0
    demo.reader.join(WITHIN_S)
    last = demo.text()[demo.text().rindex("demo: all that") :]
    assert re.search(r"done +pretraining +\d:\d\d +loss 3.125", last)
    assert re.search(r"done +corpus +\d:\d\d +2.4 million tokens", last)
    assert last.count("19 of 20 solved") == 5
    assert len(last.splitlines()) < 20
    assert "noise of Ray" not in demo.text()
    assert b"\x1b[1A" in demo.raw, "the cursor never goes up"


def test_without_a_terminal_it_is_at_most_40_lines_and_the_rest_lies_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    done = without_terminal("well", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert "\x1b" not in done.stdout
    assert "pretraining 50%, 1,234 tokens/s, 0:09 left, loss 3.250" in lines
    assert any(re.fullmatch(r"tuned model done after \d+:\d\d: 19 of 20 solved", line) for line in lines)
    assert lines[-1].endswith(f"Open {tmp_path}/home/report/index.html")
    assert str(tmp_path / "home" / "demo.log") in lines[0]
    log = (tmp_path / "home" / "demo.log").read_text()
    assert log.count("noise of Ray") == 18
    assert "said after the server is up" in log


def test_a_stage_that_fails_shows_the_end_of_its_output_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    done = without_terminal("failing", tmp_path)
    assert done.returncode == 1
    assert re.search(r"^tuning failed after", done.stdout, re.MULTILINE)
    assert "tuned model" not in done.stdout
    assert "  | a first line\n  | instruct: no such table\n" in done.stderr
    assert "status 3" in done.stderr
    assert f"all of it: {tmp_path}/home/demo.log" in done.stderr
    assert "LEMUR_HOME=NEW_FOLDER" in done.stderr
    assert not of_made_up_head(tmp_path)


def test_ctrl_c_ends_everything_that_was_started(on_terminal: Callable[[str], OnTerminal], tmp_path: Path) -> None:
    demo = on_terminal("endless")
    until(lambda: demo.shows(r"pretraining +\d:\d\d +50%"), "half of pretraining is never shown")
    assert of_made_up_head(tmp_path)
    os.killpg(demo.process.pid, signal.SIGINT)  # as a terminal does
    assert demo.process.wait(WITHIN_S) == 130
    demo.reader.join(WITHIN_S)
    assert demo.shows(r"stopped pretraining")
    assert demo.shows("the same command goes on where it left off")
    until(lambda: not of_made_up_head(tmp_path), "something is left running")


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    done = without_terminal("well", tmp_path)
    assert done.returncode == 1
    assert "LEMUR_HOME=" in done.stderr
