"""A tiny random model with bytes as tokens, and a patient listener."""

import contextlib
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.events import Event
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.bytes_only()
TINY = ModelConfig(
    vocab_size=TOKENIZER.vocab_size,
    num_layers=2,
    dim=64,
    ffn_dim=96,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    max_seq_len=256,
)
OPTIONS = EngineOptions(max_slots=40, max_queue=64)


def poll(condition: Callable[[], object], what: str, limit_s: float = 60.0) -> None:
    """Wait until something is so; fails with its name."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.005)


@contextlib.contextmanager
def slowed(engine: Engine, step_s: float = 0.1) -> Iterator[None]:
    """Every step takes so long: however fast the machine is, a reply does not end before a test has done its part."""
    forward = engine._batch.programs.step

    def slow(*args: Any) -> Any:
        time.sleep(step_s)
        return forward(*args)

    engine._batch.programs.step = slow  # type: ignore[method-assign]
    try:
        yield
    finally:
        engine._batch.programs.step = forward  # type: ignore[method-assign]


class Waiter:
    """A listener that collects one request's events."""

    def __init__(self, engine: Engine, request: Generation):
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.tokens: list[int] = []
        self.number = engine.submit(request, self._listen)

    def _listen(self, events: Sequence[Event]) -> None:
        for event in events:
            self._events.put(event)

    def next(self, limit_s: float = 60.0) -> Event:
        event = self._events.get(timeout=limit_s)
        self.tokens += event.tokens
        return event

    def end(self) -> Event:
        while (event := self.next()).finish is None:
            pass
        return event

    def by_version(self) -> dict[str, list[int]]:
        """Version -> tokens of the events to the end that name it, in order."""
        out: dict[str, list[int]] = {}
        finish = None
        while finish is None:
            event = self.next()
            out.setdefault(event.version, []).extend(event.tokens)
            finish = event.finish
        assert finish in ("stop", "length")
        return out


def prompts(num: int, *, seed: int = 0, low: int = 1, high: int = 150) -> list[tuple[int, ...]]:
    """Random prompts of random lengths."""
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(7, TINY.vocab_size, rng.integers(low, high)).tolist()) for _ in range(num)]
