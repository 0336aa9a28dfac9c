"""Many requests to an engine at once, in a thread that waits for them all: for scripts and tests.

Knows nothing of text or of servers.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence

from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.errors import EngineClosed, RequestFailed
from lemur_ray.serve.engine.events import Event
from lemur_ray.serve.engine.generation import Generation


def generate(engine: Engine, requests: Sequence[Generation]) -> list[list[int]]:
    """All requests at once, waiting for them: the generated ids in the order of the requests."""
    done: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def listen(events: Sequence[Event]) -> None:
        for event in events:
            done.put(event)

    numbers = [engine.submit(r, listen, every_token=False) for r in requests]
    results: dict[int, list[int]] = {}
    while len(results) < len(numbers):
        event = done.get()
        if event.finish == "error":
            if engine.accepting:
                raise RequestFailed(f"request {event.number} failed: the log says why")
            raise EngineClosed(f"the engine died: {engine.failure!r}")
        results[event.number] = list(event.tokens)
    return [results[n] for n in numbers]
