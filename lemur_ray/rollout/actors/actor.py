"""What an actor is to the pool: a process that is asked for and told nothing twice, and that tells what happens.

No call here waits for anything: what comes of it is told as ``ActorEvent``, from any thread. Knows nothing of Ray.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lemur_ray.agents.throttle import Pressure
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec


@dataclass(frozen=True)
class ActorStarted:
    """It has a process, and takes episodes from now on. ``elsewhere``: on another node than the pool."""

    pid: int
    elsewhere: bool = False


@dataclass(frozen=True)
class ActorLost:
    """The process is gone, or its node, or there was never any. ``with_host``: no process ended by itself."""

    why: str
    with_host: bool = False


@dataclass(frozen=True)
class EpisodeEnded:
    """An episode. ``stuck``: calls that are stuck in the process for good."""

    ticket: int
    attempt: Attempt
    stuck: int = 0


ActorEvent = ActorStarted | ActorLost | EpisodeEnded | Pressure


class Actor(Protocol):
    """One process that plays, or will."""

    def settle(self) -> None:
        """It runs; called before its first episode. Raises BundleError where episodes could not reach it."""

    def play(self, spec: EpisodeSpec, ticket: int) -> None:
        """``Ended`` is told with the ticket, or ``Gone``. Raises BundleError."""

    def ask(self) -> None:
        """Its ``Pressure`` is told."""

    def end(self) -> None:
        """End it, whatever it does."""


class ActorBackend(Protocol):
    """Where actors come from."""

    def begin(self, tell: Callable[[ActorEvent], None]) -> Actor:
        """Ask for another actor. ``tell``: ``Runs`` first, ``Gone`` last, and more than once."""

    def ask(self, tell: Callable[[int, Pressure], None]) -> None:
        """Ask the endpoints' gates for their pressure, which is told with the number of the gate."""

    def lacking(self, number: int) -> str:
        """That so many actors wait for a host, why, and what to do."""

    def close(self) -> None:
        """Give back what belongs to no single actor. Safe to call twice."""
