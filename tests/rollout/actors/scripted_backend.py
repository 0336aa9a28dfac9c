"""Actors without processes: a test scripts when each starts, what it reports and when it is lost. Nothing waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.rollout.actors.actor import ActorEvent, ActorLost, ActorStarted, EpisodeEnded
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec

SOLVED = EpisodeEnded(0, Attempt(Outcome.SOLVED, 1.0))
LOST = ActorLost("killed")
PENDING = None
"""What an actor is told to be that no node has room for; and an episode that goes on."""


class ScriptedActor:
    def __init__(self, backend: ScriptedBackend, tell: Callable[[ActorEvent], None]) -> None:
        self.tell = tell
        self.played: list[str] = []
        self.tickets: list[int] = []
        self.asked = 0
        self._backend = backend

    def run(self, pid: int) -> None:
        self.tell(ActorStarted(pid, self._backend.elsewhere))

    def lose(self) -> None:
        self.tell(LOST)

    def settle(self) -> None:
        pass

    def play(self, spec: EpisodeSpec, ticket: int) -> None:
        self.played.append(spec.task.id)
        self.tickets.append(ticket)
        event = self._backend.play(spec)
        if event is not None:
            self.tell(replace(event, ticket=ticket) if isinstance(event, EpisodeEnded) else event)

    def request_pressure(self) -> None:
        self.asked += 1

    def end(self) -> None:
        self._backend.alive.remove(self)


class ScriptedBackend:
    """``starts``: what becomes of each new actor, the last of all further ones: a process, PENDING, LOST, or what
    asking for it raises. ``play``: what becomes of an order."""

    def __init__(
        self, starts: list[Any], play: Callable[[EpisodeSpec], ActorEvent | None] = lambda spec: SOLVED
    ) -> None:
        self.starts, self.play = starts, play
        self.elsewhere = False
        self.alive: list[ScriptedActor] = []
        self.closed = 0

    def start_actor(self, tell: Callable[[ActorEvent], None]) -> ScriptedActor:
        start = self.starts.pop(0) if len(self.starts) > 1 else self.starts[0]
        if isinstance(start, BaseException):
            raise start
        actor = ScriptedActor(self, tell)
        self.alive.append(actor)
        if isinstance(start, int):
            actor.run(start)
        elif start is not PENDING:
            tell(start)
        return actor

    def request_pressure(self, tell: Callable[[int, Pressure], None]) -> None:
        tell(0, Pressure(7, 2, 1))

    def shortage(self, num_actors: int) -> str:
        return f"{num_actors} environment actors wait for a host"

    def close(self) -> None:
        self.closed += 1
