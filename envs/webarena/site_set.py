"""Interface between an environment and its sites: URLs, logins, leases for episodes, and their release.

A *site set* is one copy of all the sites. ``fixed_sites.FixedSites`` are run by the user, the stand-ins (``sites``) are
started by this process. Knows no browser, and only the record of a task.
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
    """Host and port of a URL in lower case, with the scheme's port as the default.

    Raises ValueError if it is no web URL.
    """
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in _PORTS:
        raise ValueError(f"{url[:200]!r} is no address of the web")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{_PORTS[parts.scheme] if parts.port is None else parts.port}"


def normalised(url: str) -> str:
    """A URL as a browser shows it: scheme and host in lower case, without default port and trailing slash. Raises
    ValueError as ``place_of`` does."""
    parts = urlsplit(url.strip())
    host, _, port = place_of(url.strip()).rpartition(":")
    user, at, _ = parts.netloc.rpartition("@")
    shown = host if int(port) == _PORTS[parts.scheme] else f"{host}:{port}"
    return urlunsplit(parts._replace(netloc=f"{user}{at}{shown}")).rstrip("/")


def host_names(urls: Mapping[str, str]) -> frozenset[str]:
    """Hosts of sites without their ports. Raises ValueError as ``place_of`` does."""
    return frozenset(place_of(url).rpartition(":")[0] for url in urls.values())


class SitesLost(ExternalCallError):
    """A site does not answer or could not be restored. Not the policy's fault: the episode is tried again."""


@dataclass(frozen=True)
class Account:
    """Credentials of a site's user."""

    user: str
    password: str


@dataclass(frozen=True)
class Lease:
    """The sites as leased to one episode."""

    urls: Mapping[str, str]
    """Placeholder without its underscores (SHOPPING) -> base URL without a trailing slash."""
    storage_state: str | Mapping[str, Any] | None = None
    """Playwright storage state, or the path of its file: cookies of logged-in users. None: nobody is logged in, or
    the environment logs in with ``accounts``."""
    accounts: Mapping[str, Account] = field(default_factory=dict)
    """Site (in lower case, as in records) -> account for logging in if there is no storage state. The environment
    stores the resulting state by ``name`` and sites, and reuses it."""
    name: str = ""
    """Name of the site copy. A login at one copy is not valid at another."""
    token: Any = None
    """Private value of the site set, for the release."""
    host_names: frozenset[str] = frozenset()
    """Other hosts that a browser may resolve: those of other copies, since one browser serves all."""


@dataclass(frozen=True)
class Chain:
    """Position of an episode that sees changes of earlier ones.

    ``copy`` is one of the copies that an epoch uses. ``lanes`` epochs run at once, each on copies of its own.
    """

    copy: int
    lanes: int = 1
    epoch: int = 0


class SiteSet(Protocol):
    """The sites for episodes of one process. Thread-safe."""

    @property
    def urls(self) -> Mapping[str, str]:
        """URLs of some copy, as in ``Lease``, to test whether sites exist at all."""
        ...

    def lease(self, record: Record, chain: Chain | None = None) -> Lease:
        """Wait for a copy for one episode of this task, in its initial state, or as earlier episodes of its chain
        left it. Raises SitesLost."""
        ...

    def release(self, lease: Lease) -> None:
        """Release and restore the copy, however the episode ended. Safe to call twice. Raises SitesLost."""
        ...

    def close(self) -> None:
        """Stop what was started. Safe to call twice."""
        ...
