"""Converts a mysqldump of several databases to one SQLite file each, with MySQL's DESCRIBE of every table.

Parses mysqldump's format: one column or key per line of CREATE TABLE, one INSERT per line, backslash escapes. Text
columns get a collation that ignores case and trailing blanks, as utf8mb4_general_ci does."""

import contextlib
import gzip
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.intercode.sql.engine import Row
from envs.intercode.sql.sqlite_worker import COLLATION, create_collation
from lemur_ray.benchmarks.rows import content_digest

CATALOGUE = "catalogue.json"
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "b": "\b"}
_COLUMN = re.compile(r"  `(?P<name>[^`]+)` (?P<type>\w+(?:\([\d,]+\))?)(?P<rest>.*?),?$")
_KEY = re.compile(r"  (?P<kind>PRIMARY KEY|UNIQUE KEY|KEY)(?: `[^`]+`)? \((?P<columns>.*)\)")
_DEFAULT = re.compile(r"DEFAULT (?:'((?:[^']|'')*)'|(\S+))")
_VALUE = re.compile(
    r"'(?P<text>(?:[^'\\]|\\.|'')*)'|(?P<close>\))|(?P<end>;)|(?P<open>')|(?P<word>[^(), ;][^,)]*)", re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)|''", re.DOTALL)


@dataclass
class Table:
    """Definition of a MySQL table. ``columns``: name -> (type, rest of the line); ``keys``: (kind, column names)."""

    name: str
    columns: dict[str, tuple[str, str]] = field(default_factory=dict)
    keys: list[tuple[str, list[str]]] = field(default_factory=list)

    def described(self) -> list[Row]:
        """Rows of MySQL's DESCRIBE, one for each column: field, type, null, key, default, extra."""
        return [(name, kind, *self._properties(name, rest)) for name, (kind, rest) in self.columns.items()]

    def _properties(self, name: str, rest: str) -> tuple[str, str, str | None, str]:
        default = _DEFAULT.search(rest)
        value = None
        if default is not None and default[2] != "NULL":
            value = default[1].replace("''", "'") if default[2] is None else default[2]
        nullable = "NO" if "NOT NULL" in rest else "YES"
        return nullable, self._key(name), value, "auto_increment" if "AUTO_INCREMENT" in rest else ""

    def _key(self, name: str) -> str:
        if any(kind == "PRIMARY KEY" and name in columns for kind, columns in self.keys):
            return "PRI"
        if ("UNIQUE KEY", [name]) in self.keys:
            return "UNI"
        return "MUL" if any(columns[0] == name for _, columns in self.keys) else ""

    def create(self) -> str:
        """CREATE TABLE statement of the table for SQLite, without keys."""
        columns = ", ".join(f"{_quoted(name)} {_affinity(kind)}" for name, (kind, _) in self.columns.items())
        return f"create table {_quoted(self.name)} ({columns})"


def sqlite_databases(dump: Path, into: Path) -> Path:
    """Convert ``dump`` (gzip) to SQLite files in the folder ``into/<hash of the dump>``, atomically, unless it exists.
    Returns the folder, which also has ``catalogue.json``: database -> table -> rows of DESCRIBE. Raises
    FileNotFoundError, ValueError that names file and line, OSError if another file has the folder's name."""
    folder = into / content_digest(str(dump))
    if (folder / CATALOGUE).is_file():
        return folder
    into.mkdir(parents=True, exist_ok=True)
    half = into / f".{folder.name}.{os.getpid()}"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    try:
        catalogue = _convert(dump, half)
        (half / CATALOGUE).write_text(json.dumps(catalogue), encoding="utf-8")
        with contextlib.suppress(OSError):  # another process was faster: its folder holds the same
            half.rename(folder)
        if not (folder / CATALOGUE).is_file():
            raise OSError(f"{folder}: is in the way; remove it")
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return folder


def _convert(dump: Path, folder: Path) -> dict[str, dict[str, list[Row]]]:
    catalogue: dict[str, dict[str, list[Row]]] = {}
    connections: dict[str, sqlite3.Connection] = {}
    name, table = "", None
    try:
        for number, line in enumerate(_lines(dump), 1):
            try:
                if match := re.match(r"USE `(\w+)`", line):
                    name = match[1]
                    if name not in connections:
                        connections[name] = _new_database(folder / f"{name}.sqlite")
                        catalogue[name] = {}
                elif match := re.match(r"CREATE TABLE `([^`]+)`", line):
                    table = Table(match[1])
                elif table is not None and line.startswith(") ENGINE"):
                    connections[name].execute(table.create())
                    catalogue[name][table.name] = table.described()
                    table = None
                elif table is not None:
                    _add(table, line)
                elif match := re.match(r"INSERT INTO `([^`]+)` VALUES ", line):
                    _insert(connections[name], match[1], line[match.end() :])
            except (KeyError, ValueError, IndexError, sqlite3.Error) as error:
                raise ValueError(
                    f"{dump}, line {number}: {type(error).__name__}: {error}; expected a whole mysqldump"
                ) from error
        for connection in connections.values():
            connection.commit()
    finally:
        for connection in connections.values():
            connection.close()
    if not catalogue:
        raise ValueError(f"{dump}: no database in it; expected a mysqldump")
    return catalogue


def _lines(dump: Path) -> Iterator[str]:
    """Yield the lines of the dump. Raises ValueError if the file is no complete gzip file."""
    try:
        with gzip.open(dump, "rt", encoding="utf-8", newline="\n") as lines:
            yield from lines
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{dump}: {error}; fetch the file again") from error


def _new_database(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("pragma synchronous = off")
    create_collation(connection)
    return connection


def _add(table: Table, line: str) -> None:
    if match := _COLUMN.match(line):
        table.columns[match["name"]] = (match["type"], match["rest"])
    elif match := _KEY.match(line):
        table.keys.append((match["kind"], re.findall(r"`([^`]+)`", match["columns"])))


def _insert(connection: sqlite3.Connection, table: str, values: str) -> None:
    rows = list(_rows(values))
    places = ", ".join("?" * len(rows[0]))
    connection.executemany(f"insert into {_quoted(table)} values ({places})", rows)


def _rows(values: str) -> Iterator[list[Any]]:
    """Yield the rows of an INSERT statement's VALUES list, up to its semicolon. Raises ValueError if it has none."""
    row: list[Any] = []
    for match in _VALUE.finditer(values):
        match match.lastgroup:
            case "text":
                row.append(_ESCAPE.sub(lambda sign: _ESCAPED.get(sign[1], sign[1]) if sign[1] else "'", match["text"]))
            case "word":
                row.append(_number(match["word"]))
            case "close":
                yield row
                row = []
            case "end":
                return
            case "open":
                break
    raise ValueError("a text or an INSERT without an end")


def _number(word: str) -> int | float | None:
    if word == "NULL":
        return None
    return float(word) if "." in word or "e" in word.lower() else int(word)


def _affinity(mysql_type: str) -> str:
    if "int" in mysql_type:
        return "integer"
    if mysql_type.startswith(("double", "float", "decimal")):
        return "real"
    return f"text collate {COLLATION}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
