"""The chat page at the root of a server: one file without external resources, with a Content-Security-Policy.

The policy allows only the page's own script and style, connections to this server only, and requires trusted types, so
that a model's reply is shown as text. Plain ASGI; knows nothing of models."""

import base64
import hashlib
import re
from importlib.resources import files

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lemur_ray.host.page_style import page_style
from lemur_ray.serve.http.asgi import path_inside


class ChatPage:
    """Middleware that answers GET and HEAD at the app's root with the chat page, also behind a URL prefix."""

    def __init__(self, app: ASGIApp):
        self.app = app
        page = files("lemur_ray.serve.http").joinpath("chat_page.html").read_text(encoding="utf-8")
        page = page.replace(_SHARED_STYLE, page_style(), 1)
        self._body, self._headers = page.encode(), {"content-security-policy": _policy(page), **_HEADERS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or path_inside(scope) not in ("", "/"):
            await self.app(scope, receive, send)
            return
        answer = Response(self._body, headers=self._headers, media_type="text/html; charset=utf-8")
        if scope["method"] == "HEAD":
            answer.body = b""
        await answer(scope, receive, send)


_SHARED_STYLE = "/* page_style.css */\n"
"""Line of the page in whose place the style sheet of all pages comes."""
_HEADERS = {"cache-control": "no-cache", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


def _policy(page: str) -> str:
    """Content-Security-Policy that allows only the page's inline script and style, by their hashes."""
    script, style = (_inline_hash(page, tag) for tag in ("script", "style"))
    rules = (
        "default-src 'none'",
        f"script-src '{script}'",
        f"style-src '{style}'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
    return "; ".join(rules)


def _inline_hash(page: str, tag: str) -> str:
    """The hash of the content of the page's single ``tag`` element."""
    (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
