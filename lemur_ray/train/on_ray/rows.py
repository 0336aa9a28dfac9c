"""A worker's stream of rows from Ray Data, with a log line when rows do not arrive.

Ray Data tasks that get no free core wait for ever, and the run with them: this happens after a lost host, when the
restarted workers hold every remaining core. Knows nothing of the content of a batch."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import ray

from lemur_ray.config.mesh import FEED_CPUS

Item = TypeVar("Item")

REPORT_AFTER_S, REPORT_AGAIN_S = 60.0, 300.0
"""Seconds without an item until the first log line, and between two of them."""


def stream_with_stall_reports(
    open_stream: Callable[[], Iterable[Item]], say: Callable[[str], None], after_s: float = REPORT_AFTER_S
) -> Iterator[Item]:
    """Open a stream now, and return an iterator over its items. A thread logs by ``say`` why nothing comes if opening
    it or waiting for an item takes over ``after_s`` seconds, again every 300 s. open_stream: returns the stream."""
    waits = _StallReporter(say, after_s)
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


class _StallReporter:
    """Reusable context around a wait; a thread logs waits of more than ``after_s`` seconds, until ``over`` is set."""

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
        reported_at = -REPORT_AGAIN_S
        while not self.over.wait(self._after_s / 10):
            now, since = time.monotonic(), self._since
            if since is not None and now - since > self._after_s and now - reported_at >= REPORT_AGAIN_S:
                reported_at = now
                self._say(why_no_rows(now - since, ray.cluster_resources(), ray.available_resources()))


def why_no_rows(waits_s: float, cluster: dict[str, Any], free: dict[str, Any]) -> str:
    """Log line for rows that do not arrive: cause and advice. cluster, free: Ray's total and available resources.
    waits_s: seconds without a row."""
    cpus, left = cluster.get("CPU", 0.0), free.get("CPU", 0.0)
    state = f"no rows for {waits_s:.0f} s: {left:g} of {cpus:g} CPUs in the cluster are free"
    if left < FEED_CPUS:
        return (
            f"{state}, and the tasks that read the corpus need {FEED_CPUS:g} of one: the run goes on as soon as "
            "there is one; add a host, end another job (ray status, ray job list), or start again with less "
            "--mesh.cpus-per-worker"
        )
    return f"{state}, so the corpus itself is slow to read: look at its disk or bucket, and at `ray list tasks`"
