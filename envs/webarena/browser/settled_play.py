"""``SettledPlay``: an episode in the browser that observes a page once it has loaded, within ``CAP_S`` seconds.

WebArena waits for a fixed time, which suits remote sites. The sites of ``envs.webarena.sites`` share their machine with
the browser, and on a busy one a fixed time could show the previous page."""

import asyncio
import contextlib
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Request

from envs.webarena.browser.play import BrowserPlay

CAP_S = 15.0
_POLL_S = 0.05
_PAGES_TURN = "() => new Promise(done => setTimeout(done, 150))"
"""A script timer of 150 ms. It is late if the page, and so the action's work, lacks processor time."""


class SettledPlay(BrowserPlay):
    """A ``BrowserPlay``, with its arguments, that also waits until the page has loaded: at the start and after every
    action."""

    def __init__(self, *given: Any) -> None:
        self._asked: set[Request] = set()
        super().__init__(*given)

    def _on_opened(self) -> None:
        context = self.session.context
        context.on("request", self._begun)
        context.on("response", self._ended)
        context.on("requestfailed", self._ended)

    def _begun(self, request: Request) -> None:
        if request.is_navigation_request():
            self._asked.add(request)

    def _ended(self, what: Any) -> None:
        self._asked.discard(getattr(what, "request", what))

    async def _wait_until_ready(self) -> None:
        await super()._wait_until_ready()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CAP_S
        with contextlib.suppress(PlaywrightError, TimeoutError):
            await asyncio.wait_for((await self.session.page()).evaluate(_PAGES_TURN), CAP_S)
        while self._asked and loop.time() < deadline:
            await asyncio.sleep(_POLL_S)
        self._asked.clear()
        with contextlib.suppress(PlaywrightError):
            left_ms = max(1.0, 1000 * (deadline - loop.time()))
            await (await self.session.page()).wait_for_load_state("load", timeout=left_ms)
