"""A worker's rows from Ray Data, with a word where they do not come.

Tasks that find no free core wait, and with them the run, for ever: so it is after a lost host, when the workers are
started again on all cores that are left. Knows nothing of what a batch holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import ray

from lemur_ray.config.mesh import FEED_CPUS

Item = TypeVar("Item")

SAY_AFTER_S, SAY_AGAIN_S = 60.0, 300.0


def explained(
    open_stream: Callable[[], Iterable[Item]], say: Callable[[str], None], after_s: float = SAY_AFTER_S
) -> Iterator[Item]:
    """The items of a stream, opened at once; says why where that, or an item, takes longer than ``after_s``."""
    waits = _Watch(say, after_s)
    with waits:
        stream = iter(open_stream())

    def items() -> Iterator[Item]:
        try:
            while True:
                with waits:
                    try:
                        item = next(stream)
                    except StopIteration:
                        return
                yield item
        finally:
            waits.over.set()

    return items()


class _Watch:
    """As a context, any number of times: who is inside waits. A thread says so when it takes long, until ``over``."""

    def __init__(self, say: Callable[[str], None], after_s: float) -> None:
        self._say, self._after_s = say, after_s
        self._since: float | None = None
        self.over = threading.Event()
        threading.Thread(target=self._watch, name="rows-watch", daemon=True).start()

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *ended: object) -> None:
        self._since = None

    def _watch(self) -> None:
        said_at = -SAY_AGAIN_S
        while not self.over.wait(self._after_s / 10):
            now, since = time.monotonic(), self._since
            if since is not None and now - since > self._after_s and now - said_at >= SAY_AGAIN_S:
                said_at = now
                self._say(why_no_rows(now - since, ray.cluster_resources(), ray.available_resources()))


def why_no_rows(waits_s: float, cluster: dict[str, Any], free: dict[str, Any]) -> str:
    """One sentence: what was found, what to do. cluster, free: as of ``ray.cluster_resources``."""
    cpus, left = cluster.get("CPU", 0.0), free.get("CPU", 0.0)
    found = f"no rows for {waits_s:.0f} s: {left:g} of {cpus:g} CPUs in the cluster are free"
    if left < FEED_CPUS:
        return (
            f"{found}, and the tasks that read the corpus need {FEED_CPUS:g} of one: the run goes on as soon as "
            "there is one; add a host, end another job (ray status, ray job list), or start again with less "
            "--mesh.cpus-per-worker"
        )
    return f"{found}, so the corpus itself is slow to read: look at its disk or bucket, and at `ray list tasks`"
