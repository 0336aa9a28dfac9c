"""``FixedSites``: sites that the user runs, described in a JSON file and leased to the episodes of several processes.

::

    {"sets": [{"name": "a", "urls": {"SHOPPING": "http://host:7770", ...}, "places": 5,
               "reset": ["sh", "reset.sh", "a"], "reset_each": false}],
     "accounts": {"shopping": {"user": "...", "password": "..."}}}

A set is one copy of all sites. ``places`` is how many episodes may use it at once (by default 5), each under a lease
(``agents.task_leases``) that ends with its process; files with equal URLs share their leases. ``reset`` is the command
that restores the set. With ``reset_each``, which requires one place, it runs before an episode if an earlier one used
the set. A chain (tasks that see each other's changes, see ``ordering``) is played on one set, which is reset before its
first task if another epoch used it."""

import hashlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from envs.webarena.site_set import Account, Chain, Lease, Record, SitesLost, host_names, normalised
from envs.webarena.tasks import LOGGED_IN_AT, SITES
from lemur_ray.agents.task_leases import HeldLease, Leases, shared_leases

PLACES = 5
FOLDER = "webarena/leases"
"""Folder of lease files below ``$LEMUR_HOME``."""
WAIT_S = 7200.0
PROBE_S = 10.0
RESET_S = 1800.0
"""Seconds. A reset of the published images takes 200 to 500 s."""
POLL_S = 0.2
NOT_UP = (502, 503, 504)
"""Status codes of a reverse proxy while the site behind it starts, or after it has ended."""
PUBLIC_ACCOUNTS: Mapping[str, Account] = {
    "reddit": Account("MarvelsGrantMan136", "test1234"),
    "gitlab": Account("byteblaze", "hello1234"),
    "shopping": Account("emma.lopez@gmail.com", "Password.123"),
    "shopping_admin": Account("admin", "admin1234"),
}
"""Accounts of the published images."""


