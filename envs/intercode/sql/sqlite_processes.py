"""A pool of processes that run queries, shared by all databases of this process and started on demand.

If a query kills its process, its answer is an error, and the next query gets another process. Answers are size-limited,
and parsed one at a time, because parsing takes more memory than the text."""

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
"""Maximum number of processes. Further queries wait for one."""
_ENOUGH = max(4, 2 * (os.cpu_count() or 1))
"""Number of processes that are kept when idle: enough for all processors. More are started only after a wait."""
_PATIENCE_S = 1.0
"""Seconds a query waits for one of the kept processes before another is started. Most queries take milliseconds."""
_DYING_S = 5.0
_BEYOND_BYTES = 2**20
"""Maximum bytes of an answer besides its rows: an error quotes the query."""
_DEPTH = 4
_SCRIPT = Path(__file__).with_name("sqlite_worker.py")


class Worker:
    """A process that runs queries, one at a time; started by the constructor. ``dead``: it must not be used again."""

    def __init__(self) -> None:
        # Without the user's site and environment: nothing but the standard library is needed, and it starts faster.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.dead = False

    def ask(self, query: Query) -> Answer:
        """Run a query and wait for its answer. If the process ends or sends anything else, the answer is an error."""
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
        """Kill the process, from any thread; ``ask`` answers its running query with an error."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _answer(line: bytes, max_bytes: int) -> Answer:
    """Parse a line that a process wrote. Raises UntrustedData or ValueError if it is too large or no answer."""
    if not line.endswith(b"\n"):
        raise ValueError("not a whole line")
    answer = untrusted_json(line, Bounds(max_bytes + _BEYOND_BYTES, nodes=2**10 + max_bytes // 8, depth=_DEPTH))
    if not isinstance(answer, list) or len(answer) != 4:
        raise ValueError("not an answer")
    rows, cut, error, timed_out = answer
    if not has_shape([rows, cut, timed_out], ([list], bool, bool)) or not isinstance(error, str | None):
        raise ValueError("not an answer")
    for number, row in enumerate(rows):  # each in its place: no two of all of them at once
        rows[number] = tuple(map(_value, row) if dict in map(type, row) else row)
    return Answer(tuple(rows), cut, error, timed_out)


def _value(value: Any) -> Any:
    """Decode one value of a row: {"hex": ..} to bytes, others as they are. Raises ValueError for bad hex."""
    return bytes.fromhex(value["hex"]) if has_shape(value, {"hex": str}) else value


_one_at_a_time = threading.Lock()
_idle: list[Worker] = []
_busy = 0
_changed = threading.Condition()


@contextlib.contextmanager
def worker() -> Iterator[Worker]:
    """Context manager: lend a process exclusively, started if none is idle; waits while the maximum (32) is in use."""
    global _busy
    with _changed:
        if _busy >= _ENOUGH:
            _changed.wait_for(lambda: bool(_idle), _PATIENCE_S)
        _changed.wait_for(lambda: bool(_idle) or _busy < _MOST_AT_ONCE)
        _busy += 1
        mine = _idle.pop() if _idle else None
    keep = False
    try:
        if mine is not None and not mine.alive:  # killed while idle: no query's fault
            mine.close()
            mine = None
        mine = mine or Worker()
        yield mine
        keep = not mine.dead  # after an exception an answer may still arrive, which the next query must not read
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
    """Kill all idle processes of the pool; registered to run when this process exits."""
    with _changed:
        while _idle:
            _idle.pop().close()
