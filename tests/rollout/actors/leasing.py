"""What leases in processes of a cluster: site sets of hosts that have no folder in common, a policy that is alone."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.webarena.fixed_sites import FixedSites, SitesConfig
from envs.webarena.site_set import Chain, SitesLost
from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import ChatReply, ChatRequest
from lemur_ray.agents.task_leases import Leases, WithLeases, shared_leases
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails
from tests.envs.webarena.small_site import record


class Host:
    """A process with a home of its own that plays on the sites."""

    def __init__(self, leases: Leases, config: dict[str, Any]) -> None:
        WithLeases(ExpertPolicy, leases)()
        self.sites = FixedSites(SitesConfig.from_json(config), wait_s=0.0)
        self.leases: list[Any] = []

    def lease(self, *chain: int) -> str:
        try:
            self.leases.append(self.sites.lease(record(), Chain(*chain) if chain else None))
        except SitesLost as error:
            return str(error)
        return str(self.leases[-1].name)

    def give_back(self) -> None:
        """Which nobody waits for; a question after it is answered after it, so that others find the place free."""
        lease = self.leases.pop()
        self.sites.release(lease)
        assert not lease.token.is_held()

    def is_held(self) -> bool:
        return bool(self.leases[-1].token.is_held())


@dataclass(frozen=True)
class NoOptions:
    """None."""


LEASING = Benchmark(
    NoOptions, lambda options, asked: [], {"full": 16, "brief": 16}, details=BenchmarkDetails(uses_leases=True)
)


class Alone(ExpertPolicy):
    """Needs what there is one of; its process ends at its first reply."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.held: Any = None

    def reply(self, request: ChatRequest) -> ChatReply:
        deadline = time.monotonic() + 60
        while self.held is None:
            self.held = shared_leases().take(["only one"])
            assert time.monotonic() < deadline, "nobody gave it back"
            time.sleep(0.1 if self.held is None else 0)
        if not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reply(request)


class Makes:
    """Its maker."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __call__(self) -> Alone:
        return Alone(self.mark)
