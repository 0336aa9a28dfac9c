"""What the engine's thread tells its listeners: once per step, all their events together.

Knows nothing of what the events say.
"""

from __future__ import annotations

import logging

from lemur_ray.serve.engine.events import Event, Listener

log = logging.getLogger(__name__)


class Outbox:
    """Events by listener, until they are sent."""

    def __init__(self) -> None:
        self._events: dict[Listener, list[Event]] = {}

    def put(self, listener: Listener, event: Event) -> None:
        self._events.setdefault(listener, []).append(event)

    def send(self) -> set[int]:
        """Call the listeners; the numbers of requests whose listeners could not hear."""
        events, self._events = self._events, {}
        deaf: set[int] = set()
        for listener, heard in events.items():
            try:
                listener(heard)
            except Exception:  # a listener that cannot hear concerns nobody but its own requests
                log.exception("a listener failed: its requests are given up")
                deaf |= {event.number for event in heard}
        return deaf
