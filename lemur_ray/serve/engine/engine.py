"""The engine: one thread that owns the model and generates the replies to all requests in one batch.

Requests come through a queue, join the running batch at the next step and leave it when they are done. Listeners are
called in the engine's thread, once per step with all their events. Token ids only: knows nothing of HTTP, text or Ray.
"""

import contextlib
import itertools
import logging
import math
import queue
import threading
import time
from collections import deque
from concurrent import futures
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

import numpy as np

from lemur_ray.serve.config import InFlight
from lemur_ray.serve.engine import events
from lemur_ray.serve.engine.batch import Batch, Drawn
from lemur_ray.serve.engine.compute_protocol import Compute
from lemur_ray.serve.engine.errors import EngineClosed, QueueFull, WeightsNotReplaced
from lemur_ray.serve.engine.events import Finish, Item, Listener, Outbox, Stats
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.token_logprobs import ALTERNATIVES, TokenLogprobs

log = logging.getLogger(__name__)


class Engine:
    """Generates replies to requests in a thread. Call ``start``, then ``submit`` from any thread, then ``close``."""

    def __init__(self, compute: Compute, version: str = ""):
        """compute: the model on its devices. version: name of its weights, which every event repeats (``serve.loading``
        makes both). Starts no thread."""
        self.compute, self.options = compute, compute.options
        self.config, self.version = compute.config, version
        self.stats = Stats()
        self.failure: BaseException | None = None
        self.ready, self.ended = threading.Event(), threading.Event()
        self.context, self.num_blocks = compute.sizes.context, compute.sizes.num_blocks
        self.num_slots, self.num_devices = self.options.max_slots, compute.num_devices
        self._inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._accepting = True
        self._stopping = False
        self._pending: dict[int, events.Submit] = {}
        self._updates: deque[events.Update] = deque()
        self._staged: tuple[str, Any] | None = None
        self._staging, self._committed = threading.Lock(), list[Future[None]]()
        self._outbox = Outbox()
        self._finished_at: deque[float] = deque(maxlen=32)
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    # Called from any thread.

    def start(self, wait: bool = True) -> "Engine":
        """Start the engine's thread, which compiles all programs first; returns the engine. wait: return only when that
        is done, and raise EngineClosed if it failed."""
        self._thread.start()
        if wait:
            self.ready.wait()
            if self.failure is not None:
                raise EngineClosed(f"the engine could not start: {self.failure!r}") from self.failure
        return self

    def submit(self, request: Generation, listener: Listener, every_token: bool = True) -> int:
        """Queue a request and return its number, which its events carry; the last of them has ``finish``.
        listener: called in the engine's thread with a list of events. every_token False: a single event with all tokens
        at the end. Raises ContextExceeded, QueueFull, EngineClosed (not running), and InvalidRequest for an empty
        prompt, ids outside the vocabulary or options out of range."""
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
            sequence = LiveSequence(number, request, np.array(request.prompt, np.int32))
            if request.prompt_logprobs:
                alternatives = min(ALTERNATIVES, self.config.vocab_size)
                sequence.prompt_logprobs = TokenLogprobs.unknown(len(request.prompt), alternatives)
            item = events.Submit(sequence, listener, every_token)
            self._pending[number] = item
            self._inbox.put(item)
        return number

    def cancel(self, number: int) -> None:
        """Stop a request before the next step; it ends with ``cancelled``. Nothing happens if it has ended or the
        number is unknown."""
        self._inbox.put(events.Cancel(number))

    def stage(self, source: Any, version: str, others: tuple[str, str] = ("", "")) -> None:
        """Check new weights of this model everywhere, for ``commit``; those in use go on. Replaces what was staged.
        source: with a ``config``, and as ``Compute.stage`` takes it. others: spec and version by which other processes
        of this engine open it. Waits for a commit before. Raises ValueError for another model, and what
        ``Compute.stage`` raises."""
        ours, theirs = asdict(self.config), asdict(source.config)
        if other := [f"{k} {theirs[k]} (here {ours[k]})" for k in ours if theirs[k] != ours[k] and k != "max_seq_len"]:
            raise ValueError(f"these weights belong to another model: {', '.join(other)}")
        with self._staging:
            with self._lock:  # from here on nothing is committed: other processes would take what is staged next
                self._staged, committed = None, self._committed
            futures.wait(committed)
            staged = self.compute.stage(source, *others)
            with self._lock:
                self._staged = version, staged

    @property
    def staged_version(self) -> str | None:
        """The version that ``commit`` takes; None: none."""
        return self._staged[0] if self._staged is not None else None

    def drop(self) -> None:
        """Forget the weights that are staged, if any."""
        with self._staging:
            with self._lock:
                staged, self._staged = self._staged, None
            if staged is not None:
                self.compute.drop()

    def commit(self, version: str, in_flight: InFlight | None = None) -> Future[None]:
        """Switch to staged weights at the next step; the future is done once all replies come from them.
        in_flight: replies that have begun, by default as in the options. The future raises WeightsNotReplaced if the
        weights cannot be read any more (the old ones stay), and EngineClosed if the engine ends first, also because
        weights could not be read to the end. Raises ValueError if others are staged."""
        done: Future[None] = Future()
        with self._lock:
            if not self._accepting or self.failure is not None:
                raise EngineClosed("the engine does not run")
            staged, self._staged = self._staged, None
            if staged is None or staged[0] != version:
                self._staged = staged
                raise ValueError(f"weights {version} are not staged, but {staged[0] if staged else 'none'}: stage them")
            self._committed = [done]
            self._inbox.put(events.Update(staged[1], version, in_flight or self.options.in_flight, done))
        return done

    def update(self, source: Any, version: str, in_flight: InFlight | None = None) -> Future[None]:
        """Stage new weights and switch to them: ``stage``, then ``commit``. Returns the future of ``commit``; raises
        what both raise. in_flight: what happens to replies that have begun, by default as in the options."""
        self.stage(source, version)
        return self.commit(version, in_flight)

    def refuse(self) -> None:
        """Accept no new requests; those accepted before go on."""
        with self._lock:
            self._accepting = False

    def close(self, drain_s: float = 0.0) -> None:
        """Accept no more requests, let running ones finish for at most ``drain_s`` seconds, fail the rest with
        ``error``, and wait until the thread has ended."""
        self.refuse()
        deadline = time.monotonic() + drain_s
        while self._pending and self.failure is None and time.monotonic() < deadline:
            time.sleep(0.02)
        self._stopping = True
        self._inbox.put(None)
        if self._thread.ident is not None:
            self._thread.join(None if self.failure is None else 5.0)

    def abandon(self, error: BaseException) -> None:
        """Fail all requests with ``error`` now, without the engine's thread, which may hang because of lost devices.
        error: kept as ``failure``."""
        self.failure = self.failure or error
        self._stopping = True
        self._fail_all()
        self.ready.set()
        self.ended.set()
        self._inbox.put(None)

    @property
    def capacity(self) -> int:
        """Maximum number of requests, running and waiting together."""
        return self.num_slots + self.options.max_queue

    @property
    def accepting(self) -> bool:
        """Whether ``submit`` takes requests: neither draining, closed nor dead."""
        return self._accepting and self.failure is None

    def _retry_after_s(self) -> int:
        """Seconds (1 to 30) until the queue is likely to have space, from the rate of the last finished requests."""
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
        except BaseException as error:  # an exception that leaves the thread is reported nowhere else
            log.exception("the engine died")
            self.failure = self.failure or error
        finally:
            self._flush()
            self._fail_all()
            self.ready.set()
            self.ended.set()

    def _warm_up(self) -> None:
        begin = time.monotonic()
        programs = self.compute.warm_up(on_loss=self.abandon)
        self._batch = Batch(self.compute, programs, self.stats)
        self.stats.batch_invariant, self.stats.padded = programs.is_exact, programs.is_padded
        self.stats.blocks = self.num_blocks - 1
        self.stats.warmup_s = time.monotonic() - begin

    def _step(self) -> None:
        self._receive()
        batch = self._batch
        while self._updates and not (self._updates[0].in_flight == "drain" and batch.scheduler.in_progress):
            self._replace(self._updates.popleft())
        batch.scheduler.paused = bool(self._updates)
        batch.cache.expire(time.monotonic())
        for sequence in batch.admit():
            sequence.version = self.version
            with self._lock:
                self.stats.queued -= 1
        for drawn in batch.step():
            self._give_all(drawn)
        batch.count()
        self._flush()

    def _replace(self, update: events.Update) -> None:
        try:
            self._give_all(self._batch.settle())
            self._batch.replace(update)
        except WeightsNotReplaced as error:
            update.done.set_exception(error)
            return
        except Exception as error:
            update.done.set_exception(error)
            raise
        self.version = update.version
        update.done.set_result(None)

    def _receive(self) -> None:
        """Process new items of the inbox; block while there is nothing to compute."""
        scheduler = self._batch.scheduler
        idle = not (scheduler.running or scheduler.waiting or self._updates)
        while idle or not self._inbox.empty():
            item = self._inbox.get()
            idle = False
            if isinstance(item, events.Submit):
                scheduler.add(item.sequence)
            elif isinstance(item, events.Update):
                self._updates.append(item)
            elif isinstance(item, events.Cancel) and item.number in self._pending:
                self._finish(self._pending[item.number].sequence, "cancelled")

    def _give_all(self, drawn: Drawn) -> None:
        for sequence, token in drawn:
            self._give(sequence, token)

    def _give(self, sequence: LiveSequence, token: int | None) -> None:
        """Append the next token to a sequence, and finish it after its last token; None: finish it without a token."""
        if token is None:
            self._finish(sequence, "error" if sequence.request.max_tokens else "length")
            return
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
            self._outbox.put(item.listener, events.event_of(sequence, None, new=1))

    def _finish(self, sequence: LiveSequence, finish: Finish, new: int = 0) -> None:
        """End a request with its last event. new: last tokens that a listener of every token has not received yet."""
        if sequence.request.session_id and sequence.handle >= 0 and self.options.pin_s:
            until = time.monotonic() + self.options.pin_s
            self._batch.cache.pin(sequence.handle, sequence.request.session_id, until)
        self._batch.scheduler.remove(sequence)
        item = self._pending.pop(sequence.number)
        if not sequence.admissions:
            with self._lock:
                self.stats.queued -= 1
        self._finished_at.append(time.monotonic())
        self.stats.finished[finish] = self.stats.finished.get(finish, 0) + 1
        new = new if item.every_token else len(sequence.generated)
        self._outbox.put(item.listener, events.event_of(sequence, finish, new))

    def _flush(self) -> None:
        for number in self._outbox.send() & self._pending.keys():
            self._finish(self._pending[number].sequence, "error")

    def _fail_all(self) -> None:
        """Fail all requests and updates, because the engine does not run any more. From any thread."""
        with self._lock:
            self._accepting = False
            pending, self._pending = self._pending, {}
            self.stats.queued = self.stats.active = 0
            updates = []
            with contextlib.suppress(IndexError, queue.Empty):
                while True:
                    last = self._updates.popleft() if self._updates else self._inbox.get_nowait()
                    updates += [last] if isinstance(last, events.Update) else []
        outbox = Outbox()  # the engine's thread may use its own
        for number, item in pending.items():
            outbox.put(item.listener, events.Event(number, (), "error"))
        outbox.send()
        for update in updates:
            update.done.set_exception(EngineClosed("the engine ended before the weights were replaced"))
