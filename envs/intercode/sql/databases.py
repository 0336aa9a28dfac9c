"""Opens the database that a task's options name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from envs.intercode.sql.engine import Row, SqlDatabase
from envs.intercode.sql.spider_dump import CATALOGUE
from envs.intercode.sql.sqlite_engine import SqliteDatabase


def open_database(options: Mapping[str, Any]) -> SqlDatabase:
    """Open ``options["database"]``: a SQLite file, or a name on ``options["server"]`` (URL of a MySQL or MariaDB).

    Raises FileNotFoundError, sqlite3.DatabaseError, ConnectionError.
    """
    if options.get("server"):
        from envs.intercode.sql.mysql_engine import MySqlDatabase  # its driver is an extra

        return MySqlDatabase(options["server"], options["database"])
    path = Path(options["database"])
    catalogue = path.parent / CATALOGUE
    return SqliteDatabase(path, _catalogue(catalogue)[path.stem] if catalogue.is_file() else None)


@lru_cache(maxsize=4)
def _catalogue(path: Path) -> dict[str, dict[str, tuple[Row, ...]]]:
    """Database name -> table name -> rows of DESCRIBE, read from ``catalogue.json``; the last four files are cached."""
    read = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: {table: tuple(tuple(row) for row in rows) for table, rows in tables.items()}
        for name, tables in read.items()
    }
