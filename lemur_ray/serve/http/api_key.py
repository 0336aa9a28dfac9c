"""The API key of a server: requests without it get a 401 with OpenAI's body. Plain ASGI.

Replicas receive and hold only a digest of the key. No key is needed for /health, /ready and the chat page, which holds
no secret and asks for the key. Knows nothing of users."""

import hashlib
import hmac
import ipaddress
import logging

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lemur_ray.serve.http.asgi import path_inside
from lemur_ray.serve.openai.errors import ApiError

log = logging.getLogger(__name__)

KEY_VARIABLE = "LEMUR_API_KEY"
"""Environment variable of the key; unlike a command line, other users of the machine cannot read it."""
CURL_KEY = f'-H "Authorization: Bearer ${KEY_VARIABLE}" '
"""Option of curl that sends the key."""
_OPEN = ("/health", "/ready", "/", "")


def key_digest(key: str) -> bytes:
    """SHA-256 of a key; b"" for an empty key. Raises ValueError for a key that no client can send."""
    if not key:
        return b""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("the API key has blanks or characters outside ASCII, which no client can send: choose another")
    return hashlib.sha256(key.encode()).digest()


def server_key_digest(host: str, key: str) -> bytes:
    """``key_digest`` of ``key``. Logs a warning if the key is empty and ``host`` is not a loopback address."""
    if not key and not _is_loopback(host):
        log.warning(
            "%s: everybody who reaches this machine can use the model, because no key is asked for: set %s, or listen "
            "on 127.0.0.1",
            f"--host {host}" if host else "no --host",
            KEY_VARIABLE,
        )
    return key_digest(key)


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class KeyRequired:
    """Middleware that answers 401 unless a request has the key (``Authorization: Bearer KEY``). digest: its SHA-256."""

    def __init__(self, app: ASGIApp, digest: bytes):
        self.app, self._digest = app, digest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or path_inside(scope) in _OPEN or self._is_valid(_bearer_token(scope)):
            await self.app(scope, receive, send)
            return
        refusal = ApiError(
            401,
            "No API key, or not the one of this server: send it as the header `Authorization: Bearer KEY`.",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
        await JSONResponse(refusal.body(), refusal.status, refusal.headers)(scope, receive, send)

    def _is_valid(self, key: bytes) -> bool:
        return hmac.compare_digest(hashlib.sha256(key).digest(), self._digest)


def _bearer_token(scope: Scope) -> bytes:
    scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
    return key.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
