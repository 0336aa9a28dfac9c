"""``BrowserPlay``: one episode in the browser, driven by an environment's thread; every operation has a time limit."""

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Request

from envs.webarena.actions.action import Action
from envs.webarena.browser.execution import NoElement, execute
from envs.webarena.browser.host import LAUNCH_S, BrowserHost, BrowserLost, TooSlow
from envs.webarena.browser.login_steps import state_of
from envs.webarena.browser.public_hosts import hosts_of
from envs.webarena.browser.session import CAPTURE_S, LOAD_S, VIEWPORT, NoSuchTab, NotAllowed, NotReached, Seen, Session
from envs.webarena.browser.set_of_marks import Easel, data_url
from envs.webarena.browser.tree import AxCompat
from envs.webarena.site_set import Lease
from envs.webarena.tasks import logged_in, start_urls
from envs.webarena.views import TREES, PictureKind, picture_name

ACT_S = LOAD_S + 5.0
SEE_S = 2 * CAPTURE_S
TURN_S = 50.0
"""Seconds for an action, the wait and an observation together."""
LEAST_S = 5.0
PICTURE_S = 5.0
"""Seconds for a screenshot. A slower one is left out, so that it does not use up the turn's time."""
SETTLE_S = 15.0
_POLL_S = 0.05
_PAGES_TURN = "() => new Promise(done => setTimeout(done, 150))"
"""A script timer of 150 ms. It is late if the page, and so the action's work, lacks processor time."""
ERROR_PAGE = "chrome-error://"


@dataclass(frozen=True)
class Rules:
    """Settings of an episode in the browser. ``compat``: format of the accessibility tree; ``strict``: correct
    upstream's formula for which elements are in view, and accept aliases of keys such as Ctrl."""

    compat: AxCompat = "2023"
    strict: bool = False
    wait_s: float = 2.0
    """Seconds to wait at the start and after every action."""
    until_loaded: bool = False
    """Whether to wait until the page has loaded, too, at most ``SETTLE_S``. WebArena's fixed time suits remote sites;
    sites that share a busy machine with the browser could still show the previous page."""


@dataclass(frozen=True)
class Artefacts:
    """What an episode stores in ``folder``: network log, accessibility trees and, if ``screenshots``, pictures; None:
    nothing. ``requests``: file of a network log with contents of responses."""

    folder: Path | None = None
    screenshots: bool = False
    """Also store a screenshot of every observation. Those shown to the model are always stored there."""
    requests: Path | None = None
    """File for a network log with the contents of responses, for a scorer of requests. It replaces the folder's."""


