"""``RunningSite``: one application's process on a free local port, with a folder of its own.

A site never outlives this process, however this one ends: it reads from a pipe whose other end is open only here, and
when the pipe closes, it removes its folder and exits."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from envs.webarena.site_set import SitesLost
from envs.webarena.sites.software import APPS, Software, interpreter, programs
from lemur_ray.host.ports import free_port

START_S, PROBE_S, END_S = 180.0, 60.0, 10.0
"""Seconds to start, to answer a probe, and to exit. A probe has long, because an abandoned request goes on within the
site, and requests that pile up make a slow machine slower."""
PREFIX = "lemur-site-"
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class RunningSite:
    """A served application with a process, port and folder of its own. The constructor starts it and waits until it
    answers. Raises SitesLost, with the last lines the program printed, if it does not answer in time."""

    def __init__(self, software: Software, folder: Path) -> None:
        self.software = software
        self.folder = folder
        for _ in range(3):  # another process may have taken the port meanwhile
            self.port = free_port()
            self._process = start_program(software, folder, "serve", str(folder), str(self.port))
            if self._wait_until_up():
                return
            self.stop()
        raise SitesLost(f"{software.title} did not start: {last_lines(folder)}")

    @property
    def base(self) -> str:
        """URL of the site, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the process runs and its probe path answers."""
        return self._process.poll() is None and self._probe_succeeds()

    def close(self) -> None:
        """Kill the process and remove its folder. Safe to call twice."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        """Kill the process with its children. Its folder stays."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _wait_until_up(self) -> bool:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._probe_succeeds():
                return self._process.poll() is None
            time.sleep(0.05)
        return False

    def _probe_succeeds(self) -> bool:
        try:
            with _DIRECT.open(self.base + self.software.probe, timeout=PROBE_S) as answer:
                return bool(answer.status == 200 and answer.read(1))
        except (OSError, urllib.error.URLError):
            return False


def new_folder() -> Path:
    """Create a folder that only this user can read. Also removes folders older than a day whose process has ended."""
    for old in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        starter = old.name.removeprefix(PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            # Only after a day: the process may run on another machine that shares the temporary folder.
            if not Path(f"/proc/{starter}").exists() and time.time() - old.stat().st_mtime > 86_400:
                shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))


def start_program(software: Software, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start an application's program, with output to ``folder/log``. ``words``: arguments, the first build or serve."""
    python = str(interpreter()) if software.module else "python3"
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO"))}
    program = (programs() or APPS) / software.program[0]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [python, "-B", str(program), words[0], *software.program[1:], *words[1:]],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**known, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )


def last_lines(folder: Path) -> str:
    """Return the last four lines of a site's log, joined to one line for error messages."""
    text = (folder / "log").read_text(errors="replace") if (folder / "log").is_file() else ""
    return " | ".join(text.strip().splitlines()[-4:]) or "it printed nothing"
