"""A read-only SQLite database that untrusted queries may be sent to.

| danger | guard |
|---|---|
| writing, attaching files, loading code, pragmas | the file is opened read-only; an authorizer knows only reads |
| endless queries | a progress handler stops the statement after ``Limits.time_s`` |
| endless results | at most ``max_rows`` rows and ``max_bytes`` bytes are fetched, and the result says that it was cut |
| one huge value, deep expressions | limits of the connection |
| sorting more than fits | temporary data in memory, under a heap limit of the whole process |

SHOW TABLES, SHOW DATABASES, SHOW COLUMNS, DESC and DESCRIBE answer as MySQL's would. Knows no task and no reward.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

Row = tuple[Any, ...]

_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}
)
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"})
_HEAP_LIMIT_BYTES = 512 * 2**20
_OPERATIONS_BETWEEN_CHECKS = 5_000


@dataclass(frozen=True)
class Limits:
    """What one query may cost."""

    time_s: float = 10.0
    max_rows: int = 10_000
    max_bytes: int = 2_000_000


@dataclass(frozen=True)
class Rows:
    """What a query returned. ``cut``: there was more than the limits allow."""

    rows: tuple[Row, ...]
    cut: bool = False


@dataclass(frozen=True)
class SqlError:
    """Why a query returned nothing."""

    message: str
    timed_out: bool = False


class SqliteDatabase:
    """One open database. Statements of several threads run one after another; ``close`` may come from any thread."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises FileNotFoundError, or sqlite3.DatabaseError where the file is no database."""
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such database")
        self.name = path.stem
        self._clock = clock
        self._lock = threading.Lock()  # closing a connection that another thread is using ends the process
        self._closing = threading.Event()
        uri = f"file:{quote(str(path))}?mode=ro&immutable=1"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
        self.tables = {name: self._columns(name) for name in self._table_names()}
        """Table name -> rows as DESCRIBE gives them."""
        self._guard()

    def execute(self, query: str, limits: Limits = Limits()) -> Rows | SqlError:
        """Run one statement. Never raises for anything a query can contain."""
        answered = self._show(query)
        if answered is not None:
            return answered
        with self._lock:
            return self._run(query, limits)

    def close(self) -> None:
        """Stop a running statement, if there is one, and give everything back. Safe to call twice."""
        self._closing.set()
        with self._lock:
            self._connection.close()

    def _run(self, query: str, limits: Limits) -> Rows | SqlError:
        deadline = self._clock() + limits.time_s
        try:
            self._connection.set_progress_handler(
                lambda: self._closing.is_set() or self._clock() > deadline, _OPERATIONS_BETWEEN_CHECKS
            )
            return _fetched(self._connection.execute(query), limits)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            if self._closing.is_set():
                return SqlError("the database was closed")
            if self._clock() > deadline:
                return SqlError("Command timed out", timed_out=True)
            return SqlError(str(error))
        except (MemoryError, OverflowError) as error:
            return SqlError(str(error) or "out of memory")

    def _table_names(self) -> list[str]:
        query = "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%' order by 1"
        return [name for (name,) in self._connection.execute(query)]

    def _columns(self, table: str) -> tuple[Row, ...]:
        info = self._connection.execute(
            'select name, type, "notnull", pk, dflt_value from pragma_table_info(?)', (table,)
        )
        return tuple(
            (name, kind.lower(), "NO" if not_null or key else "YES", "PRI" if key else "", default, "")
            for name, kind, not_null, key, default in info
        )

    def _guard(self) -> None:
        connection = self._connection
        connection.execute("pragma temp_store = memory")
        connection.execute("pragma trusted_schema = off")
        connection.execute(f"pragma hard_heap_limit = {_HEAP_LIMIT_BYTES}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 50_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000)
        connection.set_authorizer(_authorize)

    def _show(self, query: str) -> Rows | SqlError | None:
        """The answer of a MySQL statement about the schema; None for any other statement."""
        words = query.strip().rstrip(";").strip()
        if re.fullmatch(r"show\s+(full\s+)?tables(\s+(from|in)\s+\S+)?", words, re.I):
            return Rows(tuple((name,) for name in self.tables))
        if re.fullmatch(r"show\s+(databases|schemas)", words, re.I):
            return Rows(((self.name,),))
        match = re.fullmatch(r"(?:describe|desc|show\s+(?:full\s+)?columns\s+(?:from|in))\s+(\S+)", words, re.I)
        if match is None:
            return (
                SqlError(f"not supported: {words[:80]}") if re.match(r"(show|desc|describe)\b", words, re.I) else None
            )
        asked = match[1].strip("`\"'").split(".")[-1].strip("`\"'").lower()
        for name, columns in self.tables.items():
            if name.lower() == asked:
                return Rows(columns)
        return SqlError(f"no such table: {match[1]}")


def _fetched(cursor: sqlite3.Cursor, limits: Limits) -> Rows:
    rows: list[Row] = []
    size = 0
    for row in cursor:
        size += sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)
        if len(rows) == limits.max_rows or size > limits.max_bytes:
            return Rows(tuple(rows), cut=True)
        rows.append(row)
    return Rows(tuple(rows))


def _authorize(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action not in _READS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
