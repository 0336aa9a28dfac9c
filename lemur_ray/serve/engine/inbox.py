"""Items of the engine's inbox, through which other threads give the engine's thread work. Knows nothing of models."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from lemur_ray.serve.engine.errors import EngineClosed
from lemur_ray.serve.engine.events import Event, Listener, Outbox
from lemur_ray.serve.engine.live_sequence import LiveSequence


class Submit(NamedTuple):
    sequence: LiveSequence
    listener: Listener
    every_token: bool


class Cancel(NamedTuple):
    number: int


class Update(NamedTuple):
    weights: Any
    """As returned by ``Compute.prepare``"""
    version: str
    done: Future[None]


Item = Submit | Cancel | Update | None
"""None only wakes the thread."""


def give_up(pending: dict[int, Submit], updates: Iterable[Update]) -> None:
    """Fail pending requests and updates, for an engine that has ended."""
    outbox = Outbox()
    for number, item in pending.items():
        outbox.put(item.listener, Event(number, (), "error"))
    outbox.send()
    for update in updates:
        update.done.set_exception(EngineClosed("the engine ended before the weights were replaced"))
