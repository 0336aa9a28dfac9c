"""``LastTab``: lets evaluators in other threads read and navigate the tab in which an episode ended."""

import asyncio
from typing import Any

from playwright.async_api import Error as PlaywrightError

from envs.webarena.browser.host import TooSlow
from envs.webarena.browser.session import LOAD_S, NotAllowed, NotReached, Session
from envs.webarena.evaluators.program_html import SETTLES_S, ScriptFailed

SCRIPT_S = 30.0
CONTENT_S = 60.0


class LastTab:
    """The tab in which an episode ended, for evaluators in other threads. ``settles_s``: seconds to wait after a
    navigation. After a failed one, ``content`` is empty and ``evaluate`` raises ScriptFailed."""

    def __init__(self, session: Session, settles_s: float = SETTLES_S) -> None:
        self._session, self._settles_s = session, settles_s
        self._unreached = ""

    def url(self) -> str:
        return self._session.host.run(self._session.page(), SCRIPT_S, "the address of a page").url

    def goto(self, url: str) -> None:
        async def go() -> None:
            await self._session.load(url)
            await asyncio.sleep(self._settles_s)

        try:
            self._session.host.run(go(), 3 * LOAD_S + self._settles_s, f"going to {url}")
            self._unreached = ""
        except (NotAllowed, NotReached, PlaywrightError, TooSlow) as error:
            self._unreached = f"{url}: {str(error).splitlines()[0]}"
            self._session.host.check()

    def content(self) -> str:
        async def look() -> str:
            return await (await self._session.page()).content()

        if self._unreached:
            return ""
        try:
            return self._session.host.run(look(), CONTENT_S, "reading a page")
        except (PlaywrightError, TooSlow):
            return ""

    def evaluate(self, script: str) -> Any:
        async def ask() -> Any:
            return await (await self._session.page()).evaluate(f"() => {script}")

        if self._unreached:
            raise ScriptFailed(self._unreached)
        try:
            return self._session.host.run(ask(), SCRIPT_S, "a script in a page")
        except (PlaywrightError, TooSlow) as error:
            raise ScriptFailed(str(error).splitlines()[0]) from None
