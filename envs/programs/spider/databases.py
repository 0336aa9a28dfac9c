"""Spider's databases: SQLite files of the user, or one built from schema.sql and cached if there is none."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lemur_ray.benchmarks.rows import files_digest, find_file, read_text
from lemur_ray.host.home import lemur_home

HOMES = ("spider", "spider/spider", "spider/spider_data", "spider_data", "bench/spider")
NAMES = ("dev.json", "dev.jsonl", "validation-00000-of-00001.parquet")
TRAIN = ("train_spider.json", "train_spider.jsonl", "train.json", "train-00000-of-00001.parquet")
"""Names of the training set, whose databases are other ones than those of dev."""
DEV = [f"{home}/{name}" for home in HOMES for name in NAMES]
_SET = "Spider: spider.zip of its authors (dev.json, tables.json, database); CC BY-SA 4.0"
SOURCE = f"{_SET}; python jobs/fetch_data.py spider"
SHOWN_ROWS = 3


def home_of(data: Path) -> Path:
    """Folder below ``data`` with dev.json and databases. Raises FileNotFoundError with the command to fetch them."""
    return find_file(data, DEV, SOURCE).parent


def files_of(home: Path, name: str) -> list[Path]:
    """All SQLite files of the database ``name``, its own first; a test suite has several. Without one it is built from
    schema.sql and cached in LEMUR_HOME. ``home``: see ``home_of``. Raises FileNotFoundError if there is no schema.sql
    either."""
    own_folder, beside = home / "database" / name, home.parent / "database" / name
    folders = [
        beside if beside.is_dir() and not own_folder.is_dir() else own_folder,
        home / "test_suite_database" / name,
        home.parent / "test_suite_database" / name,
    ]
    files = [file for folder in folders if folder.is_dir() for file in sorted(folder.glob("*.sqlite"))]
    own = [file for file in files if file.stem == name]
    if files:
        return [*own[:1], *(file for file in files if file not in own[:1])]
    return [_build_database(find_file(folders[0], ["schema.sql"], _SET), name)]


def _build_database(script: Path, name: str) -> Path:
    target = lemur_home() / "cache" / "spider" / f"{name}-{files_digest(script)}.sqlite"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / "made.sqlite"
            with contextlib.closing(sqlite3.connect(made)) as connection:
                connection.executescript(read_text(script))
            os.replace(made, target)
    return target


def described(file: Path) -> str:
    """Every table's CREATE statement and first three rows, as a text for prompts."""
    with contextlib.closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        tables = connection.execute(
            "select name, sql from sqlite_master where type = 'table' and name not like 'sqlite_%' order by rowid"
        ).fetchall()
        return "\n\n".join(_table(connection, name, sql) for name, sql in tables)


def _table(connection: sqlite3.Connection, name: str, sql: str) -> str:
    cursor = connection.execute(f'select * from "{name}" limit {SHOWN_ROWS}')
    names: Sequence[str] = [column[0] for column in cursor.description]
    rows = ["\t".join(names), *("\t".join(str(value)[:60] for value in row) for row in cursor)]
    lines = "\n".join(rows)
    return f"{sql.strip()};\n/* its first rows:\n{lines}\n*/"
