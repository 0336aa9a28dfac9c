"""A real Chromium without a window, driven through its debugging protocol over a pair of pipes: no port, no driver."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIMIT_S = 90.0
_KEYS = {"Enter": ("\r", 13), "Escape": ("", 27), "Tab": ("", 9), " ": (" ", 32)}
_SHIFT = 8
# Chromium reads commands from descriptor 3 and answers on 4. Either may be in the way of the other: first out of it.
_EXEC = """if True:
    import os, sys
    read, write = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
    read, write = (os.dup2(fd, 100 + fd) for fd in (read, write))
    os.dup2(read, 3), os.dup2(write, 4), os.execv(sys.argv[3], sys.argv[3:])
"""


def found() -> str | None:
    """Where a Chromium is installed."""
    return next((spot for name in NAMES if (spot := shutil.which(name))), None)


class Browser:
    """The connection to a running Chromium."""

    def __init__(self, read: int, write: int):
        self._read, self._write, self._rest, self._number = read, write, b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """The result of one command. Raises AssertionError where the browser refuses it or does not answer."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_S
        while True:
            said = self._next(deadline, method)
            if said.get("id") == self._number:
                assert "error" not in said, f"{method}: {said['error']}"
                result: dict[str, Any] = said["result"]
                return result
            if "method" in said:
                self.events.append(said)

    def page(self, url: str, width: int = 1100, height: int = 800, *, phone: bool = False) -> Page:
        """A tab with storage of its own that shows ``url``."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        page.call("Page.navigate", url=url)
        page.until("document.readyState === 'complete'")
        return page

    def _next(self, deadline: float, waiting_for: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no answer to {waiting_for} within {LIMIT_S:.0f} s"
            chunk = os.read(self._read, 2**20)
            assert chunk, "the browser ended"
            self._rest += chunk
        message, self._rest = self._rest.split(b"\0", 1)
        said: dict[str, Any] = json.loads(message)
        return said


class Page:
    """One tab, used as a person uses it: keys, and what can be seen."""

    def __init__(self, browser: Browser, session: str):
        self._browser, self.session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self.session, **params)

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, f"{expression}: {done['exceptionDetails']}"
        return done["result"].get("value")

    def until(self, expression: str, limit_s: float = LIMIT_S) -> None:
        """Wait until an expression is true; fails with it and with what the page shows."""
        deadline = time.monotonic() + limit_s
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {expression}\n{self.text('body')}"
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        """What can be read in the last element that matches; empty where there is none."""
        found: str = self.value(f"[...document.querySelectorAll({json.dumps(selector)})].at(-1)?.innerText ?? ''")
        return found

    def type(self, text: str) -> None:
        """Text into whatever has the focus."""
        self.call("Input.insertText", text=text)

    def key(self, name: str, *, shift: bool = False) -> None:
        """One key, pressed and released."""
        text, code = _KEYS[name]
        common = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": code}
        modifiers = {"modifiers": _SHIFT if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common, **modifiers)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common, **modifiers)

    def tab_to(self, selector: str) -> None:
        """Move the focus by the Tab key until it is on this element."""
        for _ in range(40):
            if self.value(f"document.activeElement?.matches({json.dumps(selector)})"):
                return
            self.key("Tab")
        raise AssertionError(f"the Tab key never comes to {selector}")

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """What the page wrote as errors: exceptions, and what its policy forbade."""
        self.value("1")
        out = []
        for event in self._browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                out.append(str(event["params"]["exceptionDetails"]))
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["source"] == "security":
                out.append(event["params"]["entry"]["text"])
        return out


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A Chromium whose files lie in ``profile``; ends it."""
    program = found()
    assert program is not None, "no Chromium is installed"
    (to_read, to_write), (from_read, from_write) = os.pipe(), os.pipe()
    flags = [
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
        *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--mute-audio"),
        *("--disable-component-update", "--disable-sync", "--force-prefers-reduced-motion"),
        f"--user-data-dir={profile}",
    ]
    process = subprocess.Popen(
        [sys.executable, "-Sc", _EXEC, str(to_read), str(from_write), program, *flags],
        pass_fds=(to_read, from_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    browser = Browser(from_read, to_write)
    try:
        yield browser
    finally:
        with contextlib.suppress(AssertionError, OSError):
            browser.call("Browser.close")
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(from_read)
        os.close(to_write)
