"""Runs untrusted queries in a read-only SQLite database.

| danger | guard |
|---|---|
| writing, attaching files, loading code, pragmas | the file is opened read-only; an authorizer knows only reads |
| endless queries | a progress handler stops them after ``time_s``; if it is never called, the kernel ends the process |
| endless results | at most ``max_rows`` rows and ``max_bytes`` bytes are fetched, and the result says that it was cut |
| one huge value, deep expressions | limits of the connection |
| sorting more than fits | temporary data in memory, under a heap limit of the process that runs the queries |

SHOW TABLES, SHOW DATABASES, SHOW COLUMNS, DESC and DESCRIBE answer as MySQL's would."""

import contextlib
import re
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from envs.intercode.sql.engine import DEFAULT_LIMITS, QueryLimits, Row, Rows, SqlError
from envs.intercode.sql.sqlite_processes import Worker, worker
from envs.intercode.sql.sqlite_worker import Answer, Query, open_read_only


class SqliteDatabase:
    """A SQLite file opened for untrusted queries, which run in a process of the shared pool, one after another."""

    def __init__(self, path: Path, described: Mapping[str, Sequence[Row]] | None = None) -> None:
        """``described`` maps tables to rows of DESCRIBE, if SQLite's own schema does not have them. Raises
        FileNotFoundError, or sqlite3.DatabaseError if the file is no database."""
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such database")
        self.name = path.stem
        self._path = path.absolute()
        self._one_query = threading.Lock()
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._closed = False
        self.tables: Mapping[str, Sequence[Row]] = described if described is not None else _described(path)
        """Table name -> rows of DESCRIBE."""

    def execute(self, query: str, limits: QueryLimits = DEFAULT_LIMITS) -> Rows | SqlError:
        """Run one statement that only reads, within limits. Returns its rows (none may match) or an SqlError if it
        fails, would write, takes too long, or the database is closed; never raises for a query."""
        answered = self._show(query)
        if answered is not None:
            return answered
        with self._one_query:
            answer = self._run(Query(str(self._path), query, limits.time_s, limits.max_rows, limits.max_bytes))
        return Rows(answer.rows, answer.cut) if answer.error is None else SqlError(answer.error, answer.timed_out)

    def close(self) -> None:
        """Stop a running statement, if any; later ones get an error. Safe to call twice and from any thread."""
        with self._lock:
            self._closed = True
            if self._worker is not None:
                self._worker.kill()

    def _run(self, query: Query) -> Answer:
        closed = Answer(error="the database was closed")
        if self._closed:
            return closed
        with worker() as mine:
            with self._lock:
                if self._closed:
                    return closed
                self._worker = mine
            try:
                answer = mine.ask(query)
            finally:
                with self._lock:  # from here on the process may be another database's
                    self._worker = None
                    mine.dead = mine.dead or self._closed
        return closed if self._closed else answer

    def _show(self, query: str) -> Rows | SqlError | None:
        """Answer a MySQL statement about the schema (SHOW, DESCRIBE); None for other statements."""
        words = query.strip().rstrip(";").strip()
        if re.fullmatch(r"show\s+(full\s+)?tables(\s+(from|in)\s+\S+)?", words, re.I):
            return Rows(tuple((name,) for name in self.tables))
        if re.fullmatch(r"show\s+(databases|schemas)", words, re.I):
            return Rows(((self.name,),))
        match = re.fullmatch(r"(?:describe|desc|show\s+(?:full\s+)?columns\s+(?:from|in))\s+(\S+)", words, re.I)
        if match is None:
            is_show = re.match(r"(show|desc|describe)\b", words, re.I)
            return SqlError(f"not supported: {words[:80]}") if is_show else None
        asked = match[1].strip("`\"'").split(".")[-1].strip("`\"'").lower()
        for name, columns in self.tables.items():
            if name.lower() == asked:
                return Rows(tuple(columns))
        return SqlError(f"no such table: {match[1]}")


def _described(path: Path) -> dict[str, tuple[Row, ...]]:
    query = "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%' order by 1"
    with contextlib.closing(open_read_only(str(path))) as connection:
        return {name: _columns(connection, name) for (name,) in connection.execute(query).fetchall()}


def _columns(connection: sqlite3.Connection, table: str) -> tuple[Row, ...]:
    info = connection.execute('select name, type, "notnull", pk, dflt_value from pragma_table_info(?)', (table,))
    return tuple(
        (name, kind.lower(), "NO" if not_null or key else "YES", "PRI" if key else "", default, "")
        for name, kind, not_null, key, default in info
    )
