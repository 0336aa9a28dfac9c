"""Each application: whoever is logged in changes something, the copy is given back, the next lease finds none of it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from envs.webarena.site_set import Lease, SitesLost
from envs.webarena.sites.content import content_of
from envs.webarena.sites.software import SITES
from envs.webarena.sites.standin_sites import StandinSites
from tests.envs.webarena.sites.as_logged_in import Visitor
from tests.envs.webarena.sites.conftest import installed

pytestmark = pytest.mark.slow
RESTORE_S = 1.0
"""Of a machine that does other things; docs/guides/webarena-sites.md has measured ones."""


def record(site: str) -> dict[str, object]:
    return {"task_id": 0, "sites": [site], "storage_state": f"./.auth/{site}_state.json"}


def put_into_basket(lease: Lease, visitor: Visitor) -> bool:
    shop = lease.urls["SHOPPING"]
    before = visitor.page(f"{shop}/basket/")
    visitor.send(f"{shop}/catalogue/any_1/", f"{shop}/basket/add/1/", {"quantity": "2"})
    assert "Your basket is empty" not in visitor.page(f"{shop}/basket/")
    return "Your basket is empty" in before


def open_ticket(lease: Lease, visitor: Visitor) -> bool:
    trac = lease.urls["GITLAB"]
    number = len(content_of().tickets) + 1
    made = visitor.send(
        f"{trac}/newticket", f"{trac}/newticket",
        {"field_summary": "The kettle whistles", "field_description": "Always.", "submit": "Create ticket"},
    )  # fmt: skip
    return f"#{number} (The kettle whistles)" in re.sub(r"\s+", " ", re.sub("<[^>]+>", "", made))


def start_topic(lease: Lease, visitor: Visitor) -> bool:
    forum = lease.urls["REDDIT"]
    link = re.search(r'href="(/forum/[a-z-]+-1/)', visitor.page(forum + "/"))
    assert link
    page = f"{forum}{link[1]}topic/create/"
    before = visitor.page(forum + link[1])
    visitor.send(page, page, {"subject": "Whose bench", "content": "Mine.", "topic_type": "0"})
    assert "Whose bench" in visitor.page(forum + link[1])
    return "Whose bench" not in before


def hide_article(lease: Lease, visitor: Visitor) -> bool:
    cms = lease.urls["CMS"]
    article = next(one for one in content_of().articles if one.live)
    public = f"{cms}/{article.section.lower()}/{article.slug}/"
    before = visitor.page(public)
    found = visitor.page(f"{cms}/admin/pages/search/?q=" + article.title.replace(" ", "+"))
    pages = re.findall(r"/admin/pages/(\d+)/edit/", found)
    assert pages
    page = f"{cms}/admin/pages/{pages[0]}/unpublish/"
    visitor.send(page, page, {}, having="/unpublish/")
    assert article.intro not in visitor.page(public)
    return article.intro in before


def write_page(lease: Lease, visitor: Visitor) -> bool:
    wiki = lease.urls["WIKIPEDIA"]
    before = visitor.page(f"{wiki}?id=herbs:nettle")
    page = f"{wiki}?id=herbs:nettle&do=edit"
    visitor.send(page, f"{wiki}?id=herbs:nettle", {"wikitext": "It stings.", "do[save]": "1", "summary": ""})
    assert "It stings" in visitor.page(f"{wiki}?id=herbs:nettle")
    return "It stings" not in before


CHANGES: dict[str, Callable[[Lease, Visitor], bool]] = {
    "shopping": put_into_basket,
    "gitlab": open_ticket,
    "reddit": start_topic,
    "cms": hide_article,
    "wikipedia": write_page,
}


@pytest.mark.parametrize("site", CHANGES)
def test_a_change_is_made_once_more_after_the_site_was_given_back(site: str, sites: StandinSites) -> None:
    installed(SITES[site].name)
    seen = []
    for _ in range(3):
        lease = sites.lease(record(site))
        pid = next(one.pid for one in sites.processes() if one.base in lease.urls[SITES[site].roles[0].placeholder])
        assert CHANGES[site](lease, Visitor(lease))
        began = time.monotonic()
        sites.release(lease)
        seen.append((pid, time.monotonic() - began))
    assert len({pid for pid, _ in seen}) == 1, "it went on serving"
    assert min(seconds for _, seconds in seen) < RESTORE_S


def test_staff_of_the_shop_see_its_dashboard_and_customers_do_not(sites: StandinSites) -> None:
    installed("shop")
    for site, sees in {"shopping_admin": True, "shopping": False}.items():
        lease = sites.lease({**record(site), "sites": ["shopping", "shopping_admin"]})
        assert ("Dashboard" in Visitor(lease).page(lease.urls["SHOPPING_ADMIN"] + "/orders/")) is sees
        sites.release(lease)


def test_no_page_of_the_shop_loads_from_a_public_host(sites: StandinSites) -> None:
    installed("shop")
    lease = sites.lease(record("shopping"))
    page = Visitor(lease).page(lease.urls["SHOPPING"] + "/catalogue/")
    sites.release(lease)
    assert "/static/oscar/js/jquery/jquery.min.js" in page
    assert not re.findall(r"<(?:script|link|img)\b[^>]*(?:src|href)=[\"'](?:https?:)?//[^\"']*", page)


@pytest.mark.parametrize("site", ["wikipedia", "gitlab"])
def test_a_site_that_was_killed_is_there_again_for_the_next_lease(site: str, sites: StandinSites) -> None:
    installed(SITES[site].name)
    lease = sites.lease(record(site))
    running = next(one for one in sites.processes() if one.base in lease.urls[SITES[site].roles[0].placeholder])
    os.kill(running.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while sites.is_alive(lease) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not sites.is_alive(lease)
    sites.release(lease)
    sites.release(lease)
    assert not Path(running.folder).exists()
    again = sites.lease(record(site))
    assert sites.is_alive(again)
    assert CHANGES[site](again, Visitor(again))
    sites.release(again)


def test_so_many_leases_as_copies_and_each_finds_its_own(sites: StandinSites) -> None:
    installed("wiki")
    one, two = sites.lease(record("wikipedia")), sites.lease(record("wikipedia"))
    assert one.urls["WIKIPEDIA"] != two.urls["WIKIPEDIA"]
    assert one.name != two.name
    write_page(one, Visitor(one))
    assert "It stings" not in Visitor(two).page(two.urls["WIKIPEDIA"] + "?id=herbs:nettle")
    sites.release(one)
    sites.release(two)


def test_what_is_closed_leases_nothing_more(sites: StandinSites) -> None:
    installed("wiki")
    own = StandinSites(copies=1)
    lease = own.lease(record("wikipedia"))
    running = own.processes()
    own.close()
    own.close()
    own.release(lease)
    assert not any(Path(one.folder).exists() for one in running)
    with pytest.raises(SitesLost, match="the sites were closed"):
        own.lease(record("wikipedia"))
