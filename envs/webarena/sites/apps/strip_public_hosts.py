"""Removes scripts and styles that a page would load from another host."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_FOREIGN = re.compile(
    rb"""<script\b[^>]*\bsrc=["'](?:https?:)?//[^>]*>\s*</script>|<link\b[^>]*\bhref=["'](?:https?:)?//[^>]*>""", re.I
)


class WithoutPublicHosts:
    """Django middleware that removes scripts and styles of other hosts from HTML. The shop has copies of them."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        response = self.get_response(request)
        if not response.streaming and response.get("Content-Type", "").startswith("text/html"):
            response.content = _FOREIGN.sub(b"", response.content)
            if response.has_header("Content-Length"):
                response["Content-Length"] = str(len(response.content))
        return response
