"""What a browser reaches and looks up besides the sites of its episode: nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from playwright.async_api import Error as PlaywrightError

from envs.webarena.browser import host as browser_host
from envs.webarena.browser.host import BrowserHost, shared_host
from envs.webarena.browser.public_hosts import hosts_of
from envs.webarena.browser.session import Session
from envs.webarena.site_set import host_names
from tests.envs.webarena.small_site import PAGES, SmallSite


def opened(host: BrowserHost, session: Session, url: str, stays_s: float = 0.0) -> None:
    async def go() -> None:
        await session.open()
        try:
            await session.load(url)
            await asyncio.sleep(stays_s)
        finally:
            await session.close()

    host.run(go(), 60, "looking at a page")


def test_places_of_sites_have_their_ports() -> None:
    urls = {"SHOPPING": "http://Shop.test/", "MAP": "https://u:p@map.test", "WIKIPEDIA": "http://[::1]:8888/w"}
    assert hosts_of(urls) == ("[::1]:8888", "map.test:443", "shop.test:80")
    assert host_names(urls) == {"[::1]", "map.test", "shop.test"}
    session = Session(None, hosts_of(urls))  # type: ignore[arg-type]
    assert session.is_ours("http://shop.test:80/a")
    assert session.is_ours("wss://MAP.test/socket")
    for url in ("http://shop.test:8080/", "https://shop.test/", "http://shop.test:x/", "about:blank", "http://"):
        assert not session.is_ours(url)


def test_a_site_without_a_port_opens_no_other_port_of_its_host(browser: None) -> None:
    other = SmallSite()
    try:
        session = Session(shared_host(), hosts_of({"SHOPPING": "http://127.0.0.1"}))
        with pytest.raises(PlaywrightError):
            opened(shared_host(), session, f"{other.url}/leak")
        assert other.asked == []
        assert session.outside
    finally:
        other.close()


@pytest.mark.slow
def test_no_name_is_looked_up_that_is_of_no_site(
    browser: None, site: SmallSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "net.json"
    flags = (f"--log-net-log={log}", "--net-log-capture-mode=Everything")
    monkeypatch.setattr(browser_host, "FLAGS", (*browser_host.FLAGS, *flags))
    assert "stun:outside.test" in PAGES["/calling"]
    host = BrowserHost(host_names=frozenset({"shop.test"}))
    try:
        opened(host, Session(host, hosts_of({"SHOPPING": site.url})), f"{site.url}/calling", stays_s=2.0)
    finally:
        host.close()
    said = log.read_text()
    found = json.loads(said if said.rstrip().endswith("}") else said.rstrip().rstrip(",") + "]}")
    kinds = {number: kind for kind, number in found["constants"]["logEventTypes"].items()}
    events = [kinds[one["type"]] for one in found["events"] if "outside.test" in json.dumps(one.get("params", {}))]
    assert events, "it was asked for"
    assert not [one for one in events if "DNS" in one or "UDP" in one or one == "HOST_RESOLVER_MANAGER_JOB"]
