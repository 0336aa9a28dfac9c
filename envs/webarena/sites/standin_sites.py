"""``StandinSites``: a site set of replacement applications, whose copies are restored after each episode.

A task leases one copy of each application that it names. A copy is started when it is first needed, and again if it
died; the number of copies limits how many episodes run at once."""

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
from envs.webarena.sites.restoring import copy, restore
from envs.webarena.sites.running_site import RunningSite, new_folder
from envs.webarena.sites.software import SITES, SOFTWARE, Software
from envs.webarena.tasks import logged_in

WAIT_S = 600.0
"""Seconds to wait for a copy that other episodes have leased."""
_NUMBERS = count()


@dataclass
class _Copy:
    """One copy of an application, whether its site runs or not."""

    software: Software
    number: int
    """Number of the copy among those of its application in this process, from 1."""
    site: RunningSite | None = None
    """None if it has to be started."""


class StandinSites:
    """Leases copies of the replacement applications to the episodes of this process. Thread-safe."""

    def __init__(self, copies: int = 2, seed: int = SEED) -> None:
        """``copies``: maximum number of copies per application. ``seed``: of their content. Starts nothing yet."""
        self._most, self._seed = copies, seed
        self._changed = threading.Condition()
        self._free: dict[str, list[_Copy]] = defaultdict(list)
        self._made: dict[str, int] = defaultdict(int)
        self._leased: dict[int, list[_Copy]] = {}
        self._goldens: dict[str, Golden] = {}
        self._closed = False

    def lease(self, record: Record, chain: Chain | None = None) -> Lease:
        """Lease a restored copy of each application that the record names. ``chain`` is ignored: every task starts from
        the golden copy. Copies are taken in order of their applications' names, so that two leases cannot deadlock.
        Raises SitesLost if a copy cannot be started or none is free in time, ValueError for an unknown site."""
        if unknown := [site for site in record["sites"] if site not in SITES]:
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
        urls = {role.placeholder: site.base + role.path for site in sites for role in site.software.roles}
        name = "-".join(f"{one.software.name}{one.number}" for one in taken)
        return Lease(urls, _state(record, states), {}, name, number)

    def release(self, lease: Lease) -> None:
        """Restore each copy of the lease and free it. One that cannot be restored is stopped until its next lease."""
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
        """Whether all sites of the lease answer; False if it is no longer held."""
        taken = self._leased.get(lease.token, [])
        return bool(taken) and all(one.site is not None and one.site.is_alive() for one in taken)

    def processes(self) -> Sequence[RunningSite]:
        """Return all running sites, leased ones included."""
        with self._changed:
            copies = [one for known in (self._free, self._leased) for ones in known.values() for one in ones]
        return [one.site for one in copies if one.site is not None]

    def close(self) -> None:
        """Stop all sites, leased ones included. Safe to call twice."""
        with self._changed:
            self._closed = True
            running = self.processes()
            self._free.clear()
            self._leased.clear()
            self._changed.notify_all()
        for site in running:
            site.close()

    def _golden(self, software: Software) -> Golden:
        """Return the golden copy of an application, the same one until this is closed: logins differ between builds."""
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
                reason = "the sites were closed" if self._closed else f"no copy was given back within {WAIT_S:g} s"
                raise SitesLost(f"{software.title}: {reason}")
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
            copy(self._golden(one.software).folder, folder)
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


def _state(record: Record, states: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any] | None:
    """Merge the logins of sites A and B for a record's ``./.auth/A.B_state.json``; None for a record without logins."""
    known = {site: state for one in states for site, state in one.items()}
    cookies = [cookie for site in logged_in(record) for cookie in known[site]["cookies"]]
    return {"cookies": cookies, "origins": []} if record.get("storage_state") else None
