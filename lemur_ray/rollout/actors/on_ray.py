"""Actors as Ray processes, each of which plays many episodes, one per thread.

An ``EpisodeSpec`` contains its whole task, so any actor can play it: for actors on other hosts, its file paths are
replaced by bundles (``lemur_ray.storage.bundles``). Results arrive by callbacks from a thread of Ray, because
``ray.wait`` takes longer the longer its list is."""

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
from lemur_ray.rollout.actors.actor_resources import MINIMAL, actor_resources, autoscales_v1, autoscales_v2
from lemur_ray.rollout.actors.pool import ActorPool, PoolLimits
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.threads import EpisodeThreads
from lemur_ray.storage.bundles.bundle import BundleError
from lemur_ray.storage.bundles.host_path import host_identity, pack_options, unpack_options
from lemur_ray.storage.bundles.on_ray import Publisher, unpacked_bundle

Report = Callable[[ActorEvent], None]
_HEAD_ANSWERS_S = 10.0
_PROCESS_ENDED = "worker process has died"
"""Part of Ray's message (2.60) about an actor whose process ended while its node lives."""


def cluster_grows() -> bool:
    """Whether the connected cluster has an autoscaler; False if its head does not answer."""
    with contextlib.suppress(ray.exceptions.RayError):
        if autoscales_v1(_internal_kv_get(DEBUG_AUTOSCALING_STATUS)):
            return True
        status = internal_kv_get_gcs_client().get_cluster_status(timeout_s=_HEAD_ANSWERS_S)
        return autoscales_v2(GetClusterStatusReply.FromString(status))
    return False


def actor_request(episodes: int, each: Resources, cpus: float = 0.0) -> Resources:
    """Resources to request for an actor that plays ``episodes`` at a time on the connected cluster, each of which needs
    ``each``. cpus: CPUs chosen by the user, 0: computed."""
    node = ray.get_runtime_context().get_node_id()
    return actor_resources(episodes, each, ray.nodes(), node, cpus, grows=cluster_grows())


class RayPool(ActorPool):
    """A pool of actors in the connected Ray cluster, each a process that plays many episodes."""

    def __init__(
        self,
        make_policy: Callable[[], Policy],
        limits: PoolLimits,
        *,
        each: Resources | None = None,
        cpus: float = 0.0,
        gates: Sequence[Any] = (),
        lease_actor: Any = None,
        tasks: Sequence[Task] = (),
    ) -> None:
        """``each``: resources of one episode; None: unknown. ``cpus``: CPUs that an actor requests; 0: computed from
        its episodes (``actors.actor_resources``). ``gates``: actors with the request slots of endpoints, the policy's
        first. ``lease_actor``: actor with the environments' leases, or None. ``close`` kills both. ``tasks``: tasks
        whose files are published as soon as an actor runs on another host. Raises PoolBroken if no actor starts,
        BundleError if a task's file cannot be sent."""
        request = MINIMAL if each is None else actor_request(limits.episodes_per_actor, each, cpus)
        self._ray = RayBackend(make_policy, limits.episodes_per_actor, request, gates, tasks, lease_actor)
        super().__init__(self._ray, limits)

    def change_policy(self, make_policy: Callable[[], Policy]) -> None:
        """Play the episodes submitted from now on with another policy, in the same actors. ``make_policy`` is sent with
        every episode, so it should be small; an actor calls it once for equal values in a row."""
        self._ray.changed_policy = make_policy


class RayBackend:
    """Starts actors in the connected Ray cluster; parameters as in ``RayPool``. ``request``: of one actor."""

    def __init__(
        self,
        make_policy: Callable[[], Policy],
        episodes_per_actor: int,
        request: Resources,
        gates: Sequence[Any],
        tasks: Sequence[Task],
        lease_actor: Any = None,
    ) -> None:
        self.make_policy = ray.put(make_policy)  # once for all actors, because it may contain a recording
        self.changed_policy: Callable[[], Policy] | None = None
        """Factory of the policy in place of ``make_policy``, which actors still call first; None: it is not changed."""
        self.gates, self.publisher = list(gates), Publisher()
        self.holders = [*gates, *([] if lease_actor is None else [lease_actor])]
        """Gates and lease actor, which free slots and leases of dead actors when they are informed."""
        self._tasks, self._request = tasks, request
        self.node = ray.get_runtime_context().get_node_id()
        environment = Publisher.environment()
        self.actor_class: Any = ray.remote(_Actor).options(
            num_cpus=round(request.cpus, 4),
            memory=request.memory_bytes or None,
            max_restarts=0,
            max_concurrency=episodes_per_actor + 4,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": environment} if environment else None,
        )

    def start_actor(self, report: Report) -> "RayActor":
        return RayActor(self, report)

    def request_pressure(self, report: Callable[[int, Pressure], None]) -> None:
        for number, gate in enumerate(self.gates):
            _when_done(gate.pressure.remote(), partial(report, number), _ignore)

    def shortage(self, num_actors: int) -> str:
        total, free = ray.cluster_resources(), ray.available_resources()
        for_each = f"{self._request.cpus:.3g} CPU"
        available = f"{total.get('CPU', 0):g} CPU, {free.get('CPU', 0):g} of them free"
        if self._request.memory_bytes:
            for_each += f" and {self._request.memory_bytes / 2**30:.2g} GiB of memory"
            gib, free_gib = (amounts.get("memory", 0) / 2**30 for amounts in (total, free))
            available += f", and {gib:.3g} GiB, {free_gib:.3g} of them free"
        return (
            f"{num_actors} environment actors wait for a host with {for_each} for each (the cluster has {available}): "
            "end another job, add hosts, or ask for less (--actors, --in-flight, --actor-cpus)"
        )

    def publish_tasks(self) -> None:
        """Pack and upload the files that all tasks name, so that a file that cannot be sent is an error now: raises
        BundleError. A second call does nothing."""
        for task in self._tasks:
            pack_options(task.options, self.publisher)
        self._tasks = ()

    def close(self) -> None:
        for holder in self.holders:
            ray.kill(holder)
        self.gates, self.holders = [], []
        self.publisher.close()


