"""The interface between the pool and its actors: a process that plays episodes, and the events it reports.

No call here blocks: results are reported as ``ActorEvent``, from any thread. Knows nothing of Ray.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lemur_ray.agents.throttle import Pressure
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec


@dataclass(frozen=True)
class ActorStarted:
    """The actor has a process and accepts episodes. ``elsewhere``: it runs on another node than the pool."""

    pid: int
    elsewhere: bool = False


@dataclass(frozen=True)
class ActorLost:
    """The process or its node is gone, or never started. ``with_host``: the process did not end by itself."""

    reason: str
    with_host: bool = False


@dataclass(frozen=True)
class EpisodeEnded:
    """An episode has ended. ``stuck``: number of calls in the process that will never return."""

    ticket: int
    attempt: Attempt
    stuck: int = 0


ActorEvent = ActorStarted | ActorLost | EpisodeEnded | Pressure


class Actor(Protocol):
    """One process that plays episodes, or will once it has started."""

    def settle(self) -> None:
        """Prepare a started actor for its first episode. Raises BundleError if its host cannot get the tasks' files."""

    def play(self, spec: EpisodeSpec, ticket: int) -> None:
        """Start an episode; ``EpisodeEnded`` with ``ticket`` or ``ActorLost`` follows. Raises BundleError."""

    def request_pressure(self) -> None:
        """Ask for the actor's ``Pressure``, which is reported as an event."""

    def end(self) -> None:
        """Kill the process, whatever it does."""


class ActorBackend(Protocol):
    """Starts actors."""

    def start_actor(self, report: Callable[[ActorEvent], None]) -> Actor:
        """Request another actor. ``report`` gets ``ActorStarted`` first and ``ActorLost`` last, perhaps repeatedly."""

    def request_pressure(self, report: Callable[[int, Pressure], None]) -> None:
        """Ask the endpoints' gates for their pressure; ``report`` gets it with the number of the gate."""

    def shortage(self, num_actors: int) -> str:
        """Message: so many actors wait for a host, why, and what to do."""

    def close(self) -> None:
        """Free what belongs to no single actor. Safe to call twice."""
