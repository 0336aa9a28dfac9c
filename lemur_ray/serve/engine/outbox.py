"""Buffer of the engine's events, so that a listener gets all of its events of a step in one call."""

from __future__ import annotations

import logging

from lemur_ray.serve.engine.events import Event, Listener

log = logging.getLogger(__name__)


class Outbox:
    """Events by listener, until ``send`` delivers them."""

    def __init__(self) -> None:
        self._events: dict[Listener, list[Event]] = {}

    def put(self, listener: Listener, event: Event) -> None:
        self._events.setdefault(listener, []).append(event)

    def send(self) -> set[int]:
        """Call the listeners; returns the numbers of requests whose listeners raised."""
        events, self._events = self._events, {}
        failed: set[int] = set()
        for listener, batch in events.items():
            try:
                listener(batch)
            except Exception:  # only its own requests fail
                log.exception("a listener failed: its requests are given up")
                failed |= {event.number for event in batch}
        return failed
