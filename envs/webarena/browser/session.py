"""``Session``: the tabs of one episode in a browser context, their network rules, and observations of the current tab.

- Requests, sockets and navigations to hosts outside the site set go to a proxy that does not exist, and fail. URLs of
  other schemes (file:, chrome:) are rejected before.
- Dialogs are dismissed; a tab that raises ``MAX_DIALOGS`` is closed. At most ``MAX_TABS`` popups stay open.
- A page that asks for confirmation before it is left gets a yes, as in upstream's unattended browser.
- Downloads and service workers are blocked.
- If the current tab closes or crashes, the last remaining one, or a new one, becomes current.

Everything here runs in the event loop of ``host``."""

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, CDPSession, Dialog, Page, Request
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from envs.webarena.browser.capture import PageTooLarge, capture
from envs.webarena.browser.host import BrowserHost
from envs.webarena.browser.tree import AxCompat, Element, observe, well_formed
from envs.webarena.site_set import place_of

VIEWPORT = (1280, 720)
MAX_TABS = 12
MAX_DIALOGS = 20
ALERTED_S = 5.0
"""Seconds for a navigation in a tab that has raised dialogs, which may block it; then a new tab replaces it."""
LOAD_S = 30.0
"""Seconds for a page to load. After that it is used as it is."""
CAPTURE_S = 30.0
CAPTURES = 3
"""Attempts to observe a page that navigates away meanwhile."""
CLOSE_S = 10.0
_NOBODY = "http://127.0.0.1:1"
"""Proxy for every host outside the site set. Nothing listens there."""
_NOT_STATIC = re.compile(r"^(?![^?#]*\.(?:css|js|png|jpe?g|gif|svg|woff2?|ttf|ico|webp)(?:[?#]|$))")
_AWAY = ("interrupted by another navigation", "frame was detached")


@dataclass(frozen=True)
class Seen:
    """Observation of the current tab: tree as text, URL, elements by id. ``problem``: why it was not read, or empty."""

    text: str
    url: str
    elements: Mapping[str, Element] = field(default_factory=dict)
    problem: str = ""


class NotAllowed(Exception):
    """Raised for a URL that is neither http(s) nor about:blank, and for a tab beyond ``MAX_TABS``."""


class NotReached(Exception):
    """Raised if a navigation gave no page in time: the tab still shows the previous one."""


class NoSuchTab(Exception):
    """Raised if an action selects a tab by a number that does not exist."""


