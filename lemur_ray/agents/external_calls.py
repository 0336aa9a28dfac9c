"""External calls of an environment during a step (a simulated user, a search): timed, counted and blamed separately.

The caller of an environment sets a meter on its thread (``use_meter``); the environment wraps each call in ``with
external_call("teacher")``. Its time is not the environment's, its tokens are not the policy's, and its failure
(``ExternalCallError``) is nobody's in the episode. Without a meter nothing is counted.

A judge or teacher receives the policy's text. If an endpoint refuses it but answers a harmless request, the text is at
fault (``ContentRefused``) and not the endpoint. Knows no environment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lemur_ray.agents.endpoint import Endpoint, EndpointOptions
from lemur_ray.agents.messages import ChatReply, ChatRequest, Message, Policy, PolicyError, RequestRefused, Sampling
from lemur_ray.host.renamed_names import renamed_names

Count = Callable[..., None]
"""Called with ``name=number`` to add to the counts of a call"""


class ExternalCallError(Exception):
    """An external service gave no usable answer: neither the policy's nor the environment's fault."""


class ContentRefused(PolicyError):
    """A healthy endpoint refuses this text."""


class CallMeter:
    """Counts and times of the external calls of one environment call. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, float]] = {}
        self._since: float | None = None
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """Seconds in external calls so far, including an open one."""
        with self._lock:
            return self._seconds + (0.0 if self._since is None else self._clock() - self._since)

    @property
    def counts(self) -> dict[str, Mapping[str, float]]:
        """Service -> ``calls``, ``seconds`` and further counts."""
        with self._lock:
            return {name: dict(counted) for name, counted in self._counts.items()}

    @contextmanager
    def asking(self, name: str) -> Iterator[Count]:
        began = self._clock()

        def count(**numbers: float) -> None:
            with self._lock:
                counted = self._counts.setdefault(name, {})
                for what, number in numbers.items():
                    counted[what] = counted.get(what, 0) + number

        try:
            with self.waiting():
                yield count
        finally:
            count(calls=1, seconds=round(self._clock() - began, 4))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Exclude a wait from the environment's time without counting a call."""
        with self._lock:
            outermost = self._since is None
            began = self._clock()
            self._since = began if outermost else self._since
        try:
            yield
        finally:
            if outermost:
                with self._lock:
                    self._seconds, self._since = self._seconds + self._clock() - began, None


_threads = threading.local()


@contextmanager
def use_meter(meter: CallMeter) -> Iterator[None]:
    """Count the external calls of this thread with ``meter``."""
    before = getattr(_threads, "meter", None)
    _threads.meter = meter
    try:
        yield
    finally:
        _threads.meter = before


@contextmanager
def external_call(name: str) -> Iterator[Count]:
    """Context of a call to the service ``name``. Yields a function that adds to its counts."""
    meter = getattr(_threads, "meter", None) or CallMeter()
    with meter.asking(name) as count:
        yield count


@contextmanager
def excluded_wait() -> Iterator[None]:
    """Context of a wait that deadlines of the call must not count."""
    with (getattr(_threads, "meter", None) or CallMeter()).waiting():
        yield


_WELL = ChatRequest((Message("user", "Are you there? Answer with one word."),), Sampling(max_tokens=16))


def ask_quoting(policy: Policy, request: ChatRequest) -> ChatReply:
    """The reply to a request that quotes another model's text.

    Raises ContextOverflow or ContentRefused because of that text; PolicyUnreachable or EndpointRefused if a harmless
    request fails too.
    """
    try:
        return policy.reply(replace(request, quotes=True))
    except RequestRefused as error:
        policy.reply(_WELL)
        raise ContentRefused(str(error)) from error


_known: dict[tuple[str, str], EndpointOptions] = {}
"""Request options of the environments' endpoints in this process; keys must not be options of tasks"""


def endpoint_at(url: str, model: str) -> Endpoint:
    """The endpoint with its registered options; else with neither key nor shared slots."""
    url = url.rstrip("/")
    return Endpoint(url, model, _known.get((url, model), EndpointOptions()))


class WithEndpoints:
    """A policy factory that first registers the environments' endpoints in its process."""

    def __init__(self, make_policy: Callable[[], Policy], endpoints: tuple[Endpoint, ...]) -> None:
        self.make_policy, self.endpoints = make_policy, endpoints

    def __call__(self) -> Policy:
        register_endpoints(*self.endpoints)
        return self.make_policy()


def register_endpoints(*endpoints: Endpoint) -> None:
    """Register the request options of endpoints in this process."""
    for endpoint in endpoints:
        _known[endpoint.url.rstrip("/"), endpoint.model] = endpoint.options


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, Meter="CallMeter", OutsideFault="ExternalCallError", metered="use_meter", asking="external_call",
        waiting="excluded_wait", WordsRefused="ContentRefused",
    )  # fmt: skip
