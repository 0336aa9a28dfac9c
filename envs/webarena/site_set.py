"""Interface between an environment and its sites: URLs, logins, and leases of site copies to episodes.

``SiteSet`` is implemented by ``fixed_sites.FixedSites`` (sites that the user runs) and by
``sites.standin_sites.StandinSites`` (replacements that this process starts)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from lemur_ray.agents.external_calls import ExternalCallError

Record = Mapping[str, Any]
"""A task in WebArena's own format: ``task_id``, ``sites``, ``start_url``, ``storage_state``, ``intent``, ``eval``."""
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


def place_of(url: str) -> str:
    """``host:port`` of a URL, in lower case; default port: the scheme's. Raises ValueError if it is no web URL."""
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in _PORTS:
        raise ValueError(f"{url[:200]!r} is no address of the web")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{_PORTS[parts.scheme] if parts.port is None else parts.port}"


def normalised(url: str) -> str:
    """A URL as a browser shows it: lower-case scheme and host, no default port or trailing slash. Raises ValueError."""
    parts = urlsplit(url.strip())
    host, _, port = place_of(url.strip()).rpartition(":")
    user, at, _ = parts.netloc.rpartition("@")
    shown = host if int(port) == _PORTS[parts.scheme] else f"{host}:{port}"
    return urlunsplit(parts._replace(netloc=f"{user}{at}{shown}")).rstrip("/")


def host_names(urls: Mapping[str, str]) -> frozenset[str]:
    """Return the hosts of the sites' URLs, without ports. Raises ValueError as ``place_of`` does."""
    return frozenset(place_of(url).rpartition(":")[0] for url in urls.values())


class SitesLost(ExternalCallError):
    """Raised if sites cannot be used: one does not start, answer, reset or let an account log in, or no copy becomes
    free. The episode is played again, since the model is not at fault."""


@dataclass(frozen=True)
class Account:
    """Name and password of a user of a site."""

    user: str
    password: str


@dataclass(frozen=True)
class Lease:
    """The copy of the sites that one episode uses: its URLs, and how to log in."""

    urls: Mapping[str, str]
    """Base URL of each site, without a trailing slash, by placeholder without underscores (SHOPPING)."""
    storage_state: str | Mapping[str, Any] | None = None
    """Playwright storage state, or the path of its file: cookies of logged-in users. None: nobody is logged in, or the
    environment logs in with ``accounts``."""
    accounts: Mapping[str, Account] = field(default_factory=dict)
    """Account of each site, by its name in records (shopping), to log in with if there is no storage state. The
    environment caches the resulting state by ``name`` and sites."""
    name: str = ""
    """Name of the site copy. A login at one copy is not valid at another."""
    token: Any = None
    """Value by which the site set recognises the lease. For the site set only."""
    host_names: frozenset[str] = frozenset()
    """Other hosts that a browser may resolve: those of other copies, since one browser serves all."""


@dataclass(frozen=True)
class Chain:
    """Which site copy an episode gets that sees changes of earlier ones: ``copy`` is its number, from 0, among the
    copies of its ``epoch`` (from 0); ``lanes`` epochs run at once, each on different copies."""

    copy: int
    lanes: int = 1
    epoch: int = 0


class SiteSet(Protocol):
    """Pool of copies of the sites that are leased to the episodes of one process; implementations are thread-safe."""

    def lease(self, record: Record, chain: Chain | None = None) -> Lease:
        """Wait for a copy of the sites and lease it to one episode of the task ``record``. With a ``chain``, the copy
        is as earlier episodes of the chain left it. Raises SitesLost if none becomes free or usable."""
        ...

    def release(self, lease: Lease) -> None:
        """End a lease, however its episode ended; another episode may then use the copy. Safe to call twice."""
        ...
