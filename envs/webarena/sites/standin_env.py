"""WebArenaStandin-v0: WebArena's environment on replacement sites that this process starts, with an expert's actions.

All environments of a process share one site set, and each episode leases copies from it."""

import atexit
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from envs.text_env import Opening
from envs.webarena.browser.public_hosts import to_public
from envs.webarena.env import WebEnv
from envs.webarena.site_set import SiteSet
from envs.webarena.sites.expert import Expert
from envs.webarena.sites.standin_sites import StandinSites
from envs.webarena.sites.suite.records import plan_of


class StandinEnv(WebEnv):
    """WebArena's environment on replacement sites; ``reset`` takes their ``seed`` and ``copies``, not ``sites``."""

    option_names: ClassVar[frozenset[str]] = (WebEnv.option_names - {"sites"}) | {"seed", "copies"}
    waits_until_loaded = True

    def open_sites(self, options: Mapping[str, Any]) -> SiteSet:
        return standin_sites(options["copies"], options["seed"])

    def begin(self, options: Mapping[str, Any]) -> Opening:
        self._expert: Expert | None = None
        opening = super().begin(options)
        plan = [dict(step) for step in plan_of(self.record["task_id"], options["seed"])]
        for step in plan:
            for name, url in self._urls.items():
                if "url" in step:
                    step["url"] = to_public(step["url"].replace(f"__{name}__", url), self._urls)
        self._expert = Expert(plan)
        return opening

    def hints(self) -> dict[str, Any]:
        hints = super().hints()
        if self._play is None or self._expert is None:
            return hints
        action = self._expert.next(self.shown_elements)
        return {**hints, "expert": self._fenced(action)}


@cache
def standin_sites(copies: int, seed: int) -> StandinSites:
    """This process's site set for these arguments, created at first use and closed when the process exits."""
    sites = StandinSites(copies, seed)
    atexit.register(sites.close)
    return sites
