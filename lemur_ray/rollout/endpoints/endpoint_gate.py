"""The places of requests at one endpoint, shared by all processes of a run: one limit, one count of silence.

A small actor holds them (``agents.throttle``), every process asks it for a place and gives the place back. What a dead
process held is given back by ``forget``. A gate that dies comes back empty; until then nobody is held up.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from typing import Any

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lemur_ray.agents.throttle import LOOK_S, EndpointSilent, Pressure, Silence, Throttle, Verdict

MANY = 100_000
"""Requests that may wait at once."""
ANSWER_S = 30.0
"""How long a question that needs no place may take."""


class _Gate:
    """The inside of the actor. Async: whoever waits costs no thread."""

    def __init__(self) -> None:
        self._throttle = Throttle()
        self._held: dict[str, dict[int, float]] = {}
        self._gone: set[str] = set()

    async def enter(self, process_name: str, ticket: int, patience_s: float, again: bool) -> tuple[float, str]:
        """Seconds waited, and why there is no place; empty where there is."""
        began = time.monotonic()
        place = asyncio.Event()
        self._throttle.queue(place, again=again)
        while not place.is_set():
            try:
                await asyncio.wait_for(place.wait(), LOOK_S)
            except TimeoutError:
                try:
                    self._throttle.look(place, began, patience_s)
                except EndpointSilent as error:
                    return 0.0, str(error)
            if process_name in self._gone and not place.is_set():
                self._throttle.forget(place)
                return 0.0, "its process is gone"
        entered = time.monotonic()
        self._held.setdefault(process_name, {})[ticket] = entered
        if process_name in self._gone:
            self._give_back(process_name, ticket, "failed")
        return entered - began, ""

    async def leave(self, process_name: str, ticket: int, verdict: Verdict) -> None:
        self._give_back(process_name, ticket, verdict)

    async def forget(self, process_name: str) -> None:
        """The process is gone, with everything that it held or waited for."""
        self._gone.add(process_name)
        for ticket in list(self._held.get(process_name, ())):
            self._give_back(process_name, ticket, "failed")

    async def silence(self) -> Silence:
        return self._throttle.silence()

    async def pressure(self) -> Pressure:
        return self._throttle.pressure()

    def _give_back(self, process_name: str, ticket: int, verdict: Verdict) -> None:
        entered = self._held.get(process_name, {}).pop(ticket, None)
        if entered is not None:  # else it is of before the gate died
            self._throttle.leave(verdict, entered)


class SharedPlaces:
    """``endpoint.Places`` in any process of the cluster. Safe to share between threads, one request each."""

    def __init__(self, gate: Any) -> None:
        self._gate = gate
        self._numbers = itertools.count()
        self._tickets: dict[int, int] = {}

    def enter(self, patience_s: float, *, again: bool) -> float:
        """Raises NobodyAnswered."""
        ticket = next(self._numbers)
        self._tickets[threading.get_ident()] = ticket
        try:
            waited_s, why = ray.get(self._gate.enter.remote(process_name(), ticket, patience_s, again))
        except ray.exceptions.RayError:  # it is gone and comes back: nobody is held up meanwhile
            return 0.0
        if why:
            raise EndpointSilent(why)
        return float(waited_s)

    def leave(self, verdict: Verdict, entered_at: float) -> None:
        """``entered_at`` is of a clock that other machines do not have: the gate knows better."""
        ticket = self._tickets.pop(threading.get_ident(), None)
        if ticket is not None:
            self._gate.leave.remote(process_name(), ticket, verdict)

    def silence(self) -> Silence:
        try:
            found: Silence = ray.get(self._gate.silence.remote(), timeout=ANSWER_S)
            return found
        except ray.exceptions.RayError:
            return Silence(0.0, True)

    def pressure(self) -> Pressure:
        """Nothing of this process alone: whoever owns the gate asks it."""
        return Pressure()

    def __reduce__(self) -> tuple[type[SharedPlaces], tuple[Any]]:
        return SharedPlaces, (self._gate,)


def process_name() -> str:
    """This process, by the actor that it is."""
    return str(ray.get_runtime_context().get_actor_id() or f"process {os.getpid()}")


def start_gate() -> Any:
    """A gate beside this process: it lives as long as what is begun here."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": MANY, "scheduling_strategy": here}
    return ray.remote(_Gate).options(**options).remote()
