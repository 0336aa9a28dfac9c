"""Logs in to a site over plain HTTP, without a browser, and returns its cookies as a Playwright storage state."""

from __future__ import annotations

import base64
import http.cookiejar
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

TIMEOUT_S = 60.0
AGENT = "Mozilla/5.0"
_HIDDEN = re.compile(r"<input\b[^>]*type=[\"']hidden[\"'][^>]*>", re.I)
_ATTRIBUTE = re.compile(r"\b(name|value)=[\"']([^\"']*)[\"']", re.I)


class LoginFailed(Exception):
    """Raised if a site does not accept a user's name and password in its login form."""


def storage_state(base: str, path: str, form: Mapping[str, str] | None, user: str, password: str) -> dict[str, Any]:
    """Log in to ``base + path`` and return the cookies as a Playwright storage state.

    ``form`` has the field names of ``user`` and ``password``, and other fields with their values; None is HTTP basic
    authentication. Raises LoginFailed if a form is not accepted, OSError if the request fails.
    """
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar))
    opener.addheaders = [("User-Agent", AGENT)]
    if form is None:
        header = {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
        opener.open(urllib.request.Request(base + path, headers=header), timeout=TIMEOUT_S)
        return {"cookies": [_playwright(cookie) for cookie in jar], "origins": []}
    page = opener.open(base + path, timeout=TIMEOUT_S).read().decode("utf-8", "replace")
    before = {cookie.value for cookie in jar}
    others = {name: value for name, value in form.items() if name not in ("user", "password")}
    fields = {**_hidden(page), **others, form["user"]: user, form["password"]: password}
    request = urllib.request.Request(base + path, urllib.parse.urlencode(fields).encode(), {"Referer": base + path})
    answer = opener.open(request, timeout=TIMEOUT_S).read().decode("utf-8", "replace")
    if {cookie.value for cookie in jar} <= before or f'name="{form["password"]}"' in answer:
        raise LoginFailed(f"{base}{path}: the account {user!r} is not let in")
    return {"cookies": [_playwright(cookie) for cookie in jar], "origins": []}


def _hidden(page: str) -> dict[str, str]:
    """Return the hidden fields of a page's forms with their values, CSRF tokens among them."""
    fields = [dict(_ATTRIBUTE.findall(tag)) for tag in _HIDDEN.findall(page)]
    return {one["name"]: one.get("value", "") for one in fields if "name" in one}


def _playwright(cookie: http.cookiejar.Cookie) -> dict[str, Any]:
    return {
        "name": cookie.name,
        "value": cookie.value or "",
        "domain": "127.0.0.1",
        "path": cookie.path,
        "expires": float(cookie.expires) if cookie.expires else -1,
        "httpOnly": cookie.has_nonstandard_attr("HttpOnly"),
        "secure": False,
        "sameSite": "Lax",
    }
