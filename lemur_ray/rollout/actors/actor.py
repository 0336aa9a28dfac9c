"""The interface between a pool and its actors: processes that play episodes, and the events that they report.

No method here blocks: results are reported as ``ActorEvent``, from any thread."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lemur_ray.agents.throttle import Pressure
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec


@dataclass(frozen=True)
class ActorStarted:
    """Event: an actor's process (``pid``) accepts episodes. ``elsewhere``: it is on another node than the pool."""

    pid: int
    elsewhere: bool = False


@dataclass(frozen=True)
class ActorLost:
    """Event: an actor's process is gone, or never started. ``with_host``: its host failed, not the process alone."""

    reason: str
    with_host: bool = False


@dataclass(frozen=True)
class EpisodeEnded:
    """Event: an attempt at an episode has ended. ``ticket``: the number given to ``play``; ``stuck``: number of calls
    in the actor's process so far that missed their deadline and never returned."""

    ticket: int
    attempt: Attempt
    stuck: int = 0


ActorEvent = ActorStarted | ActorLost | EpisodeEnded | Pressure


class Actor(Protocol):
    """Handle of a process that plays episodes, or will once it has started."""

    def settle(self) -> None:
        """Prepare a started actor for its first episode: publish the tasks' files if it is on another host. Raises
        BundleError if that fails."""

    def play(self, spec: EpisodeSpec, ticket: int) -> None:
        """Start an episode without waiting. ``EpisodeEnded`` with ``ticket``, a number that the caller chose, or
        ``ActorLost`` follows. Raises BundleError if the task's files cannot be sent to its host."""

    def request_pressure(self) -> None:
        """Ask the actor to report, as an event, the ``Pressure`` (limit, queue, refusals) of its requests."""

    def end(self) -> None:
        """Kill the process, even if it is busy or hangs. Does not wait for its end."""


class ActorBackend(Protocol):
    """Interface by which a pool starts actors, reads the load of endpoints, and learns why actors wait for a host."""

    def start_actor(self, report: Callable[[ActorEvent], None]) -> Actor:
        """Request another actor. ``report`` is called with its events: first ``ActorStarted``, last ``ActorLost``,
        perhaps more than once."""

    def request_pressure(self, report: Callable[[int, Pressure], None]) -> None:
        """Ask the gates (processes that hold an endpoint's request slots) for their pressure, without waiting.
        ``report`` is called with each gate's index and ``Pressure``."""

    def shortage(self, num_actors: int) -> str:
        """Message that ``num_actors`` actors wait for a host, with the reason and remedies."""

    def close(self) -> None:
        """Free the resources that actors share. Safe to call twice."""
