"""Request router for Ray Serve: session affinity, and errors for requests whose replica has died.

Turns of a session go to the replica that has their conversation in its cache. Serve's proxies call replicas over gRPC,
which takes minutes to notice a silent host. Ray notices within seconds; then a request that no replica had accepted
goes to another one, and an answer that had begun ends with an error.

Serve sends this module by value to proxies and handles, so it imports no other module of this package."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError
from ray.serve._private.replica_result import gRPCReplicaResult
from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter
from ray.serve.request_router import RunningReplica

CHECK_S = 1.0
"""Seconds between two checks of a replica that gets no new requests while it still has some."""


class WatchedReplica(RunningReplica):
    """A replica as Serve's router knows it, whose pending requests fail as soon as Ray reports it dead."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._waiting: set[gRPCReplicaResult] = set()
        self._is_leaving = self._is_dead = False
        self._check_task: asyncio.Task[None] | None = None

    def try_send_request(self, pr: Any, with_rejection: bool) -> Any:
        """Send a request; returns Serve's pending result, which for a gRPC call also fails if the replica dies."""
        result = super().try_send_request(pr, with_rejection)
        if isinstance(result, gRPCReplicaResult):
            self._waiting.add(result)
            result.add_done_callback(lambda _: self._waiting.discard(result))
            for name in ("get_rejection_response", "_get_internal"):
                setattr(result, name, self._unless_dead(getattr(result, name)))
            if self._is_leaving:  # the request was routed before the replica left
                self.leave()
        return result

    def _unless_dead(self, ask: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        async def watched() -> Any:
            try:
                return await ask()
            except StopAsyncIteration:
                raise
            except (Exception, asyncio.CancelledError):
                task = asyncio.current_task()
                if self._is_dead and not (task and task.cancelling()):  # cancelled here, not by the client
                    raise ActorUnavailableError("the replica is gone", self.actor_id.binary()) from None
                raise

        return watched

    def give_up(self) -> None:
        """Mark the replica dead, and fail all its pending requests with ActorUnavailableError."""
        self._is_dead = True
        for result in list(self._waiting):
            result.cancel()

    def leave(self) -> None:
        """Called when the replica gets no more requests: until the last ends, check every second whether it is dead."""
        self._is_leaving = True
        if self._waiting and (self._check_task is None or self._check_task.done()):
            self._check_task = asyncio.ensure_future(self._check_until_dead())

    async def _check_until_dead(self) -> None:
        while self._waiting and not self._is_dead:
            try:
                await self.get_queue_len(deadline_s=CHECK_S)
            except ActorDiedError:
                self.give_up()
            except RayError:  # not available now
                pass
            await asyncio.sleep(CHECK_S)


class SessionRouter(ConsistentHashRouter):
    """Routes requests of one X-Session-Id to one replica, by consistent hashing; none waits for a dead replica."""

    def create_replica_wrapper(self, replica_info: Any) -> RunningReplica:
        return WatchedReplica(replica_info)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Replace the set of replicas; those that are no longer in it ``leave``."""
        before = dict(self._replicas)
        super().update_replicas(replicas)
        for number, replica in before.items():
            if number not in self._replicas and isinstance(replica, WatchedReplica):
                replica.leave()

    def on_replica_actor_died(self, replica_id: Any) -> None:
        """Called when a request finds the replica dead before Serve's controller notices. The replica gets no more
        requests; of its pending ones (over gRPC), those that it had not accepted go to another replica, the others fail
        with ActorUnavailableError."""
        replica = self._replicas.get(replica_id)
        super().on_replica_actor_died(replica_id)
        if isinstance(replica, WatchedReplica):
            replica.give_up()
