"""The stand-in sites as a site set: copies of each application, leased to one episode at a time and restored after it.

A task gets a copy of each application that it names and of no other, started when it is first needed; so many
episodes as there are copies play side by side. A copy that died is started anew. Knows no browser and no evaluator.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from envs.webarena.site_set import Chain, Lease, Record, SitesLost
from envs.webarena.sites.content import SEED
from envs.webarena.sites.golden import Golden, golden_of
from envs.webarena.sites.restoring import copied, restore
from envs.webarena.sites.running_site import RunningSite, new_folder
from envs.webarena.sites.software import SITES, SOFTWARE, Software

WAIT_S = 600.0
"""For a copy that others have."""
_NUMBERS = count()


@dataclass
class _Copy:
    """``site``: None where it has to be started. ``number``: of this process."""

    software: Software
    number: int
    site: RunningSite | None = None


class StandinSites:
    """Copies in this process. Every method may be called from many threads at once."""

    def __init__(self, copies: int = 2, seed: int = SEED) -> None:
        """``copies``: of each application at most. Starts nothing yet."""
        self._most, self._seed = copies, seed
        self._changed = threading.Condition()
        self._free: dict[str, list[_Copy]] = defaultdict(list)
        self._made: dict[str, int] = defaultdict(int)
        self._leased: dict[int, list[_Copy]] = {}
        self._goldens: dict[str, Golden] = {}
        self._closed = False

    @property
    def urls(self) -> Mapping[str, str]:
        """Of the copies that run and are free, by placeholder."""
        with self._changed:
            running = [one.site for free in self._free.values() for one in free[:1] if one.site is not None]
        return {name: url for site in running for name, url in _urls(site).items()}

    def lease(self, record: Record, chain: Chain | None = None) -> Lease:
        """Of all applications that the record names, in one order, so that no two leases wait for each other. Each is
        in its first state: there are no chains.

        Raises SitesLost where one cannot be started or none is given back in time, ValueError for an unknown site.
        """
        unknown = [site for site in record["sites"] if site not in SITES]
        if unknown:
            raise ValueError(f"task {record.get('task_id')}: site {unknown[0]!r}: there are {', '.join(SITES)}")
        taken: list[_Copy] = []
        try:
            for name in sorted({SITES[site].name for site in record["sites"]}):
                taken.append(self._take(SOFTWARE[name]))
            sites = [self._running(one) for one in taken]
        except BaseException:
            self._give_back(taken)
            raise
        number = next(_NUMBERS)
        self._leased[number] = taken
        states = [self._golden(one.software).states for one in taken]
        urls = {name: url for site in sites for name, url in _urls(site).items()}
        name = "-".join(f"{one.software.name}{one.number}" for one in taken)
        return Lease(urls, _state(record, states), {}, name, number)

    def release(self, lease: Lease) -> None:
        """Restore each copy, or end it where that does not work: the next lease starts it."""
        taken = self._leased.pop(lease.token, [])
        for one in taken:
            if one.site is None:
                continue
            golden = self._golden(one.software)
            try:
                if not one.site.is_alive():
                    raise SitesLost(f"{one.software.title} is gone")
                restore(golden.folder, one.site.folder, one.software.database)
            except (OSError, sqlite3.Error, SitesLost):
                one.site.close()
                one.site = None
        self._give_back(taken)

    def is_alive(self, lease: Lease) -> bool:
        """Whether all of its sites answer."""
        taken = self._leased.get(lease.token, [])
        return bool(taken) and all(one.site is not None and one.site.is_alive() for one in taken)

    def processes(self) -> Sequence[RunningSite]:
        """All that run."""
        with self._changed:
            known = [*self._free.values(), *self._leased.values()]
        return [one.site for copies in known for one in copies if one.site is not None]

    def close(self) -> None:
        """End all of them, leased ones too. Safe to call twice."""
        with self._changed:
            self._closed = True
            known = [*self._free.values(), *self._leased.values()]
            self._free.clear()
            self._leased.clear()
            self._changed.notify_all()
        for one in (one for copies in known for one in copies):
            if one.site is not None:
                one.site.close()

    def _golden(self, software: Software) -> Golden:
        """The same one for as long as this is open: who is logged in there is not logged in at a newer one."""
        if software.name not in self._goldens:
            self._goldens[software.name] = golden_of(software, self._seed)
        return self._goldens[software.name]

    def _take(self, software: Software) -> _Copy:
        with self._changed:
            free = self._free[software.name]
            ready = self._changed.wait_for(
                lambda: self._closed or free or self._made[software.name] < self._most, WAIT_S
            )
            if self._closed or not ready:
                said = "the sites were closed" if self._closed else f"no copy was given back within {WAIT_S:g} s"
                raise SitesLost(f"{software.title}: {said}")
            if free:
                return free.pop()
            self._made[software.name] += 1
            return _Copy(software, self._made[software.name])

    def _running(self, one: _Copy) -> RunningSite:
        if one.site is not None and not one.site.is_alive():
            one.site.close()
            one.site = None
        if one.site is None:
            folder = new_folder()
            copied(self._golden(one.software).folder, folder)
            one.site = RunningSite(one.software, folder)
        return one.site

    def _give_back(self, taken: Sequence[_Copy]) -> None:
        with self._changed:
            for one in taken:
                if self._closed and one.site is not None:
                    one.site.close()
                elif not self._closed:
                    self._free[one.software.name].append(one)
            self._changed.notify_all()


def _urls(site: RunningSite) -> dict[str, str]:
    return {role.placeholder: site.base + role.path for role in site.software.roles}


def _state(record: Record, states: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any] | None:
    """Of who is logged in at the sites that the record's file is named after: ``./.auth/A.B_state.json``."""
    if not record.get("storage_state"):
        return None
    named = str(record["storage_state"]).rpartition("/")[2].removesuffix("_state.json").split(".")
    known = {site: state for one in states for site, state in one.items()}
    return {"cookies": [cookie for site in named for cookie in known[site]["cookies"]], "origins": []}
