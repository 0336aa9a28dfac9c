"""One episode in the browser, as an environment's own thread drives it: begin, do, see, judge, end. Each has a limit.

Knows actions, no replies, no prompts and no task format beyond the record's start addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Error as PlaywrightError

from envs.webarena.actions.action import Action
from envs.webarena.browser.execution import NoElement, carried_out
from envs.webarena.browser.host import LAUNCH_S, BrowserHost, BrowserLost, TooSlow
from envs.webarena.browser.last_page import LastTab
from envs.webarena.browser.login_steps import state_of
from envs.webarena.browser.public_hosts import hosts_of
from envs.webarena.browser.session import (
    CAPTURE_S,
    LOAD_S,
    VIEWPORT,
    NotAllowed,
    NotReached,
    Seen,
    Session,
    TabClosed,
)
from envs.webarena.browser.set_of_marks import Easel, data_url
from envs.webarena.browser.tree import AxCompat
from envs.webarena.site_set import Lease
from envs.webarena.tasks import logged_in, start_urls
from envs.webarena.views import TREES, picture_name

ACT_S = LOAD_S + 5.0
SEE_S = 2 * CAPTURE_S
TURN_S = 50.0
"""Of an action, the wait and a look together; a page that let the action wait is looked at for less."""
LEAST_S = 5.0
PICTURE_S = 5.0
"""A picture that takes longer is left out: it must not cost a turn its time."""
ERROR_PAGE = "chrome-error://"


@dataclass(frozen=True)
class Rules:
    """How pages are read and actions carried out."""

    compat: AxCompat = "2023"
    strict: bool = False
    wait_s: float = 2.0
    """After the beginning and after every action."""


@dataclass(frozen=True)
class Kept:
    """What an episode leaves behind. ``folder``: for its network log and trees, or None for nothing."""

    folder: Path | None = None
    screenshots: bool = False
    """Of every observation, there, too."""


class BrowserPlay:
    """``record``: with addresses in the place of placeholders. ``marks``: a picture is taken with every look."""

    def __init__(
        self,
        host: BrowserHost,
        record: Mapping[str, Any],
        lease: Lease,
        rules: Rules = Rules(),
        kept: Kept = Kept(),
        marks: bool = False,
    ) -> None:
        self._host, self._rules, self._kept, self._marks = host, rules, kept, marks
        self._num_seen = 0
        self._acted: float | None = None
        self._without_page = False
        self._easel: Easel | None = None
        self.seen = Seen("", "")
        self.picture = ""
        """What was seen last, with marks, as a ``data:`` address; empty where there is none."""
        self.without_picture = 0
        har = None
        if kept.folder is not None:
            kept.folder.mkdir(parents=True, exist_ok=True)
            har = kept.folder / "network.har"
        state = state_of(host, lease, logged_in(record))
        self.session = Session(host, hosts_of(lease.urls), har=har)
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
        """Carry it out and wait; what went wrong in words, empty for nothing. Raises BrowserLost."""
        problem = ""
        self._acted, self._without_page = time.monotonic(), False
        try:
            work = carried_out(action, self.session, self.seen.elements, self._rules.strict)
            self._host.run(work, ACT_S, f"the action {action.kind}")
        except (NoElement, NotAllowed, TabClosed, TooSlow) as error:
            problem = str(error)
        except NotReached as error:
            problem, self._without_page = str(error), True
        except PlaywrightError as error:
            problem = (str(error).strip().splitlines() or ["unknown"])[0]
        with contextlib.suppress(TooSlow):
            self._host.run(self._rested(), ACT_S + self._rules.wait_s, "waiting for a page")
        return problem

    def look(self) -> Seen:
        """See the current tab. Raises BrowserLost."""
        try:
            looking = self.session.seen(self._rules.compat, self._rules.strict)
            left_s = SEE_S if self._acted is None else TURN_S - (time.monotonic() - self._acted)
            self.seen = self._host.run(looking, max(LEAST_S, min(SEE_S, left_s)), "looking at a page")
        except TooSlow:
            self.seen = Seen("[the page does not answer]", "about:blank", problem="the page does not answer")
        except PlaywrightError as error:
            raise BrowserLost(f"looking at a page: {str(error).splitlines()[0]}") from error
        wanted = self._marks or (self._kept.folder and self._kept.screenshots)
        picture = self._taken() if wanted and not self.seen.problem else b""
        self._keep(picture)
        self.picture = self._with_marks(picture) if self._marks else ""
        self.without_picture += self._marks and not self.picture
        return self.seen

    @property
    def is_without_page(self) -> bool:
        """Whether a site did not answer the last action or the beginning: no page came, or one of the browser's own."""
        return self._without_page or self.seen.url.startswith(ERROR_PAGE)

    def last_page(self, settles_s: float) -> LastTab:
        """For evaluators."""
        return LastTab(self.session, settles_s)

    def close(self) -> None:
        """Close the context; a browser that does not let go of it is ended. Never raises."""
        try:
            if self._easel is not None:
                self._host.run(self._easel.close(), CAPTURE_S, "closing a context")
            self._host.run(self.session.close(), CAPTURE_S, "closing a context")
        except (TooSlow, BrowserLost, PlaywrightError):
            self._host.kill()

    async def _begin(self, state: Any, urls: list[str]) -> None:
        await self.session.open(state)
        self._opened()
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
        await self._rested()

    def _opened(self) -> None:
        """The context is open and shows nothing yet."""

    async def _rested(self) -> None:
        """Wait until the page may be looked at, after the beginning and after every action; within ``LOAD_S`` and the
        configured wait. Subclasses wait for more."""
        await asyncio.sleep(self._rules.wait_s)

    def _keep(self, picture: bytes) -> None:
        if self._kept.folder is None:
            return
        number, self._num_seen = self._num_seen, self._num_seen + 1
        elements = {at: {"text": one.text, "box": one.box} for at, one in self.seen.elements.items()}
        row = {"number": number, "url": self.seen.url, "text": self.seen.text, "elements": elements}
        with (self._kept.folder / TREES).open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        if picture and self._kept.screenshots:
            (self._kept.folder / picture_name(number)).write_bytes(picture)

    def _taken(self) -> bytes:
        """A screenshot of the current tab, a PNG; empty where none can be taken."""

        async def look() -> bytes:
            return await (await self.session.page()).screenshot()

        with contextlib.suppress(TooSlow, PlaywrightError):
            return self._host.run(look(), PICTURE_S, "a screenshot")
        return b""

    def _with_marks(self, picture: bytes) -> str:
        async def draw() -> bytes:
            if self._easel is None:
                self._easel = Easel(await self._host.browser(), VIEWPORT)
            return await self._easel.marked(picture, self.seen.elements)

        with contextlib.suppress(TooSlow, PlaywrightError):
            return data_url(self._host.run(draw(), PICTURE_S, "drawing marks")) if picture else ""
        return ""
