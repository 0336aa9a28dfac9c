"""Row 30: queries of a model on InterCode's SQLite engine.

It runs in processes of the harness with an authorizer, in no sandbox: no backend takes part.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from envs.intercode.sql.sqlite_engine import QueryLimits, Rows, SqlError, SqliteDatabase


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    path = tmp_path / "data.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t (a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'x'), (1, 'x'), (2, NULL);")
    connection.close()
    return SqliteDatabase(path)


SQL_ATTACKS = [
    "DROP TABLE t",
    "UPDATE t SET a = 9",
    "DELETE FROM t",
    "INSERT INTO t VALUES (5, 'z')",
    "PRAGMA writable_schema = 1",
    "ATTACH DATABASE '/tmp/evil' AS evil",
    "SELECT load_extension('/tmp/x')",
    "SELECT readfile('/etc/passwd')",
    ".shell id",
    "SELECT LOAD_FILE('/etc/passwd')",
    "SELECT 1 INTO OUTFILE '/tmp/x'",
    "SELECT SLEEP(9999)",
    "SELECT GET_LOCK('x', 9)",
    "KILL 1",
    "SET GLOBAL x = 1",
    "SELECT 1; DROP TABLE t",
    "VACUUM INTO '/tmp/x'",
]


@pytest.mark.parametrize("query", SQL_ATTACKS)
def test_row_30_sql_that_is_no_reading_is_an_error_and_changes_nothing(database: SqliteDatabase, query: str) -> None:
    before = database.execute("SELECT * FROM t ORDER BY rowid")
    assert isinstance(database.execute(query), SqlError)
    assert database.execute("SELECT * FROM t ORDER BY rowid") == before


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 1000000) "
        "SELECT count(*) FROM c a, c b, c d",
    ],
)
def test_row_30_an_endless_query_is_stopped(database: SqliteDatabase, query: str) -> None:
    started = time.monotonic()
    result = database.execute(query, QueryLimits(time_s=0.5))
    assert isinstance(result, SqlError)
    assert result.timed_out
    assert time.monotonic() - started < 30


def test_row_30_rows_are_capped_and_honest_queries_work(database: SqliteDatabase) -> None:
    many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT {}) SELECT n FROM c"
    capped = database.execute(many.format(1_000_000), QueryLimits(max_rows=10_000))
    assert isinstance(capped, Rows)
    assert capped.cut
    assert len(capped.rows) <= 10_000
    whole = database.execute(many.format(10_000))
    assert isinstance(whole, Rows)
    assert (len(whole.rows), whole.cut) == (10_000, False)
    joined = database.execute("SELECT x.a, y.b FROM t x JOIN t y ON x.a = y.a WHERE y.b IS NULL")
    assert isinstance(joined, Rows)
    assert joined.rows == ((2, None),)
