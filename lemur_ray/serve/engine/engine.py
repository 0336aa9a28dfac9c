"""The engine: one thread that owns the model and generates for everybody at once.

Requests come through a queue and join the running batch at the next step; they leave it when they are done. The engine
sees token ids only. Listeners are called in the engine's thread, once per step with all their events. Knows nothing of
HTTP, text or Ray.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

import numpy as np

from lemur_ray.serve.compute.attention import BLOCK, block_bytes
from lemur_ray.serve.compute.devices import Devices
from lemur_ray.serve.compute.exactness import is_batch_invariant
from lemur_ray.serve.compute.invariant import TILE
from lemur_ray.serve.compute.lockstep import Group
from lemur_ray.serve.compute.programs import Programs, Sizes, empty_step, prepared
from lemur_ray.serve.compute.token_choice import choose
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine import scheduler as scheduling
from lemur_ray.serve.engine.errors import ContextExceeded, EngineClosed, QueueFull
from lemur_ray.serve.engine.events import Event, Finish, Listener, Stats, event_of
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.inbox import Cancel, Item, Submit, Update, give_up
from lemur_ray.serve.engine.prefix_tree import BlockCache
from lemur_ray.serve.engine.scheduler import Scheduler, Tile
from lemur_ray.serve.engine.scores import ALTERNATIVES, Scores
from lemur_ray.weights.param_slices import Source

log = logging.getLogger(__name__)


class Engine:
    """Call ``start``, then ``submit`` from any thread."""

    def __init__(
        self,
        source: Source,
        options: EngineOptions | None = None,
        version: str = "",
        group: Group | None = None,
    ):
        """source: the weights, read here and now. group: other processes that compute a part of every step.

        Raises ValueError where the model does not fit, and what reading the source raises.
        """
        self.options = options or EngineOptions()
        self.config, self.version = (config := source.config), version
        self.stats = Stats()
        self.failure: BaseException | None = None
        self.ready, self.ended = threading.Event(), threading.Event()
        sizes = Sizes.of(config, self.options)
        self.context, self.num_blocks, self._width = sizes.context, sizes.num_blocks, sizes.table_width
        if self.options.cache_bytes < self._width * block_bytes(config, self.options.dtype):
            log.warning("cache_bytes %d cannot hold one sequence: it gets more than that", self.options.cache_bytes)
        self.num_slots = self.options.max_slots
        self._devices = Devices.take(self.options.tensor_parallel)
        self.num_devices = self._devices.parts
        self._weights = prepared(source, self.options, self._devices)
        self.group = group
        if group is not None:
            group.on_loss = self.abandon
        self._inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._accepting = True
        self._stopping = False
        self._pending: dict[int, Submit] = {}
        self._updates: deque[Update] = deque()
        self._outbox: dict[Listener, list[Event]] = {}
        self._finished_at: deque[float] = deque(maxlen=32)
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    # Called from any thread.

    def start(self, wait: bool = True) -> Engine:
        """Start the thread, which compiles first. wait: return when it is ready; raises what stopped it."""
        self._thread.start()
        if wait:
            self.ready.wait()
            if self.failure is not None:
                raise EngineClosed(f"the engine could not start: {self.failure!r}") from self.failure
        return self

    def check(self, prompt_tokens: int, max_tokens: int) -> None:
        """Raise ContextExceeded where a request cannot fit."""
        if prompt_tokens + max_tokens > self.context:
            raise ContextExceeded(prompt_tokens, max_tokens, self.context)

    def submit(self, request: Generation, listener: Listener, every_token: bool = True) -> int:
        """Queue a request; returns its number. Its last event has ``finish``.

        every_token False: one event with all tokens at the end. Raises ContextExceeded, QueueFull, EngineClosed, and
        ValueError for an empty prompt, ids outside the vocabulary and settings that no draw can have.
        """
        request.check(self.config.vocab_size, self.context)
        with self._lock:
            if self.failure is not None:
                raise EngineClosed(f"the engine died: {self.failure!r}")
            if not self._accepting:
                raise EngineClosed("the engine is shutting down")
            if len(self._pending) >= self.capacity:
                raise QueueFull(len(self._pending) - self.num_slots, self._retry_after_s())
            number = next(self._numbers)
            self.stats.queued += 1
            self.stats.requests += 1
            sequence = scheduling.Sequence(number, request, np.array(request.prompt, np.int32))
            if request.prompt_scores:
                alternatives = min(ALTERNATIVES, self.config.vocab_size)
                sequence.prompt_scores = Scores.unknown(len(request.prompt), alternatives)
            item = Submit(sequence, listener, every_token)
            self._pending[number] = item
            self._inbox.put(item)
        return number

    def cancel(self, number: int) -> None:
        """Stop a request before the next step; it ends with ``cancelled`` unless it is over already."""
        self._inbox.put(Cancel(number))

    def update(self, source: Source, version: str) -> Future[None]:
        """Other weights of the same model, from any thread. Done once every later reply comes from them.

        Replies that have begun are finished with the weights they began with; requests that wait meanwhile are kept.
        The future raises ValueError where it is another model, EngineClosed where the engine ends first.
        """
        done: Future[None] = Future()
        ours, theirs = asdict(self.config), asdict(source.config)
        if other := [f"{k} {theirs[k]} (here {ours[k]})" for k in ours if theirs[k] != ours[k] and k != "max_seq_len"]:
            done.set_exception(ValueError(f"these weights belong to another model: {', '.join(other)}"))
            return done
        weights = prepared(source, self.options, self._devices)
        with self._lock:
            if not self._accepting or self.failure is not None:
                done.set_exception(EngineClosed("the engine does not run"))
            else:
                self._inbox.put(Update(weights, version, done))
        return done

    def refuse(self) -> None:
        """Take no new requests; those that were taken go on."""
        with self._lock:
            self._accepting = False

    def close(self, drain_s: float = 0.0) -> None:
        """Take nothing more, let running requests finish for at most ``drain_s`` seconds, fail the rest, stop."""
        self.refuse()
        deadline = time.monotonic() + drain_s
        while self._pending and self.failure is None and time.monotonic() < deadline:
            time.sleep(0.02)
        self._stopping = True
        self._inbox.put(None)
        if self._thread.ident is not None:
            self._thread.join(None if self.failure is None else 5.0)

    def abandon(self, error: BaseException) -> None:
        """Fail everything at once: the engine's thread may wait for ever for devices that are no more."""
        self.failure = self.failure or error
        self._stopping = True
        self._fail_all()
        self.ready.set()
        self._inbox.put(None)

    @property
    def capacity(self) -> int:
        """Requests that can be there at once, running and waiting."""
        return self.num_slots + self.options.max_queue

    @property
    def accepting(self) -> bool:
        return self._accepting and self.failure is None

    def _retry_after_s(self) -> int:
        """Whole seconds until a place in the queue is likely, from the last finished requests."""
        times = list(self._finished_at)
        if len(times) < 2:
            return 1
        rate = len(times) / max(time.monotonic() - times[0], 1e-3)
        return min(30, max(1, math.ceil(self.stats.queued / self.num_slots / rate)))

    # Everything below runs in the engine's thread.

    def _main(self) -> None:
        try:
            self._warm_up()
            self.ready.set()
            while not self._stopping:
                self._step()
        except BaseException as error:  # the thread's last words: nobody else would see them
            log.exception("the engine died")
            self.failure = self.failure or error
        finally:
            self._flush()
            self._fail_all()
            self.ready.set()
            self.ended.set()

    def _warm_up(self) -> None:
        begin = time.monotonic()
        wanted = self.options.batch_invariant
        make = Programs if self.group is None else self.group.programs
        self._programs = make(self._weights, self.config, self.options, self._devices)
        self._programs.warm_up(self.options.compile_threads)
        exact = wanted and is_batch_invariant(self._programs, self._width)
        padded = wanted and not exact
        if padded:
            # One shape for decoding and one for prefilling, and only whole tiles that were prefilled are reused: then
            # every token is computed in the same way at any load.
            log.warning("logits depend on the shape of a step on this machine: every step is padded to one shape")
            self._programs.pad()
        self._cache = BlockCache(
            self.num_blocks, BLOCK, self._width, TILE if padded else 1, pinned_share=self.options.pinned_share
        )
        self._scheduler = Scheduler(
            self._cache, self.num_slots, TILE, self.options.prefill_tiles, reuse_decoded=not padded
        )
        self._programs.synchronise()
        self.stats.batch_invariant, self.stats.padded, self.stats.blocks = exact, padded, self.num_blocks - 1
        self.stats.warmup_s = time.monotonic() - begin

    def _step(self) -> None:
        self._receive()
        while self._updates and not self._scheduler.has_begun:
            self._replace(self._updates.popleft())
        self._scheduler.paused = bool(self._updates)
        self._cache.expire(time.monotonic())
        for sequence, place in self._scheduler.admit():
            if place.copy is not None:
                self._programs.copy(*place.copy)
            if sequence.admissions > 1:
                self.stats.preemptions += 1
                self.stats.recomputed_tokens += len(sequence.prefill) - place.cached
                continue
            sequence.version = self.version
            with self._lock:
                self.stats.queued -= 1
            self.stats.prompt_tokens += len(sequence.prompt)
            self.stats.cached_tokens += place.cached
        decoding = self._scheduler.decoding()
        if tiles := self._scheduler.tiles():
            self._prefill(tiles)
        if decoding:
            self._decode(decoding)
        self.stats.active, self.stats.blocks_held = len(self._scheduler.running), self._cache.held
        self.stats.blocks_pinned = self._cache.pinned
        self.stats.recompiles_after_warmup = self._programs.compiled_after_warmup
        self._flush()

    def _replace(self, update: Update) -> None:
        try:
            self._programs.replace(update.weights)
        except Exception as error:
            update.done.set_exception(error)
            if isinstance(error, ValueError):
                return
            raise
        self._cache.forget()
        self.version = update.version
        update.done.set_result(None)

    def _receive(self) -> None:
        """Take what came in; sleep where there is nothing to do."""
        idle = not (self._scheduler.running or self._scheduler.waiting or self._updates)
        while idle or not self._inbox.empty():
            item = self._inbox.get()
            idle = False
            if isinstance(item, Submit):
                self._scheduler.add(item.sequence)
            elif isinstance(item, Update):
                self._updates.append(item)
            elif isinstance(item, Cancel) and item.number in self._pending:
                self._finish(self._pending[item.number].sequence, "cancelled")

    def _prefill(self, tiles: list[Tile]) -> None:
        rows = self._programs.bucket(len(tiles), TILE)
        tokens, place = empty_step(rows, TILE, self._width)
        for r, tile in enumerate(tiles):
            tokens[r, : len(tile.tokens)] = tile.tokens
            place.tables[r] = self._cache.table(tile.sequence.handle)
            place.starts[r], place.counts[r] = tile.start, len(tile.tokens)
        logits, hidden = self._programs.forward(tokens, place._replace(num_rows=np.int32(len(tiles))))
        for r, tile in enumerate(tiles):
            scores = None
            if tile.sequence.needs_prompt_scores:
                scores = self._programs.score_prompt(hidden, r, tile.following(TILE))
            self._scheduler.prefilled(tile, scores)
            self.stats.prefill_tokens += len(tile.tokens)
        last = [(r, tile.sequence) for r, tile in enumerate(tiles) if tile.is_last]
        if last:
            self._choose(logits, last)

    def _decode(self, sequences: list[scheduling.Sequence]) -> None:
        rows = self._programs.bucket(len(sequences), 1)
        tokens, place = empty_step(rows, 1, self._width)
        for r, sequence in enumerate(sequences):
            tokens[r, 0] = sequence.generated[-1]
            place.tables[r] = self._cache.table(sequence.handle)
            place.starts[r] = sequence.computed
        place.counts[: len(sequences)] = 1
        logits, _ = self._programs.forward(tokens, place._replace(num_rows=np.int32(len(sequences))))
        for sequence in sequences:
            self._scheduler.decoded(sequence)
        self.stats.decode_steps += 1
        self.stats.decode_rows += len(sequences)
        self.stats.padding_rows += rows - len(sequences)
        self._choose(logits, list(enumerate(sequences)))

    def _choose(self, logits: Any, rows: list[tuple[int, scheduling.Sequence]]) -> None:
        """Draw the next token of these rows and tell the listeners."""
        for _, sequence in [row for row in rows if not row[1].request.max_tokens]:
            self._finish(sequence, "length")
        rows = [row for row in rows if row[1].request.max_tokens]
        for (_, sequence), token in zip(rows, choose(self._programs, logits, rows), strict=True):
            if token is None:
                self._finish(sequence, "error")
                continue
            sequence.generated.append(token)
            self.stats.generated_tokens += 1
            finish: Finish | None = None
            if token in sequence.request.stop_ids:
                finish = "stop"
            elif len(sequence.generated) >= sequence.request.max_tokens:
                finish = "length"
            if finish:
                self._finish(sequence, finish, new=1)
            elif (item := self._pending[sequence.number]).every_token:
                self._tell(item.listener, event_of(sequence, None, new=1))

    def _finish(self, sequence: scheduling.Sequence, finish: Finish, new: int = 0) -> None:
        """The end of a request. new: tokens that its listener has not been told of, if it is told of each."""
        if sequence.request.session and sequence.handle >= 0 and self.options.pin_s:
            self._cache.pin(sequence.handle, sequence.request.session, time.monotonic() + self.options.pin_s)
        self._scheduler.remove(sequence)
        item = self._pending.pop(sequence.number)
        if not sequence.admissions:
            with self._lock:
                self.stats.queued -= 1
        self._finished_at.append(time.monotonic())
        self.stats.finished[finish] = self.stats.finished.get(finish, 0) + 1
        self._tell(item.listener, event_of(sequence, finish, new if item.every_token else len(sequence.generated)))

    def _tell(self, listener: Listener, event: Event) -> None:
        self._outbox.setdefault(listener, []).append(event)

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for listener, events in outbox.items():
            try:
                listener(events)
            except Exception:  # a listener that cannot hear concerns nobody but its own requests
                log.exception("a listener failed: its requests are given up")
                for number in {event.number for event in events} & self._pending.keys():
                    self._finish(self._pending[number].sequence, "error")

    def _fail_all(self) -> None:
        """Nobody is left waiting for an engine that does not run any more. From any thread."""
        with self._lock:
            self._accepting = False
            pending, self._pending = self._pending, {}
            self.stats.queued = self.stats.active = 0
            updates = []
            with contextlib.suppress(IndexError, queue.Empty):
                while True:
                    last = self._updates.popleft() if self._updates else self._inbox.get_nowait()
                    updates += [last] if isinstance(last, Update) else []
        give_up(pending, updates)
