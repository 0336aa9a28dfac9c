"""A few processes that run queries, shared by all databases of this process, started when needed and reused.

Knows nothing of SQL: a query goes in, an answer comes out, or the process is dead and the next query gets another one.
An answer is read within what the query may say, one at a time: while it is read there is more of it than what it says.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envs.intercode.sql.sqlite_worker import Answer, Query, asked_line
from lemur_ray.sandbox.untrusted_output import Bounds, UntrustedData, has_shape, untrusted_json

_MOST_AT_ONCE = 32
"""Processes at work; further queries wait for one of them."""
_ENOUGH = max(4, 2 * (os.cpu_count() or 1))
"""As many as keep the processors busy. They stay; another one is started only for a query that waits for long."""
_PATIENCE_S = 1.0
"""Most queries take milliseconds: one of the processes is free again long before another one would have started."""
_DYING_S = 5.0
_BEYOND_BYTES = 2**20
"""Of an answer, besides its rows: an error quotes a query."""
_DEPTH = 4
_SCRIPT = Path(__file__).with_name("sqlite_worker.py")


class Worker:
    """One process. ``kill`` may come from any thread."""

    def __init__(self) -> None:
        # Without the user's site and environment: nothing but the standard library is needed, and it starts faster.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.dead = False

    def ask(self, query: Query) -> Answer:
        """Run a query. Where it ends the process, the answer says so."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(asked_line(query))
            self._process.stdin.flush()
            line = self._process.stdout.readline(query.max_bytes + _BEYOND_BYTES)
            with _one_at_a_time:
                return _answer(line, query.max_bytes)
        except (BrokenPipeError, ValueError, UntrustedData):
            self.dead = True
            try:
                ended = self._process.wait(_DYING_S)
            except subprocess.TimeoutExpired:  # it lives, but what it says is no answer
                self._process.kill()
                ended = self._process.wait()
            if ended == -signal.SIGALRM:
                return Answer(error="Command timed out", timed_out=True)
            return Answer(error=f"the query ended its process ({ended})")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once; a query that runs in it is answered with an error."""
        self._process.kill()

    def close(self) -> None:
        """End the process and give its pipes back."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _answer(line: bytes, max_bytes: int) -> Answer:
    """Raises UntrustedData, ValueError."""
    if not line.endswith(b"\n"):
        raise ValueError("not a whole line")
    said = untrusted_json(line, Bounds(max_bytes + _BEYOND_BYTES, nodes=2**10 + max_bytes // 8, depth=_DEPTH))
    if not isinstance(said, list) or len(said) != 4:
        raise ValueError("not an answer")
    rows, cut, error, timed_out = said
    if not has_shape([rows, cut, timed_out], ([list], bool, bool)) or not isinstance(error, str | None):
        raise ValueError("not an answer")
    for number, row in enumerate(rows):  # each in its place: no two of all of them at once
        rows[number] = tuple(map(_value, row) if dict in map(type, row) else row)
    return Answer(tuple(rows), cut, error, timed_out)


def _value(said: Any) -> Any:
    """Raises ValueError."""
    return bytes.fromhex(said["hex"]) if has_shape(said, {"hex": str}) else said


_one_at_a_time = threading.Lock()
_idle: list[Worker] = []
_busy = 0
_changed = threading.Condition()


@contextlib.contextmanager
def worker() -> Iterator[Worker]:
    """A process of one's own for a while; waits where too many are at work."""
    global _busy
    with _changed:
        if _busy >= _ENOUGH:
            _changed.wait_for(lambda: bool(_idle), _PATIENCE_S)
        _changed.wait_for(lambda: bool(_idle) or _busy < _MOST_AT_ONCE)
        _busy += 1
        mine = _idle.pop() if _idle else None
    keep = False
    try:
        if mine is not None and not mine.alive:  # killed while nobody used it: no query's fault
            mine.close()
            mine = None
        mine = mine or Worker()
        yield mine
        keep = not mine.dead  # after an exception an answer may still be on its way: nobody else must read it
    finally:
        with _changed:
            _busy -= 1
            keep = keep and len(_idle) < _ENOUGH
            if keep and mine is not None:
                _idle.append(mine)
            _changed.notify()
        if not keep and mine is not None:
            mine.close()


@atexit.register
def close_idle() -> None:
    """End the processes that nobody uses. They would end by themselves with this one."""
    with _changed:
        while _idle:
            _idle.pop().close()
