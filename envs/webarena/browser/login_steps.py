"""Logs in to WebArena's sites through their forms, once per site copy; this process caches the cookies.

Cookies that a site no longer accepts are renewed by another login. Sites on one host name share cookies, whatever their
ports: if one overwrites the other's, nobody can be logged in at both."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Locator, Page

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


@dataclass(frozen=True)
class LoginForm:
    """How to log in at a site, and how to tell whether one is logged in."""

    path: str
    """Path of the page with the form."""
    find: Callable[[Page, str], Locator]
    """From the page and the name of a field, as the two below have it, to the field."""
    user: str
    password: str
    button: str
    inside: str
    """A path that only logged-in users see; others are redirected to the login."""
    says: str = ""
    """Text of the page at ``inside``, for a site that shows its login form at the same URL."""

    async def submit(self, page: Page, url: str, who: Account) -> None:
        """Log in at the site at ``url``, and wait for the page it leads to, whether the login succeeded or not."""
        await page.goto(f"{url}{self.path}")
        await self.find(page, self.user).fill(who.user)
        await self.find(page, self.password).fill(who.password)
        async with page.expect_navigation(wait_until="load", timeout=LOAD_S * 1000):
            await page.get_by_role("button", name=self.button).click()


def _gitlab_field(page: Page, name: str) -> Locator:
    return page.get_by_test_id(f"{name}-field").or_(page.locator(f"#user_{_GITLAB_IDS[name]}")).first


_GITLAB_IDS = {"username": "login", "password": "password"}
LOGINS: Mapping[str, LoginForm] = {
    "reddit": LoginForm("/login", Page.get_by_label, "Username", "Password", "Log in", "/user/{user}/account"),
    "gitlab": LoginForm("/users/sign_in", _gitlab_field, "username", "password", "Sign in", "/-/profile"),
    "shopping": LoginForm(
        "/customer/account/login/", partial(Page.get_by_label, exact=True), "Email", "Password", "Sign In", "/wishlist/"
    ),
    "shopping_admin": LoginForm(
        "", Page.get_by_placeholder, "user name", "password", "Sign in", "/dashboard", says="Dashboard"
    ),
}


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
                await LOGINS[site].submit(page, url, lease.accounts[site])
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
        those = f"{lost} and {', '.join(clashing)} of set {lease.name!r}"
        why = f"overwrite each other's cookies at {names[lost]}: give each site a host name of its own in --sites-file"
        return f"{those} {why}"
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
    form, page = LOGINS[site], await session.page()
    url = lease.urls[site.upper()].rstrip("/") + form.inside.format(user=lease.accounts[site].user)
    try:
        response = await page.goto(url, wait_until="load" if form.says else "commit", timeout=LOAD_S * 1000)
        if form.says:
            return form.says in await page.content()
    except PlaywrightError:
        return False
    return response is not None and response.status < 300 and response.request.redirected_from is None
