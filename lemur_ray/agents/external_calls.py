"""External calls of an environment during a step (a simulated user, a search): timed, counted and blamed separately.

The caller of an environment sets a meter on its thread (``use_meter``); the environment wraps each call in ``with
external_call("teacher")``. The call's time is not counted as the environment's nor its tokens as the policy's, and if
it fails (``ExternalCallError``) neither is blamed. Without a meter nothing is counted.

A judge or teacher receives the policy's text. If its endpoint refuses that text but answers a harmless request, the
text is at fault (``ContentRefused``) and not the endpoint."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lemur_ray.agents.endpoint import Endpoint, EndpointOptions
from lemur_ray.agents.messages import ChatReply, ChatRequest, Message, Policy, PolicyError, RequestRefused, Sampling
from lemur_ray.host.renamed_names import renamed_names

Count = Callable[..., None]
"""Function whose keywords (``name=number``) are added to the counts of an external call"""


class ExternalCallError(Exception):
    """Raised if an external service gives no usable answer: neither the policy's nor the environment's fault."""


class ContentRefused(PolicyError):
    """Raised if an endpoint refuses a text but answers a harmless request; the message is the refusal's."""


class CallMeter:
    """Counts and times the external calls during one call of an environment (``reset`` or ``step``). Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, float]] = {}
        self._since: float | None = None
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent in external calls and excluded waits so far, including one in progress."""
        with self._lock:
            return self._seconds + (0.0 if self._since is None else self._clock() - self._since)

    @property
    def counts(self) -> dict[str, Mapping[str, float]]:
        """By service: number of ``calls``, their ``seconds``, and what callers added (tokens); empty without calls."""
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
        """Context manager for a wait that is excluded from the environment's time but is no external call."""
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
    """Context manager during which ``external_call`` and ``excluded_wait`` in this thread are counted by ``meter``."""
    before = getattr(_threads, "meter", None)
    _threads.meter = meter
    try:
        yield
    finally:
        _threads.meter = before


def _meter() -> CallMeter:
    return getattr(_threads, "meter", None) or CallMeter()


def external_call(name: str) -> AbstractContextManager[Count]:
    """Context manager for a call to the external service ``name``, timed and counted by the thread's meter, if any.
    Yields a function whose keywords are numbers to add to the service's counts (``count(tokens=12)``)."""
    return _meter().asking(name)


def excluded_wait() -> AbstractContextManager[None]:
    """Context manager for a wait (for a request slot) that the deadline of the environment's call does not count."""
    return _meter().waiting()


_PROBE = ChatRequest((Message("user", "Are you there? Answer with one word."),), Sampling(max_tokens=16))


def ask_quoting(policy: Policy, request: ChatRequest) -> ChatReply:
    """The reply of ``policy`` (a judge, a teacher) to a request that quotes another model's text. If it refuses the
    request, a harmless one is sent as a test. Raises ContextOverflow or ContentRefused if the text is at fault,
    PolicyUnreachable or EndpointRefused if not."""
    try:
        return policy.reply(replace(request, quotes=True))
    except RequestRefused as error:
        policy.reply(_PROBE)
        raise ContentRefused(str(error)) from error


_known: dict[tuple[str, str], EndpointOptions] = {}
"""Registered request options by URL and model. Not among task options, which are stored, because of the keys"""


def endpoint_at(url: str, model: str) -> Endpoint:
    """The endpoint ``model`` at ``url`` with the options that this process has registered for it
    (``register_endpoints``), or else default options: no key, no shared slots."""
    url = url.rstrip("/")
    return Endpoint(url, model, _known.get((url, model), EndpointOptions()))


class RegisteringFactory:
    """Policy factory for other processes: registers the environments' ``endpoints``, then calls ``make_policy``."""

    def __init__(self, make_policy: Callable[[], Policy], endpoints: tuple[Endpoint, ...]) -> None:
        self.make_policy, self.endpoints = make_policy, endpoints

    def __call__(self) -> Policy:
        register_endpoints(*self.endpoints)
        return self.make_policy()


def register_endpoints(*endpoints: Endpoint) -> None:
    """Register the request options (key, slots) of endpoints in this process, so that ``endpoint_at`` returns them."""
    for endpoint in endpoints:
        _known[endpoint.url.rstrip("/"), endpoint.model] = endpoint.options


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, Meter="CallMeter", OutsideFault="ExternalCallError", metered="use_meter", asking="external_call",
        waiting="excluded_wait", WordsRefused="ContentRefused",
    )  # fmt: skip
