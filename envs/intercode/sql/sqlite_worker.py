"""The process that runs untrusted queries on SQLite, and that may be killed in the middle of any of them.

Run as a script by ``sqlite_processes``: reads queries from standard input one by one, and answers on standard output. A
progress handler stops a query that SQLite can interrupt. One that stays inside a single function, or in the planner, is
not interruptible: the kernel's timer ends the whole process a moment later. Both directions use one line of JSON
(``asked_line``, ``answer_line``), since the output of this process is untrusted data. A result is limited in its JSON
size and in its memory while it is fetched. Imports only the standard library, so that it starts fast."""

import json
import math
import signal
import sqlite3
import sys
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}
)
_FORBIDDEN_FUNCTIONS = frozenset(
    {"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit", "printf", "format"}
)
_HEAP_LIMIT_BYTES = 256 * 2**20
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 100_000, sqlite3.SQLITE_LIMIT_SQL_LENGTH: 50_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200, sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50, sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_COLUMN: 500, sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
}  # fmt: skip
_VALUE_BYTES = 32
"""Assumed bytes of memory for each value besides its text, and for each row."""
_BYTES_BYTES = 256
"""Assumed bytes of JSON around a bytes value."""
_OPERATIONS_BETWEEN_CHECKS = 5_000
_OPEN_DATABASES = 16
COLLATION = "mysql_general_ci"
GRACE_S = 0.5
"""Seconds between the end of a query's time and the end of a process that still runs it."""


class Query(NamedTuple):
    """One query. ``database`` is a file; ``max_bytes`` limits the rows both as JSON and in memory."""

    database: str
    text: str
    time_s: float
    max_rows: int
    max_bytes: int


class Answer(NamedTuple):
    """Result of a query: ``rows`` and ``cut`` if there were more, or an ``error`` and whether it was a timeout."""

    rows: tuple[tuple[Any, ...], ...] = ()
    cut: bool = False
    error: str | None = None
    timed_out: bool = False


def asked_line(query: Query) -> bytes:
    """Write a query as one line of JSON, as ``main`` reads it."""
    return json.dumps(query).encode() + b"\n"


def answer_line(
    rows: Iterable[str] = (), cut: bool = False, error: str | None = None, timed_out: bool = False
) -> bytes:
    """Write an ``Answer`` as one line of JSON. ``rows`` are results of ``row_text``."""
    rest = json.dumps([cut, error, timed_out], ensure_ascii=False).removeprefix("[")
    return f"[[{','.join(rows)}],{rest}\n".encode("utf-8", "replace")


def row_text(row: Sequence[Any]) -> str:
    """Write a row as JSON. Bytes become {"hex": ..}, infinities 1e999 or -1e999, beyond the range of floats."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=_tagged)
    except ValueError:
        endless = {math.inf: "1e999", -math.inf: "-1e999"}
        cells = (endless.get(value) or json.dumps(value, ensure_ascii=False, default=_tagged) for value in row)
        return f"[{','.join(cells)}]"


def _tagged(value: bytes) -> dict[str, str]:
    return {"hex": value.hex()}


def held_bytes(row: Sequence[Any]) -> int:
    """Approximate memory of a row in bytes; characters of a text that is not ASCII count four each."""
    size = _VALUE_BYTES
    for value in row:
        size += _VALUE_BYTES
        if isinstance(value, (str, bytes)):
            size += len(value) if value.isascii() else 4 * len(value)
        if isinstance(value, bytes):
            size += _BYTES_BYTES
    return size


def open_read_only(path: str) -> sqlite3.Connection:
    """Open a database file for reading, with MySQL's collation and CONCAT. Raises sqlite3.Error."""
    uri = f"file:{quote(path)}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    create_collation(connection)
    connection.create_function("concat", -1, _concat, deterministic=True)  # SQLite has it only from 3.44 on
    return connection


def create_collation(connection: sqlite3.Connection) -> None:
    """Register the collation of converted MySQL tables, which ignores case and trailing blanks."""
    connection.create_collation(COLLATION, _collate)


def _collate(a: str, b: str) -> int:
    a, b = a.rstrip(" ").lower(), b.rstrip(" ").lower()
    return (a > b) - (a < b)


def _concat(*parts: object) -> str | None:
    """MySQL's CONCAT: NULL if any argument is NULL."""
    return None if None in parts else "".join(str(part) for part in parts)


def guard(connection: sqlite3.Connection) -> None:
    """Restrict the connection to reading, and limit the size of values and statements."""
    connection.execute("pragma temp_store = memory")
    connection.execute("pragma trusted_schema = off")
    connection.execute(f"pragma hard_heap_limit = {_HEAP_LIMIT_BYTES}")
    for limit, value in _LIMITS.items():
        connection.setlimit(limit, value)
    connection.set_authorizer(_authorize)


def run(connection: sqlite3.Connection, query: Query) -> bytes:
    """Run one statement and return its answer as a line. Never raises for any content of a query."""
    deadline = time.monotonic() + query.time_s
    try:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _OPERATIONS_BETWEEN_CHECKS)
        return _fetch_rows(connection.execute(query.text), query)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        timed_out = time.monotonic() > deadline
        return answer_line(error="Command timed out" if timed_out else str(error), timed_out=timed_out)
    except (MemoryError, OverflowError) as error:
        return answer_line(error=str(error) or "out of memory")


def _fetch_rows(cursor: sqlite3.Cursor, query: Query) -> bytes:
    rows: list[str] = []
    written_bytes = held = 0
    for row in cursor:
        held += held_bytes(row)
        if len(rows) == query.max_rows or held > query.max_bytes:
            return answer_line(rows, cut=True)
        text = row_text(row)
        written_bytes += len(text.encode("utf-8", "replace"))
        if written_bytes > query.max_bytes:
            return answer_line(rows, cut=True)
        rows.append(text)
    return answer_line(rows)


def _authorize(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action not in _READS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def main() -> None:
    """Read queries from standard input, one a line, and write an answer for each, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then closes this process
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the parent may have ignored or blocked it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    opened: OrderedDict[str, sqlite3.Connection] = OrderedDict()
    while True:
        if not (line := sys.stdin.buffer.readline()):
            return
        query = Query(*json.loads(line))
        signal.setitimer(signal.ITIMER_REAL, query.time_s + GRACE_S)  # without a handler: the kernel ends the process
        answer = _answer(opened, query)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


def _answer(opened: OrderedDict[str, sqlite3.Connection], query: Query) -> bytes:
    try:
        if query.database not in opened:
            opened[query.database] = open_read_only(query.database)
            guard(opened[query.database])
    except sqlite3.Error as error:
        opened.pop(query.database, None)
        return answer_line(error=str(error))
    opened.move_to_end(query.database)
    if len(opened) > _OPEN_DATABASES:
        opened.popitem(last=False)[1].close()
    return run(opened[query.database], query)


if __name__ == "__main__":
    main()
