"""Prepares a MySQL or MariaDB server for Spider's databases: loads the dump, verifies it, and makes a reading account.

Use a dedicated server: the dump replaces tables in databases of 20 names. The URL's account loads them and makes
another, ``lemur_reader``, that can only read and is the only one environments use."""

import gzip
import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from envs.intercode.sql.mysql_engine import ServerUrl, driver, message_of
from envs.intercode.sql.recorded_rows import neutral
from envs.intercode.sql.spider_dump import CATALOGUE, sqlite_databases
from envs.outside_data import required
from lemur_ray.host.home import lemur_home

READER = "lemur_reader"
log = logging.getLogger(__name__)


def reader_url(engine: str, data: Path, scratch: Path | None = None) -> str:
    """URL of an account that may read Spider's databases on the server with URL ``engine``; loads them if necessary.
    ``data``: folder with the dump; ``scratch``: where it is converted (default: LEMUR_HOME). Raises ValueError for a
    server with other settings or data, ConnectionError, FileNotFoundError without the dump."""
    url = ServerUrl.parse(engine)
    dump = required(data, "intercode/sql/ic_spider_dbs.sql.gz")
    expected = sqlite_databases(dump, scratch or lemur_home() / "intercode" / "spider")
    with closing(url.connect()) as admin:
        _check_settings(admin)
        if _first_difference(admin, expected):
            _load(admin, dump)
            if difference := _first_difference(admin, expected):
                raise ValueError(f"{dump} was loaded, and still {difference}; use a server that nothing else uses")
        return str(_reader_account(admin, url, expected))


def _check_settings(admin: Any) -> None:
    names = _all(admin, "SELECT @@lower_case_table_names")[0][0]
    if int(names) == 0:
        raise ValueError(
            "the server tells AIRPORTS from airports, and the recorded queries do not: "
            "start it on an empty data folder with --lower-case-table-names=1"
        )


def _first_difference(admin: Any, expected: Path) -> str:
    """Description of the first difference between the server and the SQLite files made of the dump; empty if none."""
    there = {(database, table) for database, table in _all(admin, _TABLES)}
    for database, tables in json.loads((expected / CATALOGUE).read_text(encoding="utf-8")).items():
        with closing(sqlite3.connect(f"file:{expected / database}.sqlite?mode=ro", uri=True)) as reference:
            for table in tables:
                if (database.lower(), table.lower()) not in there:
                    return f"table {database}.{table} is not there"
                wanted = sorted(map(repr, neutral(reference.execute(f'select * from "{table}"').fetchall())))
                current = sorted(map(repr, neutral(_all(admin, f"SELECT * FROM `{database}`.`{table}`"))))
                if wanted != current:
                    return f"table {database}.{table} has other rows"
    return ""


_TABLES = "SELECT lower(table_schema), lower(table_name) FROM information_schema.tables"


def _load(admin: Any, dump: Path) -> None:
    log.warning("loading %s into the server", dump)
    _all(admin, "SET SESSION foreign_key_checks = 0")  # a half loaded database can be loaded again
    for number, statement in _statements(dump):
        try:
            _all(admin, statement)
        except driver().err.MySQLError as error:
            raise ValueError(f"{dump}, line {number}: {message_of(error)}; may this account create tables?") from error


def _statements(dump: Path) -> Iterator[tuple[int, str]]:
    """Yield (number of its last line, text) of each statement in the dump, without those that create accounts."""
    gathered: list[str] = []
    with gzip.open(dump, "rt", encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if not gathered and (not line.strip() or line.startswith("--")):
                continue
            gathered.append(line)
            if line.rstrip().endswith(";"):
                statement = "".join(gathered).strip().rstrip(";")
                gathered = []
                if not statement.startswith(("CREATE USER", "GRANT", "FLUSH")):
                    yield number, statement


def _reader_account(admin: Any, url: ServerUrl, expected: Path) -> ServerUrl:
    """Create the reading account and return its URL; without the right to do so, log a warning and return ``url``."""
    password = hashlib.sha256(f"{READER}:{url.password}".encode()).hexdigest()[:32]
    databases = json.loads((expected / CATALOGUE).read_text(encoding="utf-8"))
    try:
        for host in ("%", "localhost"):
            _all(admin, f"CREATE USER IF NOT EXISTS '{READER}'@'{host}' IDENTIFIED BY '{password}'")
            _all(admin, f"ALTER USER '{READER}'@'{host}' IDENTIFIED BY '{password}'")
            for database in databases:
                _all(admin, f"GRANT SELECT ON `{database}`.* TO '{READER}'@'{host}'")
    except driver().err.MySQLError as error:
        log.warning(
            "%s may not make an account that only reads (%s): queries run as %s itself, in read-only transactions",
            *(url.user, message_of(error), url.user),
        )
        return url
    return ServerUrl(READER, password, url.host, url.port, url.unix_socket)


def _all(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())
