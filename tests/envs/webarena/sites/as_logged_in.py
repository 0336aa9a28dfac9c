"""A visitor of the stand-in sites over plain HTTP, with the cookies that a lease brings."""

from __future__ import annotations

import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from html import unescape
from typing import Any

from envs.webarena.site_set import Lease
from envs.webarena.sites.golden import AGENT, _hidden


class Visitor:
    """Remembers cookies as they were at the lease."""

    def __init__(self, lease: Lease) -> None:
        state: Any = lease.storage_state or {"cookies": []}
        cookies = "; ".join(f"{one['name']}={one['value']}" for one in state["cookies"])
        self._headers = {"Cookie": cookies, "User-Agent": AGENT}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def page(self, url: str) -> str:
        """Text of a page, as it is after redirects; of an error, too."""
        return self._asked(urllib.request.Request(url, headers=self._headers))

    def send(self, page: str, action: str, fields: Mapping[str, str], having: str = "") -> str:
        """What comes of sending to ``action`` the first form of ``page`` with the first of the fields, or a text."""
        text = having or f'name="{next(iter(fields))}"'
        forms = re.findall(r"<form\b.*?</form>", self.page(page), re.S | re.I)
        form = next(one for one in forms if text in one)
        data = urllib.parse.urlencode({**_hidden(form), **fields}).encode()
        return self._asked(urllib.request.Request(action, data, {**self._headers, "Referer": page}))

    def _asked(self, request: urllib.request.Request) -> str:
        try:
            with self._opener.open(request, timeout=60) as answer:
                return unescape(answer.read().decode("utf-8", "replace"))
        except urllib.error.HTTPError as error:
            with error:
                return unescape(error.read().decode("utf-8", "replace"))
