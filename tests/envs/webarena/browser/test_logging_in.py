"""Who is logged in: once for a copy of the sites, again where a session expired, a sentence where nobody is let in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from envs.webarena.env import WebEnv
from envs.webarena.site_set import Account, Chain, Lease, Record, SitesLost
from tests.envs.webarena.small_site import record

FORM = (
    "<form action='/in'><label>Email <input name=user></label><label>Password <input type=password name=password>"
    "</label><button>Sign In</button></form>"
)


ADMIN_FORM = (
    "<form action='/in'><input name=user placeholder='user name'><input type=password name=password "
    "placeholder=password><button>Sign in</button></form>"
)


class Shop:
    """A shop whose customers log in as at WebArena's; ``sessions`` end when they are taken out. ``host``: by which
    name it is called. Its administration is one, too: it asks for a login wherever its pages are."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.sessions: set[str] = set()
        self.logins = 0
        self.password = "right"
        shop = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                known = self.headers.get("Cookie", "") in shop.sessions
                if parts.path == "/in":
                    shop.logins += 1
                    cookie = f"session={id(shop)}.{shop.logins}"
                    if parse_qs(parts.query).get("password") == [shop.password]:
                        shop.sessions.add(cookie)
                    self._say(302, "", Location="/", **{"Set-Cookie": cookie})
                elif parts.path == "/wishlist/" and not known:
                    self._say(302, "", Location="/customer/account/login/")
                elif parts.path == "/customer/account/login/":
                    self._say(200, FORM)
                elif parts.path in ("/admin", "/admin/dashboard"):
                    self._say(200, "<h1>Dashboard</h1>" if known else ADMIN_FORM)
                else:
                    self._say(200, f"<h1>{'Hello Emma' if known else 'Hello stranger'}</h1>")

            def _say(self, status: int, body: str, **headers: str) -> None:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), "Content-Type": "text/html", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://{host}:{self._server.server_address[1]}"
        self.urls = {"SHOPPING": self.url}

    def lease(self, record: Record, chain: Chain | None = None) -> Lease:
        return Lease(self.urls, None, dict.fromkeys(("shopping", "shopping_admin"), Account("emma", "right")), "a")

    def release(self, lease: Lease) -> None:
        pass

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.close()


@pytest.mark.slow
def test_a_session_that_expired_is_begun_again_once_and_a_refusal_is_a_sentence(browser: None, shop: Shop) -> None:
    env = WebEnv(shop)
    task = {**record(), "storage_state": "./.auth/shopping_state.json"}

    def seen() -> str:
        return env.reset(options={"record": task, "wait_s": 0.0})[0]

    assert "Hello Emma" in seen()
    assert "Hello Emma" in seen()
    assert shop.logins == 1, "the state is kept from one episode to the next"
    shop.sessions.clear()
    assert "Hello Emma" in seen()
    assert shop.logins == 2
    shop.sessions.clear()
    shop.password = "changed"
    with pytest.raises(SitesLost, match=r"logging in to shopping at http\S+ as emma: it was refused: mend its account"):
        seen()
    assert shop.logins == 3, "once"
    env.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_sites_that_overwrite_each_others_cookies_are_named_with_what_to_do(
    browser: None, shop: Shop, host: str
) -> None:
    admin = Shop(host)
    shop.urls = {"SHOPPING": shop.url, "SHOPPING_ADMIN": f"{admin.url}/admin"}
    env = WebEnv(shop)
    task = {**record(), "storage_state": "./.auth/shopping.shopping_admin_state.json"}
    try:
        if host == "localhost":
            assert "Hello Emma" in env.reset(options={"record": task, "wait_s": 0.0})[0]
            return
        with pytest.raises(
            SitesLost,
            match=r"shopping and shopping_admin of set 'a' overwrite .* 127\.0\.0\.1: give each site a host name",
        ):
            env.reset(options={"record": task, "wait_s": 0.0})
    finally:
        env.close()
        admin.close()
