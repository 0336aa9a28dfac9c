"""``BrowserHost``: one Chromium for all environments of a process, with an event loop in a thread of its own.

The browser resolves only given host names, since a proxy blocks requests but not the name look-ups of a page's WebRTC.

Environments call from their own threads (``run``), each call with a time limit. A browser that has ended is started
again for the next episode; one that no longer answers is first killed by its process id. The episodes that used it get
``BrowserLost`` and are played again."""

import asyncio
import contextlib
import os
import signal
import threading
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from playwright.async_api import Browser, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from envs.webarena.browser.chromium import FLAGS, executable
from lemur_ray.agents.external_calls import ExternalCallError

T = TypeVar("T")
LAUNCH_S = 60.0
ANSWERS_S = 10.0
"""Seconds in which a healthy browser answers a version query."""
_TAG = "--lemur-browser"
_ALWAYS = ("127.0.0.1", "[::1]", "localhost")
"""Names that need no name server."""


class BrowserLost(ExternalCallError):
    """Raised if the browser does not start, has ended or was killed. The episode is played again."""


class TooSlow(Exception):
    """Raised if an operation in a page exceeds its time limit while the browser itself still answers."""


class BrowserHost:
    """Runs one Chromium, started at first use. Thread-safe. ``program``: its path, see ``chromium.executable``.
    ``host_names``: the names that it may resolve besides localhost."""

    def __init__(self, program: str = "", host_names: frozenset[str] = frozenset()) -> None:
        known = (f"EXCLUDE {name}" for name in (*_ALWAYS, *sorted(host_names)))
        self._resolver = f"--host-resolver-rules={', '.join(['MAP * ~NOTFOUND', *known])}"
        self._program = str(executable(program))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._thread.start()
        self._starting = asyncio.Lock()
        self._driver: Playwright | None = None
        self._browser: Browser | None = None
        self._tag = ""
        self.launches = 0

    def run(self, work: Coroutine[Any, Any, T], limit_s: float, what: str) -> T:
        """Run a coroutine in the browser's event loop and return its result. ``what``: name of the operation in errors.
        Raises TooSlow after ``limit_s`` seconds if the browser still answers, else BrowserLost (after killing it), and
        errors of the coroutine."""
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, limit_s), self._loop)
        try:
            return future.result(limit_s + LAUNCH_S)
        except TimeoutError:
            future.cancel()
            self.check()
            raise TooSlow(f"{what} took more than {limit_s:g} s") from None
        except PlaywrightError as error:
            if not self.is_there():
                raise BrowserLost(f"{what}: the browser is gone: {_first_line(error)}") from error
            raise

    def is_there(self) -> bool:
        """Whether a browser is connected, as far as Playwright knows; sends nothing to it."""
        return self._browser is not None and self._browser.is_connected()

    def check(self) -> None:
        """Kill the browser and raise BrowserLost if it does not answer within ``ANSWERS_S`` seconds."""
        if not self._completes(self._answers()):
            self.kill()
            raise BrowserLost(f"the browser did not answer within {ANSWERS_S:g} s and was ended")

    async def browser(self) -> Browser:
        """The browser, started if necessary; call only in the event loop. Raises BrowserLost if it does not start."""
        async with self._starting:
            if self._driver is None:
                self._driver = await async_playwright().start()
            if self._browser is None or not self._browser.is_connected():
                self._tag = f"{_TAG}={uuid.uuid4().hex}"
                self.launches += 1
                try:
                    self._browser = await self._driver.chromium.launch(
                        executable_path=self._program,
                        args=[*FLAGS, self._resolver, self._tag],
                        chromium_sandbox=os.geteuid() != 0,
                        handle_sigint=False,
                        handle_sigterm=False,
                        handle_sighup=False,
                        timeout=LAUNCH_S * 1000,
                    )
                except PlaywrightError as error:
                    raise BrowserLost(f"{self._program} did not start: {_first_line(error)}") from error
            return self._browser

    def pid(self) -> int:
        """Process id of the running browser; 0 if none runs."""
        return _pid_of(self._tag) if self._tag else 0

    def kill(self) -> None:
        """Kill the browser and its child processes, if it runs."""
        if pid := self.pid():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != os.getpgid(0):
                    os.killpg(os.getpgid(pid), signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Stop browser, driver and event loop; kill the browser if it does not stop in time. Safe to call twice."""
        if not self._loop.is_running():
            return
        if not self._completes(self._end()):
            self.kill()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWERS_S)
        if not self._loop.is_running():
            self._loop.close()

    def _completes(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether a coroutine ends without an error of Playwright within ``ANSWERS_S`` seconds."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            future.result(ANSWERS_S)
        except (TimeoutError, PlaywrightError):
            future.cancel()
            return False
        return True

    async def _answers(self) -> None:
        if self._browser is None:
            return
        session = await self._browser.new_browser_cdp_session()
        await session.send("Browser.getVersion")
        await session.detach()

    async def _end(self) -> None:
        if self._browser is not None:
            await self._browser.close()
        if self._driver is not None:
            await self._driver.stop()
        self._browser = self._driver = None


def _pid_of(tag: str) -> int:
    """Return the id of the browser's main process: with the tag and without a process type. 0 if there is none."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if tag.encode() in words and not any(word.startswith(b"--type=") for word in words):
                    return int(folder.name)
    return 0


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_hosts: dict[tuple[str, frozenset[str]], BrowserHost] = {}
_opening = threading.Lock()


def shared_host(program: str = "", host_names: frozenset[str] = frozenset()) -> BrowserHost:
    """This process's ``BrowserHost`` for these arguments, created at first use. Raises NoChromium."""
    key = program, host_names.difference(_ALWAYS)
    with _opening:
        if key not in _hosts:
            _hosts[key] = BrowserHost(*key)
        return _hosts[key]


def close_shared() -> None:
    """Stop all browsers that ``shared_host`` created in this process."""
    with _opening:
        while _hosts:
            _hosts.popitem()[1].close()