class RayActor:
    """An ``actors.actor.Actor`` that is a Ray actor."""

    def __init__(self, backend: RayBackend, report: Report) -> None:
        self._backend, self._report = backend, report
        self._elsewhere = False
        """Whether the actor runs on another host, on which this host's paths do not exist."""
        self._handle: Any = backend.actor_class.remote(backend.make_policy)
        _when_done(self._handle.location.remote(), self._started, self._lost)
        _when_done(self._handle.block.remote(), self._lost, self._lost)

    def settle(self) -> None:
        if self._elsewhere:
            self._backend.publish_tasks()

    def play(self, spec: EpisodeSpec, ticket: int) -> None:
        if self._elsewhere:
            task = replace(spec.task, options=pack_options(spec.task.options, self._backend.publisher))
            ref = self._handle.play.remote(replace(spec, task=task), self._backend.changed_policy, True)
        else:
            ref = self._handle.play.remote(spec, self._backend.changed_policy)
        _when_done(ref, partial(self._ended, ticket), partial(self._failed, ticket))

    def request_pressure(self) -> None:
        _when_done(self._handle.pressure.remote(), self._report, _ignore)

    def end(self) -> None:
        ray.kill(self._handle)
        for holder in self._backend.holders:
            holder.forget.remote(self._handle._actor_id.hex())

    def _started(self, location: tuple[int, str, str]) -> None:
        pid, host, node = location
        self._elsewhere = host != host_identity()
        self._report(ActorStarted(pid, elsewhere=node != self._backend.node))

    def _ended(self, ticket: int, result: tuple[Attempt, int]) -> None:
        self._report(EpisodeEnded(ticket, *result))

    def _failed(self, ticket: int, error: BaseException) -> None:
        if isinstance(error, ray.exceptions.RayTaskError):  # raised by the project's code in a living actor
            self._report(EpisodeEnded(ticket, Attempt(Outcome.HARNESS_BUG, None, detail=str(error)[-4000:])))
        else:
            self._lost(error)

    def _lost(self, error: object) -> None:
        self._report(ActorLost(str(error), with_host=went_with_host(error)))


class _Actor:
    """The Ray actor's class. Async only to have many calls open at once: every episode runs in its own threads."""

    rest_s = 5.0
    """Seconds before a failed bundle is reported: an actor that fails at once is idle and would get every episode."""

    def __init__(self, make_policy: Callable[[], Policy]) -> None:
        self._threads = EpisodeThreads(make_policy())
        self._changed_policy: Callable[[], Policy] | None = None

    async def location(self) -> tuple[int, str, str]:
        """(process id, identity of the host, Ray's node id); a host may run several nodes."""
        return os.getpid(), host_identity(), ray.get_runtime_context().get_node_id()

    async def block(self) -> None:
        """Never return: the caller gets an error once this process or its node is gone."""
        await asyncio.Event().wait()

    async def pressure(self) -> Pressure:
        return self._threads.pressure()

    async def play(
        self, spec: EpisodeSpec, make_policy: Callable[[], Policy] | None = None, is_packed: bool = False
    ) -> tuple[Attempt, int]:
        """Play an episode: (the attempt, number of calls in this process that will never return). ``make_policy``: as
        ``RayBackend.changed_policy``. ``is_packed``: whether its task has bundles instead of paths."""
        if make_policy is not None and make_policy != self._changed_policy:
            self._threads.policy, self._changed_policy = make_policy(), make_policy
        if is_packed:
            try:
                options = await asyncio.to_thread(unpack_options, spec.task.options, unpacked_bundle)
                spec = replace(spec, task=replace(spec.task, options=options))
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
    """Whether an actor was lost with its host: True unless ``error``, from Ray, says that the process alone ended (a
    crash, or too much memory)."""
    return not isinstance(error, ray.exceptions.OutOfMemoryError) and _PROCESS_ENDED not in str(error)


def _when_done(ref: Any, on_value: Callable[[Any], None], on_error: Callable[[BaseException], None]) -> None:
    """When the Ray result ``ref`` is ready, call one of the two functions with its value or error, in a Ray thread."""

    def notify(future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            on_value(future.result())
        else:
            on_error(error)

    ref.future().add_done_callback(notify)


def _ignore(error: BaseException) -> None:
    """Do nothing: if the actor is gone, the calls of its episodes report it."""
