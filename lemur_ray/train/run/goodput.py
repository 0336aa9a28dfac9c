"""Goodput of a run: the share of its seconds since submission spent in useful steps, and the rest by item.

A run appends signs of life to ``goodput.jsonl``: one at submission, one at the start of an attempt, then the seconds of
the attempt so far by item. ``account`` adds them up over all attempts; its items sum to the total. Times use the
monotonic clock, also between attempts on one boot of one machine: the wall clock affects only waits between hosts."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lemur_ray.storage.append_file import AppendFile
from lemur_ray.storage.file_system import is_bucket

USEFUL = "useful"
ITEMS = {
    USEFUL: "steps taken for the first time",
    "start": "from submitting to the first worker that trains",
    "restart": "from the last sign of life of an attempt to the start of the next",
    "setup": "corpus, mesh, checkpoint or initial weights",
    "first_step": "compiling, and the first step of every attempt",
    "replayed": "steps taken again after a restart",
    "skipped": "steps whose update was skipped",
    "data": "waiting for rows",
    "checkpoint": "standing still for a checkpoint",
    "evaluation": "held-out loss",
}
"""Item -> meaning. Items that are not listed are reported too."""

Clock = Callable[[], dict[str, Any]]


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{os.uname().nodename}"


def clock() -> dict[str, Any]:
    """Current time: ``mono`` monotonic seconds, id of the ``boot`` they count from, ``wall`` seconds since 1970."""
    return {"mono": time.monotonic(), "boot": _boot(), "wall": time.time()}


def between(a: dict[str, Any], b: dict[str, Any]) -> float:
    """Seconds from clock reading ``a`` to ``b``, at least 0: by the monotonic clock if both are of one boot, else by
    the wall clock."""
    return float(max(0.0, b["mono"] - a["mono"] if a["boot"] == b["boot"] else b["wall"] - a["wall"]))


def account(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Seconds by item, their sum ``wall_s``, ``goodput`` = useful / wall, numbers of attempts and replayed steps.
    records: those of ``goodput.jsonl``: {"at": clock, "submit": true}, {"at": clock, "attempt": id}, and any number of
    {"at": clock, "attempt": id, "spent": {item: seconds since the attempt started}, "replayed_steps": n}."""
    items = dict.fromkeys(ITEMS, 0.0)
    last: dict[str, Any] | None = None
    attempts: list[str] = []
    spent: dict[str, float] = {}
    replayed_steps, replayed_before = 0, 0
    for record in records:
        attempt = record.get("attempt")
        if attempt is None:  # submitted (again): the time until a worker starts belongs to that start
            last = last or record["at"]
            continue
        if attempt not in attempts:
            if last is not None:
                items["restart" if attempts else "start"] += between(last, record["at"])
            attempts.append(attempt)
            spent, replayed_before = {}, replayed_steps
        for item, seconds in record.get("spent", {}).items():
            items[item] = items.get(item, 0.0) + seconds - spent.get(item, 0.0)
        spent = record.get("spent", spent)
        replayed_steps = replayed_before + record.get("replayed_steps", 0)
        last = record["at"]
    wall = sum(items.values())
    share = items[USEFUL] / wall if wall else 0.0
    counts = {"attempts": len(attempts), "replayed_steps": replayed_steps}
    return {"goodput": share, "wall_s": wall, **counts, "seconds": items}


def described(accounted: dict[str, Any]) -> str:
    """The result of `account` as one line for a person. accounted: with at least the item ``useful``."""
    seconds = accounted["seconds"]
    rest = sorted(((s, item) for item, s in seconds.items() if item != USEFUL and s > 0), reverse=True)
    parts = ", ".join(f"{item.replace('_', ' ')} {s:,.1f}" for s, item in rest)
    return (
        f"goodput {accounted['goodput']:.1%}: {seconds[USEFUL]:,.1f} of {accounted['wall_s']:,.1f} s in useful steps, "
        f"{accounted['attempts']} attempt(s), {accounted['replayed_steps']} step(s) replayed; the rest in s: {parts}"
    )


class Stopwatch:
    """The seconds of one attempt by item; every moment belongs to exactly one item. now: clock in seconds, by default a
    monotonic one."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._item, self._since = "setup", now()
        self.spent: dict[str, float] = {}

    def switch(self, item: str) -> str:
        """Attribute time from now on to ``item``; returns the previous item."""
        now = self._now()
        self.spent[self._item] = self.spent.get(self._item, 0.0) + now - self._since
        before, self._item, self._since = self._item, item, now
        return before

    @contextlib.contextmanager
    def during(self, item: str) -> Iterator[None]:
        """Context manager that attributes the time of its block to ``item``."""
        before = self.switch(item)
        try:
            yield
        finally:
            self.switch(before)

    def step_was(self, item: str) -> None:
        """Count as ``item`` (for example "useful" or "replayed") the time counted as ``step`` since the last call."""
        self.switch(self._item)
        self.spent[item] = self.spent.get(item, 0.0) + self.spent.pop("step", 0.0)

    def so_far(self) -> dict[str, float]:
        """Seconds by item; the current step counts as useful."""
        self.switch(self._item)
        whole = dict(self.spent)
        whole[USEFUL] = whole.get(USEFUL, 0.0) + whole.pop("step", 0.0)
        return whole


class SignsOfLife:
    """Writer of the append-only file ``goodput.jsonl`` of a run. An incomplete last line is removed at the start, and
    ``records`` has the lines before."""

    EVERY_S, REMOTE_EVERY_S = 1.0, 60.0
    """Seconds between two records on a disk, in a bucket."""

    def __init__(self, path: str, *, now: Clock = clock, check: Callable[[], None] = lambda: None) -> None:
        """path: of the file, or its URL. now: returns a clock reading. check: called before writes; raises if another
        attempt has taken the run over."""
        self._every_s, self._now = self.REMOTE_EVERY_S if is_bucket(path) else self.EVERY_S, now
        self._file = AppendFile(path, check)
        self.records: list[dict[str, Any]] = []
        for line in self._file.content.splitlines():
            with contextlib.suppress(ValueError):  # a line damaged by a power cut costs a record, not the run
                self.records.append(json.loads(line))
        self._last: float | None = None

    def write(self, **fields: Any) -> None:
        record = {"at": self._now(), **fields}
        self.records.append(record)
        self._last = record["at"]["mono"]
        self._file.write((json.dumps(record) + "\n").encode())

    def due(self) -> bool:
        return self._last is None or self._now()["mono"] - self._last >= self._every_s

    def close(self) -> None:
        """Store the last records. Raises what ``check`` raises, OSError."""
        self._file.close()
