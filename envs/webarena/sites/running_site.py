"""One running site: a process on a free port of this machine with a folder of its own, and how it ends.

It ends with this process, however that ends: it reads from a pipe whose other end is held here alone, and takes its
folder along. Knows no task and no golden copy.
"""

from __future__ import annotations

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
from envs.webarena.sites.software import Software, interpreter
from lemur_ray.host.ports import free_port

START_S, LOOK_S, END_S = 180.0, 60.0, 10.0
"""A look has long: one that is given up goes on within the site, and looks that pile up make a slow machine slower."""
PREFIX = "lemur-site-"
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class RunningSite:
    """Started by its constructor, which waits until it answers. Raises SitesLost with the last it printed."""

    def __init__(self, software: Software, folder: Path) -> None:
        self.software = software
        self.folder = folder
        for _ in range(3):  # somebody may have taken the port meanwhile
            self.port = free_port()
            self._process = started(software, folder, "serve", str(folder), str(self.port))
            if self._answers_in_time():
                return
            self.stop()
        raise SitesLost(f"{software.title} did not start: {last_lines(folder)}")

    @property
    def base(self) -> str:
        """Without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether it answers what it must."""
        return self._process.poll() is None and self._looks_well(LOOK_S)

    def close(self) -> None:
        """End it and remove its folder. Safe to call twice."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        """End it; its folder stays."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _answers_in_time(self) -> bool:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._looks_well(LOOK_S):
                return self._process.poll() is None
            time.sleep(0.05)
        return False

    def _looks_well(self, timeout_s: float) -> bool:
        try:
            with _DIRECT.open(self.base + self.software.look, timeout=timeout_s) as answer:
                return bool(answer.status == 200 and answer.read(1))
        except (OSError, urllib.error.URLError):
            return False


def new_folder() -> Path:
    """Empty, of this user alone. Takes away those of processes that are gone: of sites that were killed with them."""
    for old in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        starter = old.name.removeprefix(PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            # A day: another machine's processes, with a temporary folder in common, have numbers of their own.
            if not Path(f"/proc/{starter}").exists() and time.time() - old.stat().st_mtime > 86_400:
                shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))


def started(software: Software, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """The program of an application; what it prints goes to ``folder/log``."""
    python = str(interpreter()) if software.module else "python3"
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO"))}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [python, "-B", software.program[0], words[0], *software.program[1:], *words[1:]],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**known, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )


def last_lines(folder: Path) -> str:
    """What its program printed last, in one line."""
    text = (folder / "log").read_text(errors="replace") if (folder / "log").is_file() else ""
    return " | ".join(text.strip().splitlines()[-4:]) or "it printed nothing"