@dataclass(frozen=True)
class SiteCopy:
    """One copy of all sites: an entry of ``sets`` in the sites file. ``urls``: by placeholder; ``places``: episodes at
    a time; ``reset``: command that restores it. Raises ValueError for wrong fields; normalises URLs."""

    name: str
    urls: Mapping[str, str]
    places: int = PLACES
    reset: Sequence[str] = ()
    reset_each: bool = False

    def __post_init__(self) -> None:
        if not self.urls:
            raise ValueError(f"site set {self.name!r} has no urls: expected some of {', '.join(SITES)}")
        for name, url in self.urls.items():
            if not isinstance(url, str) or not url.strip().lower().startswith(("http://", "https://")):
                raise ValueError(
                    f"site set {self.name!r}: {name} is {url!r}, expected an http address, http://HOST:PORT"
                )
            if name not in SITES:
                raise ValueError(f"site set {self.name!r}: unknown site {name!r}, expected some of {', '.join(SITES)}")
        object.__setattr__(self, "urls", {name: normalised(url) for name, url in self.urls.items()})
        if isinstance(self.reset, str) or not all(isinstance(word, str) for word in self.reset):
            raise ValueError(f"site set {self.name!r}: reset is {self.reset!r}, expected a list of words")
        if not isinstance(self.places, int) or self.places < 1:
            raise ValueError(f"site set {self.name!r}: {self.places} places, expected 1 or more")
        if self.reset_each and (not self.reset or self.places != 1):
            raise ValueError(f"site set {self.name!r}: reset_each needs a reset command and places: 1")

    @property
    def key(self) -> str:
        """Hash of the URLs in 16 hex digits, equal in all processes that use the same sites."""
        addresses = sorted(url.rstrip("/").lower() for url in self.urls.values())
        return hashlib.sha256(json.dumps(addresses).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SitesConfig:
    """Contents of a sites file: the copies of the sites, and the account to log in with at each site."""

    copies: tuple[SiteCopy, ...]
    accounts: Mapping[str, Account] = field(default_factory=lambda: PUBLIC_ACCOUNTS)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a sites file. Raises ValueError naming the file if its contents are wrong, and OSError."""
        try:
            return cls.from_json(json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"--sites-file {file}: {type(error).__name__}: {error}") from error

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse a sites file's JSON object. Raises ValueError, TypeError, KeyError or AttributeError if invalid."""
        copies = [SiteCopy(**{"name": str(number), **one}) for number, one in enumerate(value["sets"])]
        if not copies or len({one.name for one in copies}) != len(copies):
            raise ValueError("sets: expected one or more, each with a name of its own")
        _check_distinct(copies)
        accounts = {name: Account(**one) for name, one in value.get("accounts", {}).items()}
        if unknown := sorted(accounts.keys() - set(LOGGED_IN_AT)):
            raise ValueError(f"accounts: unknown site {unknown[0]!r}, expected some of {', '.join(LOGGED_IN_AT)}")
        return cls(tuple(copies), {**PUBLIC_ACCOUNTS, **accounts})

    @property
    def lasting(self) -> tuple[SiteCopy, ...]:
        """Copies without ``reset_each``, on which later episodes see what earlier ones changed."""
        return tuple(one for one in self.copies if not one.reset_each)

    def to_json(self) -> dict[str, Any]:
        return {
            "sets": [{**vars(one), "urls": dict(one.urls), "reset": list(one.reset)} for one in self.copies],
            "accounts": {name: dict(vars(one)) for name, one in self.accounts.items()},
        }


def _check_distinct(copies: Sequence[SiteCopy]) -> None:
    """Raise ValueError if two sets have a URL in common: they would change each other."""
    seen: dict[str, str] = {}
    for one in copies:
        for name, url in one.urls.items():
            if (other := seen.setdefault(url.rstrip("/"), one.name)) != one.name:
                raise ValueError(f"site sets {other!r} and {one.name!r} have one address for {name}: {url}")


class FixedSites:
    """Leases the site copies of a configuration to episodes. ``leases``: where leases are recorded; None: those of this
    process (``shared_leases``). ``wait_s``: seconds to wait for a free place."""

    def __init__(self, config: SitesConfig, leases: Leases | None = None, wait_s: float = WAIT_S) -> None:
        self.config = config
        self._leases = leases or shared_leases()
        self._wait_s = wait_s
        self._host_names = frozenset[str]().union(*(host_names(one.urls) for one in config.copies))
        self._held: list[HeldLease] = []
        self._mutex = threading.Lock()

    def lease(self, record: Record, chain: Chain | None = None) -> Lease:
        copies = self.config.copies if chain is None else [self._copy_of_chain(chain)]
        places = {
            f"{FOLDER}/{copy.key}-{place}": copy
            for place in range(max(one.places for one in copies))
            for copy in copies
            if place < copy.places
        }
        held = self._take(list(places), self._wait_s, f"no place in any of {len(copies)} site sets")
        copy = places[held.name]
        try:
            self._reset_if_used(copy, chain)
        except BaseException:
            held.give_back()
            raise
        with self._mutex:
            self._held.append(held)
        return Lease(copy.urls, None, self.config.accounts, copy.name, held, self._host_names)

    def release(self, lease: Lease) -> None:
        with self._mutex:
            self._held = [one for one in self._held if one is not lease.token]
        lease.token.give_back()

    def is_alive(self, lease: Lease) -> bool:
        """Whether every site of the lease answers. Raises SitesLost if the lease is no longer held."""
        if not lease.token.is_held():
            raise SitesLost(f"the lease of site set {lease.name!r} was lost: others may have played on it")
        return all(answers(url) for url in lease.urls.values())

    def close(self) -> None:
        with self._mutex:
            held, self._held = self._held, []
        for one in held:
            one.give_back()

    def _take(self, names: Sequence[str], wait_s: float, lacking: str) -> HeldLease:
        """Wait for the first free lease of ``names``. Raises SitesLost, with the text ``lacking``, after ``wait_s``."""
        deadline = time.monotonic() + wait_s
        while (held := self._leases.take(names)) is None:
            if time.monotonic() > deadline:
                raise SitesLost(f"{lacking} within {wait_s:g} s")
            time.sleep(POLL_S)
        return held

    def _copy_of_chain(self, chain: Chain) -> SiteCopy:
        lasting = self.config.lasting
        return lasting[chain.epoch % chain.lanes * (len(lasting) // chain.lanes) + chain.copy]

    def _reset_if_used(self, copy: SiteCopy, chain: Chain | None) -> None:
        """Reset a copy that an earlier episode (``reset_each``) or epoch (of a chain) used. Raises SitesLost."""
        if copy.reset_each:
            mark = f"{FOLDER}/{copy.key}.played"
            if self._leases.note(mark) is not None:
                self._reset(copy)
            self._leases.note(mark, "")
        elif chain is not None:
            names, lacking = [f"{FOLDER}/{copy.key}-epoch"], f"site set {copy.name!r} was not reset by another"
            beginning = self._take(names, 2 * RESET_S, lacking)
            try:
                self._begin_epoch(copy, chain.epoch, f"{FOLDER}/{copy.key}.epoch")
            finally:
                beginning.give_back()

    def _begin_epoch(self, copy: SiteCopy, epoch: int, mark: str) -> None:
        """Reset the copy if the note ``mark`` names another epoch, then note this one. Raises SitesLost if the reset
        fails, or if an epoch after the first needs one and there is no reset command."""
        noted = self._leases.note(mark)
        before = str(epoch) if noted is None else noted
        if before != str(epoch) and copy.reset:
            self._reset(copy)
        elif before != str(epoch) and epoch > 0:
            raise SitesLost(
                f"site set {copy.name!r} is as epoch {before} left it: epoch {epoch} needs a reset command in "
                "--sites-file"
            )
        self._leases.note(mark, str(epoch))

    def _reset(self, copy: SiteCopy) -> None:
        """Run the reset command of a copy. Raises SitesLost with its exit status and last output if it fails."""
        status, output = self._leases.run(copy.reset, RESET_S)
        if status:
            raise SitesLost(f"site set {copy.name!r}: {' '.join(copy.reset)} ended with {status}: {output}")


def answers(url: str) -> bool:
    """Whether a site answers within ``PROBE_S`` seconds, by a page, a redirect or an error. A status of ``NOT_UP``,
    which a proxy sends without its site, does not count."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
    try:
        with opener.open(url, timeout=PROBE_S):
            return True
    except urllib.error.HTTPError as error:
        return error.code not in NOT_UP
    except (OSError, ValueError, http.client.HTTPException):
        return False


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """URL handler that does not follow redirects, which may lead to a foreign host."""

    def redirect_request(self, *given: Any) -> None:
        return None
