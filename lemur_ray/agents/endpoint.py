"""An endpoint (a model behind an HTTP address) and the options of requests to it: key, protocol, fields, timeouts.

The values are pickled to every process that sends requests."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from lemur_ray.agents.api_keys import Key
from lemur_ray.agents.throttle import Pressure, Silence, Verdict

Api = Literal["chat", "completions"]
AUTO_THINKING = -1
"""Value of ``thinking_tokens``: none, until a reply shows that the model reasons"""
TokenField = Literal["auto", "max_tokens", "max_completion_tokens"]
_FOR_EXAMPLE = "expected a JSON object, for example '{\"top_k\": 20}'"


class RequestSlots(Protocol):
    """Limit of concurrent requests to an endpoint, for one process (``throttle.Throttle``) or a whole cluster. Each
    request takes a slot by ``enter`` and returns it by ``leave``."""

    def enter(self, patience_s: float, *, again: bool) -> float:
        """Wait for a slot; returns the seconds waited. ``again``: a retry, which goes before new requests. Raises
        EndpointSilent if the endpoint answers no request for ``patience_s`` seconds."""

    def leave(self, verdict: Verdict, entered_at: float) -> None:
        """Return the slot. ``verdict``: how the request ended ("answered", "refused", "failed"); ``entered_at``: its
        start, in monotonic seconds."""

    def silence(self) -> Silence:
        """Time without an answer, whether any request was ever answered, and number of requests in flight."""

    def pressure(self) -> Pressure:
        """Limit of concurrent requests, number of waiting ones, and number of refusals so far."""


@dataclass(frozen=True)
class EndpointOptions:
    """Options of requests to an endpoint; its address and model are in ``Endpoint``."""

    key: Key = field(default_factory=Key)
    patience_s: float = 240.0
    """Seconds per reply, over all its requests. Pauses that the endpoint demands are excluded if it answers others"""
    timeout_s: float = 0.0
    """Maximum seconds of one request; 0: what is left of ``patience_s``"""
    api: Api = "chat"
    """Route of requests. ``completions``: for a base model, which receives a conversation as one text"""
    body: str = ""
    """Further fields of every request body: text of a JSON object, or empty; ``null`` removes a standard field"""
    token_field: TokenField = "auto"
    """Field of the reply's token limit. ``auto``: max_tokens, until the endpoint demands max_completion_tokens"""
    resend_reasoning: bool = False
    """Whether a model gets its reasoning of earlier turns back, in the field or tags in which it came"""
    thinking_tokens: int = AUTO_THINKING
    """Tokens of reasoning that a chat request allows beyond its reply's limit (``endpoint_retries.ThinkingBudget``)"""
    needs_usage: bool = False
    """Whether replies must have token counts, because an episode has a limit of tokens or cost"""
    places: RequestSlots | None = None
    """Request slots that all processes share; None: each process limits its own requests"""

    @property
    def more(self) -> dict[str, Any]:
        """``body`` parsed; an empty dict if ``body`` is empty. Raises ValueError if it is no JSON object."""
        return parse_json_object(self.body, "body") if self.body else {}


@dataclass(frozen=True)
class Endpoint:
    """One model at one address. ``url`` usually ends in ``/v1``."""

    url: str
    model: str
    options: EndpointOptions = EndpointOptions()

    def within(self, places: RequestSlots) -> "Endpoint":
        """A copy of the endpoint that takes its request slots from ``places``, a limit that other processes share."""
        return replace(self, options=replace(self.options, places=places))


def parse_json_object(text: str, flag: str) -> dict[str, Any]:
    """Parse ``text``, the value of command-line flag ``flag``, as a JSON object. Raises ValueError, with the flag's
    name, for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{flag} {text[:200]}: not JSON ({error}); {_FOR_EXAMPLE}") from None
    if not isinstance(value, Mapping):
        raise ValueError(f"{flag} {text[:200]}: {_FOR_EXAMPLE}")
    return dict(value)


def checked_url(url: str, flag: str) -> str:
    """The address of an endpoint without trailing slashes. ``flag``: command-line flag that has it, for errors. Raises
    ValueError, which quotes no secrets, if it is malformed or has a user, password, query or fragment."""
    try:
        parts = urlsplit(url)
        good = parts.port != 0 and "@" not in (parts.netloc or url) and "\\" not in url
    except ValueError:  # its message may quote a password in the place of a port
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
    """``text``, an address, for messages: without the query and everything before an ``@``, which may contain a key."""
    if "@" not in text:
        return text.partition("?")[0]
    before, _, host = text.rpartition("@")
    return "..." if "?" in before or "#" in before else f"...@{host.partition('?')[0]}"
