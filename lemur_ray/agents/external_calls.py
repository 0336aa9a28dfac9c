"""What an environment asks of the outside during a step: a simulated user, a search. Timed, counted and blamed apart.

Whoever calls an environment puts a meter on the thread of that call; the environment says ``with asking("teacher")``
around each question. The time of a question is not the environment's, its tokens are not the policy's, and its failure
(``OutsideFault``) is nobody's in the episode. Without a meter nothing is counted.

Who judges or teaches a policy reads its words. Where an endpoint takes them for too long, or does not take them while
it answers a question of our own, that says something of the words and nothing of the endpoint. Knows no environment.
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
"""Called with names and numbers that are added to what was counted."""


class ExternalCallError(Exception):
    """Somebody outside an episode gave no usable answer: says nothing of the policy, and nothing of the environment."""


class ContentRefused(PolicyError):
    """The endpoint is well, and does not answer about these words."""


class CallMeter:
    """What one call of an environment asked. Any thread may look at it while the call goes on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, float]] = {}
        self._since: float | None = None
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """Spent outside so far, with a question that is still open."""
        with self._lock:
            return self._seconds + (0.0 if self._since is None else self._clock() - self._since)

    @property
    def counts(self) -> dict[str, Mapping[str, float]]:
        """By who was asked: ``calls``, ``seconds``, and what else was counted."""
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
        """Time that is spent outside, and on nobody who is counted."""
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
    """Count with ``meter`` what this thread asks."""
    before = getattr(_threads, "meter", None)
    _threads.meter = meter
    try:
        yield
    finally:
        _threads.meter = before


@contextmanager
def external_call(name: str) -> Iterator[Count]:
    """Around a question to somebody called ``name``. Yields what adds to its counts."""
    meter = getattr(_threads, "meter", None) or CallMeter()
    with meter.asking(name) as count:
        yield count


@contextmanager
def excluded_wait() -> Iterator[None]:
    """Around a wait for one's turn: what ends calls that take too long does not count it."""
    with (getattr(_threads, "meter", None) or CallMeter()).waiting():
        yield


_WELL = ChatRequest((Message("user", "Are you there? Answer with one word."),), Sampling(max_tokens=16))


def ask_quoting(policy: Policy, request: ChatRequest) -> ChatReply:
    """The reply to a question that shows what another model wrote.

    Raises ContextOverflow or WordsRefused, which those words brought about; PolicyUnreachable or EndpointRefused, which
    they did not: then a question of our own is not answered either.
    """
    try:
        return policy.reply(replace(request, quotes=True))
    except RequestRefused as error:
        policy.reply(_WELL)
        raise ContentRefused(str(error)) from error


_known: dict[tuple[str, str], EndpointOptions] = {}
"""How endpoints that environments ask are asked, in this process: keys are no options of tasks."""


def endpoint_at(url: str, model: str) -> Endpoint:
    """The endpoint with what this process knows of how it is asked; else with neither key nor shared places."""
    url = url.rstrip("/")
    return Endpoint(url, model, _known.get((url, model), EndpointOptions()))


class WithEndpoints:
    """A policy's maker that also tells the process, before it makes one, how environments ask their endpoints."""

    def __init__(self, make_policy: Callable[[], Policy], endpoints: tuple[Endpoint, ...]) -> None:
        self.make_policy, self.endpoints = make_policy, endpoints

    def __call__(self) -> Policy:
        register_endpoints(*self.endpoints)
        return self.make_policy()


def register_endpoints(*endpoints: Endpoint) -> None:
    """Ask these endpoints so from now on, in this process."""
    for endpoint in endpoints:
        _known[endpoint.url.rstrip("/"), endpoint.model] = endpoint.options


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, Meter="CallMeter", OutsideFault="ExternalCallError", metered="use_meter", asking="external_call",
        waiting="excluded_wait", WordsRefused="ContentRefused",
    )  # fmt: skip
