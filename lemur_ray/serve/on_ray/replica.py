"""A replica on Ray Serve: an engine that answers HTTP with the app of ``http``, and token ids by handle.

The replica's own ASGI app answers, so Serve passes its token stream on unchanged. Knows nothing of where it runs."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.http.metrics import Metrics
from lemur_ray.serve.http.replica_pages import Page, Pages, merged, newest, without_oldest
from lemur_ray.serve.http.routes import build_app
from lemur_ray.serve.loading import commit_weights, load_text_engine, stage_weights
from lemur_ray.serve.on_ray.host_group import Gathered, Reserved, gather
from lemur_ray.serve.on_ray.weights_record import Choice, WeightsRecord
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.serve.token_requests import converse
from lemur_ray.weights.checkpoints import fixed_checkpoint

log = logging.getLogger(__name__)

LAST_WORDS_S = 2.0
"""Seconds that a replica with a dead engine has to send errors to its clients."""
OTHERS_S = 5.0
"""Seconds within which the other replicas must send their metrics."""


@serve.ingress()
class ChatModel:
    """A replica of Ray Serve: loads a model, starts its engine, and is healthy while the engine's thread lives."""

    def __init__(
        self, spec: str, job: ServeJob, reserved: Reserved, record: str, template: str = "", key_digest: bytes = b""
    ):
        """Load the model and compile; for several hosts, start their followers first. spec: as in
        ``weights.open_model``; template: chat template instead of the model's own. record: name of the record of chosen
        weights, which are loaded instead of the model's, unless the replica follows a run. key_digest: SHA-256 of the
        key that HTTP requests must have; b"": none."""
        self._record, self._spec, self._key_digest = WeightsRecord(record), spec, key_digest
        self._switching = threading.Lock()
        self._choice = Choice() if job.follow_s else self._record.read()
        alone, options = len(reserved.bundles) == 1, job.engine
        self._gathered = Gathered([], []) if alone else gather(self._choice.spec or spec, options, reserved)
        self._served = load_text_engine(
            spec, options, job.name, job.follow_s, self._gathered.lines, template, self._choice[1:]
        )
        self._one_of_many = max(job.replicas, job.max_replicas) > 1
        if not job.follow_s:
            self._switch(self._record.read())  # an update may have passed while the weights were loaded
            watching = partial(self._record.watch, self._switch, self._served.engine.ended)
            threading.Thread(target=watching, name="record", daemon=True).start()
        self._metrics = Metrics(self._served.engine)
        self._peers: Any = None
        self._known: Pages = {}
        leave = partial(leave_when_dead, self._served)
        threading.Thread(target=leave, name="leave", daemon=True).start()

    def __serve_build_asgi_app__(self) -> FastAPI:
        page = self._page_of_all if self._one_of_many else None
        return build_app(self._served, self._key_digest, self._metrics, page)

    async def about(self) -> dict[str, Any]:
        """``name`` and ``spec`` of the model, ``version`` and spec (``weights``) of its weights, ``context`` in
        tokens."""
        about = {"name": self._served.name, "spec": self._spec, "version": self._served.version}
        return {**about, "weights": self._choice.spec or self._spec, "context": self._served.engine.context}

    async def num_tokens(self, text: str) -> int:
        """Number of tokens of a text, without those that a chat template adds."""
        return len(await asyncio.to_thread(self._served.tokenizer.encode, text))

    async def own_metrics(self, known: Pages) -> tuple[str, Pages]:
        """(this replica's name, newest metrics page of every replica known to it or in ``known``)."""
        name = serve.get_replica_context().replica_tag
        before = self._known[name].number if name in self._known else 0
        own = {name: Page(max(time.time_ns(), before + 1), self._metrics.render())}
        self._known = without_oldest(newest(own, known, self._known), {name, *known})
        return name, self._known

    async def _page_of_all(self) -> str:
        """The text of /metrics for all replicas; no counter may decrease, whichever replica answers."""
        me, known = await self.own_metrics({})
        own, answers = known[me], []
        try:
            self._peers = self._peers or serve.get_app_handle(serve.get_replica_context().app_name)
            responses = self._peers.broadcast("own_metrics", known)
            answers = await responses.results_async(timeout_s=OTHERS_S, return_exceptions=True)
        except (RayError, RayServeException, TimeoutError) as error:
            log.warning("metrics of other replicas as they were: %s", error)
        answers = [answer for answer in answers if isinstance(answer, tuple)]
        alive = {me, *(name for name, _ in answers)}
        # Its own page is the one that the others have by now, and can show after this replica has ended.
        known = {**newest(known, *(pages for _, pages in answers)), me: own}
        self._known = without_oldest(newest(self._known, known), alive)
        return merged({name: page.text for name, page in without_oldest(known, alive).items()}, alive)

    async def converse(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request of a policy in the cluster. request: turns, sampling options and session; both are
        plain values as the docstring of ``serve.token_requests`` lists them."""
        return await converse(self._served, request)

    async def weights_target(self, spec: str) -> tuple[str, str]:
        """(name of the record of chosen weights, ``spec`` as a path that later names the same weights)."""
        path = spec if ":" in spec else str(Path(spec).expanduser().absolute())
        return self._record.name, await asyncio.to_thread(fixed_checkpoint, path)

    async def stage_weights(self, spec: str) -> str:
        """Check the weights of ``spec`` (as in ``weights.open_model``) for ``commit_weights``; returns their version.
        Raises RuntimeError with the reason."""
        return await asyncio.to_thread(stage_weights, self._served.engine, spec)

    async def commit_weights(self, choice: Choice) -> str:
        """Switch to recorded weights, which are read again if they are not staged; returns the version in use, which is
        another one after a later choice. Raises RuntimeError with the reason."""
        return await asyncio.to_thread(self._switch, choice)

    def _switch(self, choice: Choice) -> str:
        with self._switching:
            if choice.number > self._choice.number:
                commit_weights(self._served.engine, choice.spec, choice.version)
                self._choice = choice
            return self._served.version

    async def drop_weights(self) -> None:
        """Forget the weights that are staged, if any."""
        await asyncio.to_thread(self._drop)

    def _drop(self) -> None:
        with self._switching:  # weights that are being switched to are staged until they are in use
            self._served.engine.drop()

    async def drain(self, limit_s: float) -> None:
        """Refuse new requests, and close the engine; replies that take over ``limit_s`` seconds end with an error."""
        await asyncio.to_thread(self._served.engine.close, limit_s)

    def check_health(self) -> None:
        if self._served.engine.failure is not None:
            raise RuntimeError(f"the engine died: {self._served.engine.failure!r}")

    def __del__(self) -> None:
        if hasattr(self, "_served"):
            self._served.engine.close()
            self._served.engine.compute.close()


def leave_when_dead(served: TextEngine, leave: Callable[[int], None] = os._exit) -> None:
    """Wait until an engine has ended. If it died, call ``leave(1)``, by default ending the process, after its clients
    have received their errors (at most 2 s).
    Serve redirects requests at once when a process ends, but only after three failed health checks otherwise."""
    served.engine.ended.wait()
    if served.engine.failure is None:
        return
    deadline = time.monotonic() + LAST_WORDS_S
    while served.is_awaited and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)  # the errors are on their way to the proxy
    leave(1)
