"""Request slots of one endpoint, shared by all processes of a run: one limit, one time of the last answer.

A small Ray actor, the gate, holds the slots (``agents.throttle``). Every process takes a slot for a request and returns
it; ``forget`` frees the slots of a dead process. A gate that dies restarts without any slot taken; until then requests
are not limited."""

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
"""Maximum number of waiting requests."""
ANSWER_S = 30.0
"""Deadline in seconds of a call of the gate that does not wait for a slot."""


class _Gate:
    """The gate's Ray actor class. Async: a waiting request costs no thread."""

    def __init__(self) -> None:
        self._throttle = Throttle()
        self._held: dict[str, dict[int, float]] = {}
        self._gone: set[str] = set()

    async def enter(self, process_name: str, ticket: int, patience_s: float, again: bool) -> tuple[float, str]:
        """Wait for a slot. Returns (seconds waited, "") or (0.0, the reason why there is none)."""
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
        """Free the slots of the process ``process_name``, which is gone, and drop its waiting requests."""
        self._gone.add(process_name)
        for ticket in list(self._held.get(process_name, ())):
            self._give_back(process_name, ticket, "failed")

    async def silence(self) -> Silence:
        return self._throttle.silence()

    async def pressure(self) -> Pressure:
        return self._throttle.pressure()

    def _give_back(self, process_name: str, ticket: int, verdict: Verdict) -> None:
        entered = self._held.get(process_name, {}).pop(ticket, None)
        if entered is not None:  # else the slot was taken before the gate restarted
            self._throttle.leave(verdict, entered)


class SharedPlaces:
    """The request slots of one endpoint, held by a Ray actor (``gate``) for all processes of the cluster; interface:
    ``endpoint.RequestSlots``. Thread-safe, with one request per thread."""

    def __init__(self, gate: Any) -> None:
        self._gate = gate
        self._numbers = itertools.count()
        self._tickets: dict[int, int] = {}

    def enter(self, patience_s: float, *, again: bool) -> float:
        """Wait until this thread may send a request; returns the seconds waited, 0 while the gate restarts. ``again``:
        a retry, which goes before new requests. Raises EndpointSilent if the endpoint answers no request for
        ``patience_s`` seconds."""
        ticket = next(self._numbers)
        self._tickets[threading.get_ident()] = ticket
        try:
            waited_s, why = ray.get(self._gate.enter.remote(process_name(), ticket, patience_s, again))
        except ray.exceptions.RayError:  # the gate is restarting; meanwhile requests are not limited
            return 0.0
        if why:
            raise EndpointSilent(why)
        return float(waited_s)

    def leave(self, verdict: Verdict, entered_at: float) -> None:
        """Return this thread's slot. ``verdict``: how the request ended; ``entered_at``: ignored."""
        ticket = self._tickets.pop(threading.get_ident(), None)
        if ticket is not None:
            self._gate.leave.remote(process_name(), ticket, verdict)

    def silence(self) -> Silence:
        try:
            silence: Silence = ray.get(self._gate.silence.remote(), timeout=ANSWER_S)
            return silence
        except ray.exceptions.RayError:
            return Silence(0.0, True)

    def pressure(self) -> Pressure:
        """Always empty: the pool asks the gate itself, and would otherwise count it once per process."""
        return Pressure()

    def __reduce__(self) -> tuple[type["SharedPlaces"], tuple[Any]]:
        return SharedPlaces, (self._gate,)


def process_name() -> str:
    """Name of this process within the cluster: its Ray actor id, or ``process PID`` outside of actors."""
    return str(ray.get_runtime_context().get_actor_id() or f"process {os.getpid()}")


def start_gate() -> Any:
    """Start a Ray actor here that holds an endpoint's request slots; returns its handle. It ends with this process."""
    strategy = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": MANY, "scheduling_strategy": strategy}
    return ray.remote(_Gate).options(**options).remote()
