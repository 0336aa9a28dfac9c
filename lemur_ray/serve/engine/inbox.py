"""What other threads ask the engine's thread for, and how it is given up.

Knows nothing of models.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future
from typing import NamedTuple

from lemur_ray.serve.compute.forward import Weights
from lemur_ray.serve.engine.errors import EngineClosed
from lemur_ray.serve.engine.events import Event, Listener
from lemur_ray.serve.engine.scheduler import Sequence

log = logging.getLogger(__name__)


class Submit(NamedTuple):
    sequence: Sequence
    listener: Listener
    every_token: bool


class Cancel(NamedTuple):
    number: int


class Update(NamedTuple):
    weights: Weights
    version: str
    done: Future[None]


Item = Submit | Cancel | Update | None
"""None: nothing but a reason to wake up."""


def give_up(pending: dict[int, Submit], updates: Iterable[Update]) -> None:
    """Tell all who wait that nothing will come."""
    events: dict[Listener, list[Event]] = {}
    for number, item in pending.items():
        events.setdefault(item.listener, []).append(Event(number, (), "error"))
    for listener, last_ones in events.items():
        try:
            listener(last_ones)
        except Exception:  # one that cannot hear does not keep the others from hearing
            log.exception("a listener failed")
    for update in updates:
        update.done.set_exception(EngineClosed("the engine ended before the weights were replaced"))
