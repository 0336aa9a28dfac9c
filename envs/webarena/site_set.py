"""What an environment asks of the sites it plays on: addresses, who is logged in, a lease for an episode, restoring.

A *site set* is one copy of all the sites. ``FixedSites`` (``fixed_sites``) are those that somebody runs; the stand-ins
(``sites``) are started by us. Knows no browser and no task format beyond the record that it is handed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from lemur_ray.agents.external_calls import ExternalCallError

Record = Mapping[str, Any]
"""A task in WebArena's own format: ``task_id``, ``sites``, ``start_url``, ``storage_state``, ``intent``, ``eval``."""

_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


def place_of(url: str) -> str:
    """Host and port of an address, in lower case, the port being that of the scheme where none is named.

    Raises ValueError for what is no address of the web.
    """
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in _PORTS:
        raise ValueError(f"{url[:200]!r} is no address of the web")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{_PORTS[parts.scheme] if parts.port is None else parts.port}"


def normalised(url: str) -> str:
    """An address as a browser shows it: scheme and host in lower case, no port that is the scheme's own, no slash at
    its end. Raises ValueError as ``place_of``."""
    parts = urlsplit(url.strip())
    host, _, port = place_of(url.strip()).rpartition(":")
    user, at, _ = parts.netloc.rpartition("@")
    shown = host if int(port) == _PORTS[parts.scheme] else f"{host}:{port}"
    return urlunsplit(parts._replace(netloc=f"{user}{at}{shown}")).rstrip("/")


def host_names(urls: Mapping[str, str]) -> frozenset[str]:
    """Hosts of sites without their ports. Raises ValueError as ``place_of``."""
    return frozenset(place_of(url).rpartition(":")[0] for url in urls.values())


class SitesLost(ExternalCallError):
    """A site does not answer, or could not be put back: the episode says nothing of its policy and is tried again."""


@dataclass(frozen=True)
class Account:
    """Who is logged in at a site."""

    user: str
    password: str


@dataclass(frozen=True)
class Lease:
    """The sites as one episode has them."""

    urls: Mapping[str, str]
    """Placeholder without its underscores (SHOPPING) -> base URL without a slash at its end."""
    storage_state: str | Mapping[str, Any] | None = None
    """Playwright's storage state, or the path of its file: cookies of whoever is logged in. None: nobody is, or the
    environment logs in by ``accounts``."""
    accounts: Mapping[str, Account] = field(default_factory=dict)
    """Site (in lower case, as records name it) -> account that the environment logs in with where there is no storage
    state; it keeps the state by ``name`` and sites, and reuses it."""
    name: str = ""
    """Which copy of the sites: what is logged in there is not logged in elsewhere."""
    token: Any = None
    """Whatever its site set needs to take it back."""
    host_names: frozenset[str] = frozenset()
    """What a browser may look up besides those of ``urls``: hosts of other copies, so that one browser plays all."""


@dataclass(frozen=True)
class Chain:
    """Of an episode that sees what others before it did: on which copy these are.

    ``copy``: of those that one epoch takes. ``lanes``: so many epochs are played side by side, each on its own copies.
    """

    copy: int
    lanes: int = 1
    epoch: int = 0


class SiteSet(Protocol):
    """Where episodes of one process are played. Every method may be called from many threads at once."""

    @property
    def urls(self) -> Mapping[str, str]:
        """As of ``Lease``: of some copy; whether a site is there at all."""
        ...

    def lease(self, record: Record, chain: Chain | None = None) -> Lease:
        """A copy for one episode of this task, in its first state, or as the episodes before it in its chain left it.
        Waits for one. Raises SitesLost."""
        ...

    def release(self, lease: Lease) -> None:
        """Take it back and restore it, however the episode ended. Safe to call twice. Raises SitesLost."""
        ...

    def close(self) -> None:
        """End what was started. Safe to call twice."""
        ...
