"""Request options of an endpoint: key, protocol, additional fields, timeouts. Knows nothing of HTTP.

The values are pickled to every process that sends requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from lemur_ray.agents.api_keys import Key
from lemur_ray.agents.throttle import Pressure, Silence, Verdict

Api = Literal["chat", "completions"]
TokenField = Literal["auto", "max_tokens", "max_completion_tokens"]
_FOR_EXAMPLE = "expected a JSON object, for example '{\"top_k\": 20}'"


class RequestSlots(Protocol):
    """Slots for concurrent requests to an endpoint: of one process (``throttle.Throttle``) or of a whole cluster."""

    def enter(self, patience_s: float, *, again: bool) -> float:
        """Wait for a slot. Returns the seconds waited. Raises EndpointSilent."""
        ...

    def leave(self, verdict: Verdict, entered_at: float) -> None:
        """Release the slot."""
        ...

    def silence(self) -> Silence:
        """Time since the last answer to any request."""
        ...

    def pressure(self) -> Pressure:
        """Current limit and queue of requests."""
        ...


@dataclass(frozen=True)
class EndpointOptions:
    """Everything but an endpoint's address and the model there."""

    key: Key = field(default_factory=Key)
    patience_s: float = 240.0
    """Seconds per reply, over all its requests. A pause that the endpoint demands is excluded while it answers
    others"""
    timeout_s: float = 0.0
    """Seconds per request; 0: the rest of ``patience_s``"""
    api: Api = "chat"
    """``completions``: a base model, which receives a conversation as one text"""
    body: str = ""
    """JSON object of further fields of every request, or empty; ``null`` removes a standard field"""
    token_field: TokenField = "auto"
    """The field that limits a reply. ``auto``: max_tokens, until the endpoint demands the other one"""
    resend_reasoning: bool = False
    """Send a model its reasoning of earlier turns, in the form in which it was received"""
    needs_usage: bool = False
    """Whether replies must have token counts, because an episode has a limit of tokens or cost"""
    places: RequestSlots | None = None
    """Request slots that all processes share; None: each has its own"""

    @property
    def more(self) -> dict[str, Any]:
        """``body`` as a value."""
        return parse_json_object(self.body, "body") if self.body else {}


@dataclass(frozen=True)
class Endpoint:
    """One model at one address. ``url`` ends in ``/v1`` as a rule."""

    url: str
    model: str
    options: EndpointOptions = EndpointOptions()

    def within(self, places: RequestSlots) -> Endpoint:
        """The same endpoint with request slots that other processes share."""
        return replace(self, options=replace(self.options, places=places))


def parse_json_object(text: str, flag: str) -> dict[str, Any]:
    """The JSON object in the value of ``flag``. Raises ValueError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{flag} {text[:200]}: not JSON ({error}); {_FOR_EXAMPLE}") from None
    if not isinstance(value, Mapping):
        raise ValueError(f"{flag} {text[:200]}: {_FOR_EXAMPLE}")
    return dict(value)


def checked_url(url: str, flag: str) -> str:
    """The address of an endpoint without a slash at its end.

    Raises ValueError for one that holds a password, or a query, which may; it shows neither.
    """
    try:
        parts = urlsplit(url)
        good = parts.port != 0 and "@" not in (parts.netloc or url) and "\\" not in url
    except ValueError:  # which may quote what stands where a port belongs
        raise ValueError(f"{flag}: not the URL of an endpoint: expected one like http://host:8000/v1") from None
    if good and ("?" in url or "#" in url):
        raise ValueError(
            f"{flag}: an address is kept with the results, and paths are put behind it, so it must hold neither ? nor "
            f"#: give what stands before, here {parts.scheme}://{parts.netloc}{parts.path}, and a key by the name of "
            f"its variable ({flag}-key-env)"
        )
    if good:
        return url.rstrip("/")
    raise ValueError(f"{flag}: an address is kept with the results, so it must hold no password; give the key by name")


def redact_url(text: str) -> str:
    """An address for messages, without parts that may contain a key: the query, and everything before an @."""
    if "@" not in text:
        return text.partition("?")[0]
    before, _, host = text.rpartition("@")
    return "..." if "?" in before or "#" in before else f"...@{host.partition('?')[0]}"
