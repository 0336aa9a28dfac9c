"""Logs in to WebArena's sites through their forms, once per site copy; this process caches the cookies.

Cookies that a site no longer accepts are renewed by another login. Sites on one host name share cookies, whatever their
ports: if one overwrites the other's, nobody can be logged in at both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from envs.webarena.browser.host import BrowserHost, TooSlow
from envs.webarena.browser.public_hosts import hosts_of
from envs.webarena.browser.session import LOAD_S, Session
from envs.webarena.site_set import Account, Lease, SitesLost, place_of

LOGIN_S = 90.0
_REFUSED = "it was refused: mend its account in --sites-file, or put the site back"
State = Mapping[str, Any]
_states: dict[tuple[str, str, tuple[str, ...]], State] = {}
_mutexes: dict[tuple[str, str, tuple[str, ...]], threading.Lock] = {}
_guard = threading.Lock()


async def _submit(page: Page, button: str) -> None:
    """Click ``button`` to submit the form, and wait for the page it leads to, whether the login succeeded or not."""
    async with page.expect_navigation(wait_until="load", timeout=LOAD_S * 1000):
        await page.get_by_role("button", name=button).click()


async def _reddit(page: Page, url: str, who: Account) -> None:
    await page.goto(f"{url}/login")
    await page.get_by_label("Username").fill(who.user)
    await page.get_by_label("Password").fill(who.password)
    await _submit(page, "Log in")


async def _gitlab(page: Page, url: str, who: Account) -> None:
    await page.goto(f"{url}/users/sign_in")
    await page.get_by_test_id("username-field").or_(page.locator("#user_login")).first.fill(who.user)
    await page.get_by_test_id("password-field").or_(page.locator("#user_password")).first.fill(who.password)
    await _submit(page, "Sign in")


async def _shopping(page: Page, url: str, who: Account) -> None:
    await page.goto(f"{url}/customer/account/login/")
    await page.get_by_label("Email", exact=True).fill(who.user)
    await page.get_by_label("Password", exact=True).fill(who.password)
    await _submit(page, "Sign In")


async def _shopping_admin(page: Page, url: str, who: Account) -> None:
    await page.goto(url)
    await page.get_by_placeholder("user name").fill(who.user)
    await page.get_by_placeholder("password").fill(who.password)
    await _submit(page, "Sign in")


LOGINS: Mapping[str, Callable[[Page, str, Account], Awaitable[None]]] = {
    "reddit": _reddit,
    "gitlab": _gitlab,
    "shopping": _shopping,
    "shopping_admin": _shopping_admin,
}
INSIDE: Mapping[str, str] = {
    "reddit": "/user/{user}/account",
    "gitlab": "/-/profile",
    "shopping": "/wishlist/",
    "shopping_admin": "/dashboard",
}
"""For each site a path that only logged-in users see; others are redirected to the login."""

SAYS: Mapping[str, str] = {"shopping_admin": "Dashboard"}
"""Text of the page at ``INSIDE``, for sites that show their login form at the same URL."""


def state_of(host: BrowserHost, lease: Lease, sites: Sequence[str]) -> State | str | None:
    """Playwright's storage state (cookies) for a browser context: the lease's own, or from a login at ``sites``
    (names), cached; None if there is nothing to log in to. Raises SitesLost if a login fails."""
    if lease.storage_state is not None:
        return lease.storage_state
    wanted = tuple(site for site in sites if site in LOGINS and site.upper() in lease.urls)
    if not wanted:
        return None
    key = (lease.name, lease.urls[wanted[0].upper()], wanted)
    with _guard:
        mutex = _mutexes.setdefault(key, threading.Lock())
    with mutex:
        try:
            if key in _states and host.run(_still_in(host, lease, wanted, _states[key]), LOGIN_S, "looking at a state"):
                return _states[key]
            _states[key] = host.run(_logged_in(host, lease, wanted), LOGIN_S * len(wanted), "logging in")
        except TooSlow as error:
            raise SitesLost(f"{', '.join(wanted)} of {lease.name}: {error}") from error
        return _states[key]


async def _logged_in(host: BrowserHost, lease: Lease, sites: Sequence[str]) -> State:
    session = Session(host, hosts_of(lease.urls))
    await session.open()
    try:
        for site in sites:
            page, url = await session.page(), lease.urls[site.upper()].rstrip("/")
            if site not in lease.accounts:
                raise SitesLost(f"no account at {site} is configured: name one in --sites-file")
            try:
                await LOGINS[site](page, url, lease.accounts[site])
                await asyncio.sleep(1.0)  # scripts of that page set cookies, too
            except PlaywrightError as error:
                raise SitesLost(f"logging in to {site} at {url}: {str(error).splitlines()[0]}") from error
            if not await _is_inside(session, lease, site):
                raise SitesLost(f"logging in to {site} at {url} as {lease.accounts[site].user}: {_REFUSED}")
        for site in sites[:-1]:
            if not await _is_inside(session, lease, site):
                raise SitesLost(f"logging in to {', '.join(sites)}: {_overwritten(lease, site, sites)}")
        return dict(await session.context.storage_state())
    finally:
        await session.close()


def _overwritten(lease: Lease, lost: str, sites: Sequence[str]) -> str:
    """Return the error message for a site that later logins have logged out: the cause and what to do."""
    names = {site: place_of(lease.urls[site.upper()]).rpartition(":")[0] for site in sites}
    if clashing := [site for site in sites if site != lost and names[site] == names[lost]]:
        clash = (
            f"{lost} and {', '.join(clashing)} of set {lease.name!r} overwrite each other's cookies at {names[lost]}"
        )
        return f"{clash}: give each site a host name of its own in --sites-file"
    return f"{lost} is logged out again by the time that all are: give each site an account of its own in --sites-file"


async def _still_in(host: BrowserHost, lease: Lease, sites: Sequence[str], state: State) -> bool:
    session = Session(host, hosts_of(lease.urls))
    await session.open(state)
    try:
        return all([await _is_inside(session, lease, site) for site in sites])
    finally:
        await session.close()


async def _is_inside(session: Session, lease: Lease, site: str) -> bool:
    """Whether the session is logged in at a site. Loads a page in its tab, since Playwright's own requests would go
    through the proxy for every host."""
    url = lease.urls[site.upper()].rstrip("/") + INSIDE[site].format(user=lease.accounts[site].user)
    page = await session.page()
    try:
        response = await page.goto(url, wait_until="load" if site in SAYS else "commit", timeout=LOAD_S * 1000)
        if site in SAYS:
            return SAYS[site] in await page.content()
    except PlaywrightError:
        return False
    return response is not None and response.status < 300 and response.request.redirected_from is None