class BrowserPlay:
    """One episode in the browser; the constructor logs in and opens the start pages; raises BrowserLost if the browser
    does not start, SitesLost if a login fails. ``record``: the task with URLs in place of placeholders. ``shown``: the
    screenshot to take of each observation."""

    def __init__(
        self,
        host: BrowserHost,
        record: Mapping[str, Any],
        lease: Lease,
        rules: Rules = Rules(),
        artefacts: Artefacts = Artefacts(),
        shown: PictureKind = "",
    ) -> None:
        self._host, self._rules, self._artefacts, self._shown = host, rules, artefacts, shown
        self._num_seen = 0
        self._acted: float | None = None
        self._without_page = False
        self._easel: Easel | None = None
        self._navigations: set[Request] = set()
        """Navigation requests in flight, if the play waits until pages have loaded."""
        self.seen = Seen("", "")
        self.picture = ""
        """Last screenshot for the model, as a ``data:`` URL; empty if there is none."""
        self.without_picture = 0
        har = artefacts.requests
        if artefacts.folder is not None:
            artefacts.folder.mkdir(parents=True, exist_ok=True)
            har = har or artefacts.folder / "network.har"
        state = state_of(host, lease, logged_in(record))
        self.session = Session(host, hosts_of(lease.urls), har=har, bodies=artefacts.requests is not None)
        urls = start_urls(record)
        limit_s = LAUNCH_S + LOAD_S * (len(urls) + 1) + rules.wait_s
        try:
            host.run(self._begin(state, urls), limit_s, "opening the start pages")
            self.look()
        except TooSlow as error:
            self.close()
            raise BrowserLost(str(error)) from error
        except BaseException:
            self.close()
            raise

    def do(self, action: Action) -> str:
        """Execute an action and wait for the page. Returns why it failed, empty if not. Raises BrowserLost if the
        browser has ended."""
        problem = ""
        self._acted, self._without_page = time.monotonic(), False
        try:
            work = execute(action, self.session, self.seen.elements, self._rules.strict)
            self._host.run(work, ACT_S, f"the action {action.kind}")
        except (NoElement, NotAllowed, NoSuchTab, TooSlow) as error:
            problem = str(error)
        except NotReached as error:
            problem, self._without_page = str(error), True
        except PlaywrightError as error:
            problem = (str(error).strip().splitlines() or ["unknown"])[0]
        with contextlib.suppress(TooSlow):
            self._host.run(self._wait_until_ready(), ACT_S + self._rules.wait_s, "waiting for a page")
        return problem

    def look(self) -> Seen:
        """Observe the current tab, store artefacts and return the observation, which also becomes ``seen`` (its
        screenshot ``picture``) and may say that the page does not answer. Raises BrowserLost if the browser ended."""
        try:
            looking = self.session.seen(self._rules.compat, self._rules.strict)
            left_s = SEE_S if self._acted is None else TURN_S - (time.monotonic() - self._acted)
            self.seen = self._host.run(looking, max(LEAST_S, min(SEE_S, left_s)), "looking at a page")
        except TooSlow:
            self.seen = Seen("[the page does not answer]", "about:blank", problem="the page does not answer")
        except PlaywrightError as error:
            raise BrowserLost(f"looking at a page: {str(error).splitlines()[0]}") from error
        wanted = self._shown or (self._artefacts.folder and self._artefacts.screenshots)
        page = self._screenshot() if wanted and not self.seen.problem else b""
        picture = self._with_marks(page) if self._shown == "marked" and page else page
        self._keep(picture or (page if self._artefacts.screenshots else b""))
        self.picture = data_url(picture) if self._shown and picture else ""
        self.without_picture += bool(self._shown) and not picture
        return self.seen

    @property
    def is_without_page(self) -> bool:
        """Whether the last action's navigation gave no page, or the tab shows an error page of the browser."""
        return self._without_page or self.seen.url.startswith(ERROR_PAGE)

    def close(self) -> None:
        """Close the episode's browser contexts; kill the browser if that fails or takes too long."""
        try:
            if self._easel is not None:
                self._host.run(self._easel.close(), CAPTURE_S, "closing a context")
            self._host.run(self.session.close(), CAPTURE_S, "closing a context")
        except (TooSlow, BrowserLost, PlaywrightError):
            self._host.kill()

    async def _begin(self, state: Any, urls: list[str]) -> None:
        await self.session.open(state)
        if self._rules.until_loaded:
            self.session.context.on("request", self._begun)
            self.session.context.on("response", self._ended)
            self.session.context.on("requestfailed", self._ended)
        for attempt, url in enumerate(urls):
            try:
                await self.session.start([url])
            except NotReached:
                self._without_page = True
            except PlaywrightError:
                if attempt == 0 and not self._host.is_there():
                    raise
        if not self.session.tabs() and not self.session.is_pestered:  # a dying browser may say that it is connected
            raise BrowserLost("no tab stayed open at the beginning: the browser has gone")
        await self.session.page()
        await self.session.focus(0)
        await self._wait_until_ready()

    def _begun(self, request: Request) -> None:
        if request.is_navigation_request():
            self._navigations.add(request)

    def _ended(self, what: Any) -> None:
        self._navigations.discard(getattr(what, "request", what))

    async def _wait_until_ready(self) -> None:
        """Wait as the rules say, at the start and after every action."""
        await asyncio.sleep(self._rules.wait_s)
        if not self._rules.until_loaded:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLE_S
        with contextlib.suppress(PlaywrightError, TimeoutError):
            await asyncio.wait_for((await self.session.page()).evaluate(_PAGES_TURN), SETTLE_S)
        while self._navigations and loop.time() < deadline:
            await asyncio.sleep(_POLL_S)
        self._navigations.clear()
        with contextlib.suppress(PlaywrightError):
            left_ms = max(1.0, 1000 * (deadline - loop.time()))
            await (await self.session.page()).wait_for_load_state("load", timeout=left_ms)

    def _keep(self, picture: bytes) -> None:
        if self._artefacts.folder is None:
            return
        number, self._num_seen = self._num_seen, self._num_seen + 1
        elements = {at: {"text": one.text, "box": one.box} for at, one in self.seen.elements.items()}
        row = {"number": number, "url": self.seen.url, "text": self.seen.text, "elements": elements}
        with (self._artefacts.folder / TREES).open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        if picture:
            (self._artefacts.folder / picture_name(number)).write_bytes(picture)

    def _screenshot(self) -> bytes:
        """Take a PNG screenshot of the current tab; empty if that fails or takes longer than ``PICTURE_S``."""

        async def look() -> bytes:
            return await (await self.session.page()).screenshot()

        with contextlib.suppress(TooSlow, PlaywrightError):
            return self._host.run(look(), PICTURE_S, "a screenshot")
        return b""

    def _with_marks(self, picture: bytes) -> bytes:
        async def draw() -> bytes:
            if self._easel is None:
                self._easel = Easel(await self._host.browser(), VIEWPORT)
            return await self._easel.marked(picture, self.seen.elements)

        with contextlib.suppress(TooSlow, PlaywrightError):
            return self._host.run(draw(), PICTURE_S, "drawing marks")
        return b""