class Session:
    """The tabs of one episode. ``hosts``: ``host:port`` of each allowed site. ``har``: file for a network log (HAR);
    ``bodies``: with the contents of responses, but without styles, scripts, fonts and images."""

    def __init__(self, host: BrowserHost, hosts: Sequence[str], har: Path | None = None, bodies: bool = False) -> None:
        self.host, self.hosts = host, tuple(hosts)
        self.outside: dict[str, int] = {}
        """Number of blocked requests by host and port."""
        self.dialogs = 0
        self._har, self._bodies = har, bodies
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._protocols: dict[Page, CDPSession] = {}
        self._dialogs_of: dict[Page, int] = {}
        self._gone: set[Page] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self, storage_state: Any = None) -> None:
        browser = await self.host.browser()
        har: dict[str, Any] = {"record_har_path": self._har} if self._har else {}
        if self._har:
            har |= {"record_har_url_filter": _NOT_STATIC} if self._bodies else {"record_har_content": "omit"}
        self._context = await browser.new_context(
            viewport={"width": VIEWPORT[0], "height": VIEWPORT[1]},
            device_scale_factor=1,
            storage_state=storage_state,
            proxy={"server": _NOBODY, "bypass": ", ".join(["<-loopback>", *self.hosts])},
            service_workers="block",
            accept_downloads=False,
            **har,
        )
        self._context.set_default_timeout(LOAD_S * 1000)
        self._context.on("page", self._on_page)
        self._context.on("dialog", self._on_dialog)
        self._context.on("request", self._on_request)

    async def start(self, urls: Sequence[str]) -> None:
        """Open each URL in a new tab. The first tab becomes the current one."""
        for url in urls:
            await self.load(url, await self.context.new_page())
        self._page = self.tabs()[0] if self.tabs() else None
        (await self.page()).set_default_timeout(LOAD_S * 1000)
        with contextlib.suppress(PlaywrightError):
            await (await self.page()).bring_to_front()

    @property
    def context(self) -> BrowserContext:
        assert self._context is not None, "open() comes first"
        return self._context

    def tabs(self) -> list[Page]:
        return [page for page in self.context.pages if not page.is_closed() and page not in self._gone]

    @property
    def is_pestered(self) -> bool:
        """Whether a tab was closed because it raised more than ``MAX_DIALOGS`` dialogs."""
        return any(number >= MAX_DIALOGS for number in self._dialogs_of.values())

    async def page(self) -> Page:
        """Return the current tab. If it was closed, the last remaining one, or a new one, becomes current."""
        if self._page is None or self._page not in self.tabs():
            self._page = self.tabs()[-1] if self.tabs() else await self.context.new_page()
        return self._page

    async def new_tab(self) -> None:
        if len(self.tabs()) >= MAX_TABS:
            raise NotAllowed(f"there are {len(self.tabs())} tabs already; close one first")
        self._page = await self.context.new_page()

    async def focus(self, number: int) -> None:
        tabs = self.tabs()
        if number >= len(tabs):
            raise NoSuchTab(f"there is no tab {number}: tabs are 0 to {len(tabs) - 1}")
        self._page = tabs[number]
        await self._page.bring_to_front()

    async def close_tab(self) -> None:
        await (await self.page()).close()
        await (await self.page()).bring_to_front()

    async def load(self, url: str, page: Page | None = None) -> None:
        """Navigate a tab (by default the current one). A page that has not finished loading within ``LOAD_S`` stays as
        it is. Raises NotAllowed, NotReached if no page came at all, Playwright's Error."""
        check_address(url)
        page = page or await self.page()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOAD_S
        try:
            await self._came(url, page, ALERTED_S if page in self._dialogs_of else LOAD_S)
        except (NotReached, PlaywrightError):
            if page not in self._dialogs_of:
                raise
            self._give_up(page)  # dialogs hold it up, or it was given up meanwhile
            page = await self.page()
            await self._came(url, page, max(1.0, deadline - loop.time()))
        with contextlib.suppress(PlaywrightTimeout):
            await page.wait_for_load_state("load", timeout=max(1.0, 1000 * (deadline - loop.time())))

    async def _came(self, url: str, page: Page, limit_s: float) -> None:
        for attempt in range(3):
            try:
                await page.goto(url, wait_until="commit", timeout=limit_s * 1000)
                return
            except PlaywrightTimeout:
                with contextlib.suppress(PlaywrightError, TimeoutError):  # else it would block the next observation
                    await asyncio.wait_for((await self.protocol(page)).send("Page.stopLoading"), 1.0)
                raise NotReached(f"{url[:100]}: no page came within {limit_s:g} s") from None
            except PlaywrightError as error:
                if attempt == 2 or not any(reason in str(error) for reason in _AWAY):
                    raise
                await asyncio.sleep(0.2)

    async def protocol(self, page: Page) -> CDPSession:
        """Return the DevTools session of a tab, created at first use; works for popups, too."""
        if page not in self._protocols:
            self._protocols = {one: session for one, session in self._protocols.items() if not one.is_closed()}
            self._protocols[page] = await self.context.new_cdp_session(page)
        return self._protocols[page]

    async def seen(self, compat: AxCompat, strict: bool) -> Seen:
        """Observe the current tab: list of tabs, and its tree or a problem. ``compat``: format of the tree; ``strict``:
        see ``tree.observe``. Raises only if the browser has ended."""
        problem = ""
        for attempt in range(CAPTURES):
            page = await self.page()
            try:
                nodes, boxes = await asyncio.wait_for(capture(await self.protocol(page)), CAPTURE_S)
                text, elements = observe(nodes, boxes, _screen(page), compat=compat, strict=strict)
                return Seen(f"{await self._tab_line(page)}\n\n{text}", page.url, elements)
            except PageTooLarge as error:
                problem = str(error)
                break
            except TimeoutError:
                problem = "the page does not answer"
                break
            except (PlaywrightError, LookupError, TypeError, ValueError) as error:  # it went away, or half of it did
                if not self.host.is_there():
                    raise
                problem = f"the page cannot be read: {(str(error).splitlines() or [type(error).__name__])[0]}"
                self._protocols.pop(page, None)
                await asyncio.sleep(0.3 * (attempt + 1))
        page = await self.page()
        line = await self._tab_line(page)
        return Seen(f"{line}\n\n[{problem}]", page.url, problem=problem)

    async def close(self) -> None:
        """Close the browser context and cancel pending work, ignoring Playwright's errors."""
        for task in self._tasks:
            task.cancel()
        if self._context is not None:
            with contextlib.suppress(PlaywrightError):
                await self._context.close()
        self._context = None

    async def _tab_line(self, current: Page) -> str:
        titles = await asyncio.gather(*(self._title(page) for page in self.tabs()))
        return " | ".join(
            f"Tab {number}{' (current)' if page is current else ''}: {title}"
            for number, (page, title) in enumerate(zip(self.tabs(), titles, strict=False))
        )

    async def _title(self, page: Page) -> str:
        try:
            return well_formed(await asyncio.wait_for(page.title(), 5.0))
        except (PlaywrightError, TimeoutError):
            return page.url

    def _on_page(self, page: Page) -> None:
        page.on("crash", self._give_up)
        if len(self.tabs()) > MAX_TABS:
            self._later(page.close())

    def _give_up(self, page: Page) -> None:
        """Close a tab that crashed or that dialogs hold up. It counts as closed at once, however long closing takes."""
        self._gone.add(page)
        self._later(page.close())

    def _on_dialog(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload":
            self._later(dialog.accept())
            return
        self.dialogs += 1
        page = dialog.page
        if page is not None:
            self._dialogs_of[page] = self._dialogs_of.get(page, 0) + 1
            if self._dialogs_of[page] == MAX_DIALOGS:
                self._give_up(page)
        self._later(dialog.dismiss())

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and not self.is_ours(request.url):
            self.outside[parts.netloc] = self.outside.get(parts.netloc, 0) + 1

    def is_ours(self, url: str) -> bool:
        """Whether host and port of a URL belong to the sites of this episode."""
        try:
            return place_of(url) in self.hosts
        except ValueError:
            return False

    def _later(self, work: Any) -> None:
        async def quietly() -> None:
            with contextlib.suppress(PlaywrightError):
                await work

        task = asyncio.ensure_future(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _screen(page: Page) -> tuple[float, float]:
    """Width and height of the tab's emulated screen, which is its whole viewport."""
    size = page.viewport_size
    return (size["width"], size["height"]) if size else VIEWPORT


def check_address(url: str) -> None:
    """Raise NotAllowed for a URL that is neither http, https nor about:blank."""
    scheme = url.partition(":")[0].lower()
    if scheme not in ("http", "https") and url != "about:blank":
        raise NotAllowed(f"{url[:100]!r}: only http:// and https:// addresses can be gone to")
