"""What an actor is in Ray: a process with an episode in each of many threads, its calls, and who asks for it.

Everything a task holds is in its order, so any actor can play it: one on another host is sent bundles in the place of
paths (``lemur_ray.storage.bundles``), one on this host the paths themselves. Answers come by callbacks of Ray's own
thread: waiting for a list of them takes longer the longer it is. Knows nothing of who plays what.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import ray
import ray.exceptions
from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply  # type: ignore[attr-defined]
from ray.experimental.internal_kv import _internal_kv_get, internal_kv_get_gcs_client

from lemur_ray.agents.messages import Policy
from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import Outcome, Task
from lemur_ray.benchmarks.resource_request import Resources
from lemur_ray.rollout.actors.actor import ActorEvent, ActorLost, ActorStarted, EpisodeEnded
from lemur_ray.rollout.actors.actor_resources import MINIMAL, actor_resources
from lemur_ray.rollout.actors.autoscaling import autoscales_v1, autoscales_v2
from lemur_ray.rollout.actors.pool import ActorPool
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.threads import EpisodeThreads
from lemur_ray.storage.bundles.bundle import BundleError
from lemur_ray.storage.bundles.host_path import host_identity, pack_options, unpack_options
from lemur_ray.storage.bundles.on_ray import Publisher, unpacked_bundle

Tell = Callable[[ActorEvent], None]


_HEAD_ANSWERS_S = 10.0
_PROCESS_ENDED = "worker process has died"
"""What Ray says of an actor whose process is gone and whose node is not (2.60)."""


def cluster_grows() -> bool:
    """Whether the cluster of the Ray that is connected brings hosts by itself; where its head does not say, it does
    not."""
    with contextlib.suppress(ray.exceptions.RayError):
        if autoscales_v1(_internal_kv_get(DEBUG_AUTOSCALING_STATUS)):
            return True
        said = internal_kv_get_gcs_client().get_cluster_status(timeout_s=_HEAD_ANSWERS_S)
        return autoscales_v2(GetClusterStatusReply.FromString(said))
    return False


class RayPool(ActorPool):
    """The pool of ``num_actors`` actors with ``episodes_per_actor`` episodes each, in the Ray that is connected."""

    def __init__(
        self,
        make_policy: Callable[[], Policy],
        *,
        num_actors: int,
        episodes_per_actor: int,
        each: Resources | None = None,
        cpus: float = 0.0,
        gates: Sequence[Any] = (),
        lease_actor: Any = None,
        tasks: Sequence[Task] = (),
        **limits: Any,
    ) -> None:
        """``each``: what an episode takes; None where nobody knows. ``cpus``: that an actor asks for; 0: what its
        episodes take (``actors.room``). ``gates``: of the endpoints that are asked, the policy's first; ``keeper``: of
        what environments lease, where they do; all of them end with the pool. ``tasks``: what will be played, as far as
        it is known: published as soon as an actor is on another host. ``limits``: as of ``ActorPool``. Raises
        PoolBroken, BundleError."""
        asks = MINIMAL
        if each is not None:
            here = ray.get_runtime_context().get_node_id()
            asks = actor_resources(episodes_per_actor, each, ray.nodes(), here, cpus, grows=cluster_grows())
        backend = RayBackend(make_policy, episodes_per_actor, asks, gates, tasks, lease_actor)
        super().__init__(backend, num_actors=num_actors, episodes_per_actor=episodes_per_actor, **limits)


class RayBackend:
    """Actors in the Ray that is connected; see ``RayPool``."""

    def __init__(
        self,
        make_policy: Callable[[], Policy],
        episodes_per_actor: int,
        asks: Resources,
        gates: Sequence[Any],
        tasks: Sequence[Task],
        lease_actor: Any = None,
    ) -> None:
        self.make_policy = ray.put(make_policy)  # once, however many actors: a recording goes along
        self.gates, self.publisher = list(gates), Publisher()
        self.holding = [*gates, *([] if lease_actor is None else [lease_actor])]
        """What holds something for actors, and is told which of them are gone."""
        self._tasks, self.asks = tasks, asks
        self.node = ray.get_runtime_context().get_node_id()
        self.actor_class: Any = ray.remote(_Actor).options(
            num_cpus=round(asks.cpus, 4),
            memory=asks.memory_bytes or None,
            max_restarts=0,
            max_concurrency=episodes_per_actor + 4,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": told} if (told := Publisher.environment()) else None,
        )

    def begin(self, tell: Tell) -> RayActor:
        return RayActor(self, tell)

    def ask(self, tell: Callable[[int, Pressure], None]) -> None:
        for number, gate in enumerate(self.gates):
            _when_done(gate.pressure.remote(), partial(tell, number), _nothing)

    def lacking(self, number: int) -> str:
        have, free = ray.cluster_resources(), ray.available_resources()
        for_each = f"{self.asks.cpus:.3g} CPU"
        there = f"{have.get('CPU', 0):g} CPU, {free.get('CPU', 0):g} of them free"
        if self.asks.memory_bytes:
            for_each += f" and {self.asks.memory_bytes / 2**30:.2g} GiB of memory"
            there += f", and {have.get('memory', 0) / 2**30:.3g} GiB, {free.get('memory', 0) / 2**30:.3g} of them free"
        return (
            f"{number} environment actors wait for a host with {for_each} for each (the cluster has {there}): end "
            "another job, add hosts, or ask for less (--actors, --in-flight, --actor-cpus)"
        )

    def publish_tasks(self) -> None:
        """What cannot be shipped is said now, not with the task that needs it. Raises BundleError."""
        for task in self._tasks:
            pack_options(task.options, self.publisher)
        self._tasks = ()

    def close(self) -> None:
        for one in self.holding:
            ray.kill(one)
        self.gates, self.holding = [], []
        self.publisher.close()


class RayActor:
    """One actor; ``actors.actor.Actor``."""

    def __init__(self, backend: RayBackend, tell: Tell) -> None:
        self._backend, self._tell = backend, tell
        self._elsewhere = False
        """Whether it is on another host than this process, so that no path of this one means anything to it."""
        self._handle: Any = backend.actor_class.remote(backend.make_policy)
        _when_done(self._handle.begun.remote(), self._begun, self._gone)
        _when_done(self._handle.stay.remote(), self._gone, self._gone)

    def settle(self) -> None:
        if self._elsewhere:
            self._backend.publish_tasks()

    def play(self, spec: EpisodeSpec, ticket: int) -> None:
        if self._elsewhere:
            task = replace(spec.task, options=pack_options(spec.task.options, self._backend.publisher))
            ref = self._handle.play.remote(replace(spec, task=task), True)
        else:
            ref = self._handle.play.remote(spec)
        _when_done(ref, partial(self._ended, ticket), partial(self._failed, ticket))

    def ask(self) -> None:
        _when_done(self._handle.pressure.remote(), self._tell, _nothing)

    def end(self) -> None:
        ray.kill(self._handle)
        for one in self._backend.holding:
            one.forget.remote(self._handle._actor_id.hex())

    def _begun(self, found: tuple[int, str, str]) -> None:
        pid, host, node = found
        self._elsewhere = host != host_identity()
        self._tell(ActorStarted(pid, elsewhere=node != self._backend.node))

    def _ended(self, ticket: int, found: tuple[Attempt, int]) -> None:
        self._tell(EpisodeEnded(ticket, *found))

    def _failed(self, ticket: int, error: BaseException) -> None:
        if isinstance(error, ray.exceptions.RayTaskError):  # raised by our own code in a living actor
            self._tell(EpisodeEnded(ticket, Attempt(Outcome.HARNESS_BUG, None, detail=str(error)[-4000:])))
        else:
            self._gone(error)

    def _gone(self, error: object) -> None:
        self._tell(ActorLost(str(error), with_host=went_with_host(error)))


class _Actor:
    """The inside of one actor. Async only to have many calls open at once: every episode runs in its own threads."""

    rest_s = 5.0
    """Before it is told that a bundle cannot be had here: who fails at once is idle, and would be sent all there is."""

    def __init__(self, make_policy: Callable[[], Policy]) -> None:
        self._threads = EpisodeThreads(make_policy())

    async def begun(self) -> tuple[int, str, str]:
        """Process, host, and Ray's node, of which there may be several on a host."""
        return os.getpid(), host_identity(), ray.get_runtime_context().get_node_id()

    async def stay(self) -> None:
        """Never comes back: who waits for it learns that this process, or its node, is gone."""
        await asyncio.Event().wait()

    async def pressure(self) -> Pressure:
        return self._threads.pressure()

    async def play(self, spec: EpisodeSpec, is_packed: bool = False) -> tuple[Attempt, int]:
        """The attempt, and the number of calls that are stuck in this process for good."""
        if is_packed:
            try:
                spec = await asyncio.to_thread(_unpacked, spec)
            except BundleError as error:
                await asyncio.sleep(self.rest_s)
                return Attempt(Outcome.INFRA_LOST, None, detail=str(error), excused=True), self._threads.stuck
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Attempt] = loop.create_future()

        def done(attempt: Attempt | KeyboardInterrupt) -> None:
            if isinstance(attempt, KeyboardInterrupt):
                attempt = Attempt(Outcome.HARNESS_BUG, None, detail="the policy left; a person plays in threads alone")
            loop.call_soon_threadsafe(ended.set_result, attempt)

        self._threads.start(spec, done)
        attempt = await ended
        return attempt, self._threads.stuck


def went_with_host(error: object) -> bool:
    """Whether an actor's host is lost or cut off, as far as Ray does not say that its process alone ended."""
    return not isinstance(error, ray.exceptions.OutOfMemoryError) and _PROCESS_ENDED not in str(error)


def _when_done(ref: Any, well: Callable[[Any], None], badly: Callable[[BaseException], None]) -> None:
    """Call one of both, in a thread of Ray's, once there is an answer."""

    def tell(future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            well(future.result())
        else:
            badly(error)

    ref.future().add_done_callback(tell)


def _nothing(error: BaseException) -> None:
    """It is gone: whoever collects its episodes learns of it."""


def _unpacked(spec: EpisodeSpec) -> EpisodeSpec:
    return replace(spec, task=replace(spec.task, options=unpack_options(spec.task.options, unpacked_bundle)))
