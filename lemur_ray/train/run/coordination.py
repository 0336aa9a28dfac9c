"""Agreement among the processes of a run through JAX's coordination service: values of rank 0, and steps to save at.

Neither needs a collective. A process alone, or one without jax.distributed, agrees with itself."""

import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax._src import distributed  # the client has no public name

SHARE_S = 600.0
"""Maximum seconds to wait for a value of rank 0, which may have to wait for a slow bucket."""
_WAIT_MS = 10_000
"""Milliseconds of one request that waits for a key; a thread notices only between two of them that it must end."""
_calls = itertools.count()


def share(make: Callable[[], Any]) -> Any:
    """Call ``make`` on rank 0 alone and return its JSON value on every rank.
    All processes make the same calls in the same order. Raises the errors of ``make`` on rank 0, and JaxRuntimeError on
    the others if rank 0 has no value within SHARE_S."""
    client = distributed.global_state.client
    if client is None or jax.process_count() == 1:
        return make()
    key = f"lemur/shared/{next(_calls)}"
    if jax.process_index() == 0:
        client.key_value_set(key, json.dumps(make()))
    return json.loads(client.blocking_key_value_get(key, int(1000 * SHARE_S)))


class SaveAgreement:
    """When rank 0 requests a checkpoint, lets all processes agree on the next step that none of them has passed.
    A thread of every process waits for a request. It then holds its process before the next step and publishes the last
    step taken; rank 0 chooses the step after the highest of these. Without a request no messages are sent."""

    def __init__(self, store: Any, rank: int, world_size: int, name: str, step: int = 0) -> None:
        """store: JAX's distributed client, for ``key_value_set`` and ``blocking_key_value_get``. name: prefix of the
        keys, the same on all ranks and used once per coordination service. step: the last one that was taken."""
        self._store, self._rank, self._world_size, self._name = store, rank, world_size, name
        self._changed = threading.Condition()
        self._step, self._held, self._over = step, False, False
        self._agreed: dict[int, str] = {}
        self._requests = self._num_agreed = 0
        threading.Thread(target=self._listen, name="save agreement", daemon=True).start()

    @classmethod
    def of_workers(cls, rank: int, world_size: int, step: int) -> "SaveAgreement | None":
        """The agreement among all ``world_size`` processes of jax.distributed; None if there is only one. rank: of this
        process. step: the last one taken, the same for all. Every process must make the same calls of this method, as
        their order numbers the keys."""
        client, name = distributed.global_state.client, f"lemur/save/{next(_calls)}"
        return cls(client, rank, world_size, name, step) if world_size > 1 else None

    @property
    def takes_request(self) -> bool:
        """Whether this process may request a checkpoint: it is rank 0, and no earlier request is on its way."""
        return self._rank == 0 and self._requests == self._num_agreed

    def request(self, reason: str) -> None:
        """Request a checkpoint at the next step that no process has passed; there ``reached`` returns ``reason``. Only
        if ``takes_request``."""
        self._store.key_value_set(f"{self._name}/{self._requests}/reason", reason)
        self._requests += 1

    def reached(self, step: int) -> str | None:
        """The reason of the checkpoint agreed on for ``step``, None if there is none. Every process calls this once
        after every step; the call blocks only while a step is being agreed on."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._over)
            self._step = step
            reason = self._agreed.pop(step, None)
            self._num_agreed += reason is not None
            return reason

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _listen(self) -> None:
        for number in itertools.count():
            key = f"{self._name}/{number}"
            if (reason := self._value(f"{key}/reason")) is None:
                return
            with self._changed:
                self._held, last = True, self._step
            self._store.key_value_set(f"{key}/last/{self._rank}", str(last))
            if self._rank == 0:
                steps = [self._value(f"{key}/last/{rank}") for rank in range(self._world_size)]
                if None in steps:
                    return
                self._store.key_value_set(f"{key}/step", str(1 + max(int(step or 0) for step in steps)))
            if (step := self._value(f"{key}/step")) is None:
                return
            with self._changed:
                self._agreed[int(step)] = reason
                self._held = False
                self._changed.notify_all()

    def _value(self, key: str) -> str | None:
        """The value of ``key`` as soon as there is one; None after ``close``."""
        while not self._over:
            try:
                return self._store.blocking_key_value_get(key, _WAIT_MS)
            except jax.errors.JaxRuntimeError:  # not yet; or the service is gone, and with it soon this process
                with self._changed:
                    self._changed.wait_for(lambda: self._over, timeout=0.5)
        return None
