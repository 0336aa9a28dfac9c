"""What Chromium runs for a context: a process for its page and none for what nobody sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.webarena.browser.host import BrowserHost
from envs.webarena.browser.public_hosts import hosts_of
from envs.webarena.browser.session import Session
from tests.envs.webarena.processes import family
from tests.envs.webarena.small_site import SmallSite


@pytest.fixture
def host(browser: None) -> Iterator[BrowserHost]:
    found = BrowserHost()
    yield found
    found.close()


def words(pid: int) -> list[str]:
    try:
        return (Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")).split(" ")
    except OSError:
        return []


def test_a_context_takes_one_process_and_what_playwright_turns_off_stays_off(
    host: BrowserHost, site: SmallSite
) -> None:
    sessions = [Session(host, hosts_of({"SHOPPING": site.url})) for _ in range(2)]

    async def open_() -> list[str]:
        for session in sessions:
            await session.open()
            await session.start([site.url])
        cdp = await (await host.browser()).new_browser_cdp_session()
        found = await cdp.send("Target.getTargets", {"filter": [{}]})
        return [one["url"] for one in found["targetInfos"] if one["type"] not in ("browser", "tab")]

    assert host.run(open_(), 60, "opening two contexts") == [f"{site.url}/"] * 2
    renderers = [pid for pid in family(host.pid()) if "--type=renderer" in words(pid)]
    assert len(renderers) == 2
    given = [word for word in words(host.pid()) if word.startswith("--disable-features=")]
    playwrights, last = (set(word.partition("=")[2].split(",")) for word in given)
    assert playwrights <= last, "Chromium knows the last such switch alone: name these in flags.py, too"
