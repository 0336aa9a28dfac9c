"""A mysqldump as SQLite files, and what MySQL would refuse."""

import gzip
import sqlite3
from pathlib import Path

import pytest

from envs.intercode.sql.engine import Rows
from envs.intercode.sql.mysql_dialect import mysql_refuses
from envs.intercode.sql.recorded_rows import neutral, read_rows
from envs.intercode.sql.spider_dump import sqlite_databases
from envs.intercode.sql.sql_env import open_database

DUMP = r"""
-- a comment
CREATE USER 'admin'@'%' IDENTIFIED BY 'admin';
USE `zoo`;
CREATE TABLE `animals` (
  `id` int NOT NULL AUTO_INCREMENT,
  `name` varchar(20) COLLATE utf8mb4_general_ci DEFAULT 'it''s',
  `weight` decimal(5,2) DEFAULT NULL,
  `keeper` int DEFAULT NULL,
  `born` date DEFAULT NULL,
  `odd name` text,
  PRIMARY KEY (`id`),
  UNIQUE KEY `n` (`name`),
  KEY `k` (`keeper`),
  CONSTRAINT `c` FOREIGN KEY (`keeper`) REFERENCES `keepers` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
INSERT INTO `animals` VALUES (1,'Leo (the ''lion''), \"big\"\n;',190.5,1,'2001-02-03',NULL);
INSERT INTO `animals` VALUES (2,'anna ',-1.5e3,NULL,NULL,'x'),(3,NULL,0,3,NULL,'y');
CREATE TABLE `empty` (
  `a` int DEFAULT NULL
) ENGINE=InnoDB;
USE `farm`;
"""


def dump_of(tmp_path: Path, text: str = DUMP) -> Path:
    path = tmp_path / "dump.sql.gz"
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_rows_types_and_what_describe_says_survive(tmp_path: Path):
    folder = sqlite_databases(dump_of(tmp_path), tmp_path / "made")
    database = open_database({"database": str(folder / "zoo.sqlite")})
    assert database.execute("SELECT id, name, weight, keeper, born FROM animals") == Rows(
        (
            (1, "Leo (the 'lion'), \"big\"\n;", 190.5, 1, "2001-02-03"),
            (2, "anna ", -1500.0, None, None),
            (3, None, 0, 3, None),
        )
    )
    assert database.execute("SHOW TABLES") == Rows((("animals",), ("empty",)))
    described = database.execute("DESC animals")
    assert isinstance(described, Rows)
    assert described.rows[:5] == (
        ("id", "int", "NO", "PRI", None, "auto_increment"),
        ("name", "varchar(20)", "YES", "UNI", "it's", ""),
        ("weight", "decimal(5,2)", "YES", "", None, ""),
        ("keeper", "int", "YES", "MUL", None, ""),
        ("born", "date", "YES", "", None, ""),
    )
    database.close()


def test_text_is_compared_without_case_and_trailing_blanks(tmp_path: Path):
    folder = sqlite_databases(dump_of(tmp_path), tmp_path / "made")
    database = open_database({"database": str(folder / "zoo.sqlite")})
    assert database.execute("SELECT id FROM animals WHERE name = 'ANNA'") == Rows(((2,),))
    assert database.execute("SELECT concat(id, '-', born) FROM animals") == Rows((("1-2001-02-03",), (None,), (None,)))
    database.close()


def test_the_folder_is_made_once_and_never_by_halves(tmp_path: Path):
    dump = dump_of(tmp_path)
    folder = sqlite_databases(dump, tmp_path / "made")
    before = (folder / "zoo.sqlite").stat().st_mtime_ns
    assert sqlite_databases(dump, tmp_path / "made") == folder
    assert (folder / "zoo.sqlite").stat().st_mtime_ns == before
    broken = dump_of(tmp_path, DUMP.replace("'y');", "'y'"))
    with pytest.raises(ValueError, match=r"dump.sql.gz, line \d+: .*expected a whole mysqldump"):
        sqlite_databases(broken, tmp_path / "made")
    assert [path.name for path in (tmp_path / "made").iterdir()] == [folder.name]


def test_what_is_no_dump_is_said(tmp_path: Path):
    with pytest.raises(ValueError, match="no database in it"):
        sqlite_databases(dump_of(tmp_path, "hello"), tmp_path / "made")
    (tmp_path / "torn.gz").write_bytes(gzip.compress(DUMP.encode())[:-30])
    with pytest.raises(ValueError, match="fetch the file again"):
        sqlite_databases(tmp_path / "torn.gz", tmp_path / "made")


@pytest.mark.parametrize(
    ("query", "refused"),
    [
        ("SELECT count(*) FROM (SELECT a FROM t)", "alias"),
        ("SELECT count(*) FROM (SELECT a FROM t) WHERE 1", "alias"),
        ("SELECT count(*) FROM (SELECT a FROM t) AS s", None),
        ("SELECT count(*) FROM (SELECT a FROM t) s JOIN (SELECT b FROM u) x ON s.a = x.b", None),
        ("SELECT COUNT (*) FROM t", "blank"),
        ("SELECT count(*) , AVG (x) FROM t", None),
        ("SELECT 'COUNT (*)', \"FROM (SELECT 1)\" FROM t", None),
        ("SELECT avg(Attendance) FROM SHOW", "show"),
        ("SELECT avg(Attendance) FROM `show`", None),
        ("SELECT t.rank FROM t", None),
        ("SELECT RANK() OVER (ORDER BY a) FROM t", None),
        ("SELECT rank FROM t", "rank"),
        ("SHOW TABLES", None),
        ("SELECT a FROM t WHERE b IN (SELECT b FROM u ORDER BY c LIMIT 1)", "LIMIT"),
        ("SELECT a FROM t WHERE b IN (SELECT b FROM (SELECT b FROM u LIMIT 1) x)", None),
        ("SELECT a FROM t WHERE b = (SELECT b FROM u LIMIT 1)", None),
        ("SELECT a FROM t WHERE b NOT IN (SELECT b, count(c) FROM u)", "1 column"),
        ("SELECT a FROM t WHERE (a, b) IN (SELECT b, c FROM u)", None),
        ("SELECT a FROM t WHERE b IN (SELECT max(b, c) FROM u)", None),
        ("((((", None),
        (")))) FROM (SELECT", None),
        ("", None),
    ],
)
def test_what_mysql_refuses_is_refused_and_nothing_else(query: str, refused: str | None):
    said = mysql_refuses(query)
    assert said is None if refused is None else said is not None and refused in said


def test_rows_are_read_from_their_text_and_nothing_is_evaluated():
    text = "[(1, 'a', None, Decimal('2.50'), datetime.date(2020, 1, 2), -3.5), (datetime.timedelta(seconds=5), b'x')]"
    rows = read_rows(text)
    assert rows is not None
    assert str(rows) == text
    assert neutral(rows)[0] == (1.0, "a", None, 2.5, "2020-01-02", -3.5)
    for wrong in ("Error executing query: no", "[1, 2]", "[(open('/etc/passwd'),)]", "[(1", "[(f'{1}',)]", "(" * 9999):
        assert read_rows(wrong) is None


def test_spiders_dump_becomes_twenty_databases_with_eighty_one_tables(data_dir: Path, tmp_path: Path):
    folder = sqlite_databases(data_dir / "intercode/sql/ic_spider_dbs.sql.gz", tmp_path)
    files = sorted(folder.glob("*.sqlite"))
    assert len(files) == 20
    tables = 0
    for file in files:
        connection = sqlite3.connect(file)
        tables += len(connection.execute("select name from sqlite_master").fetchall())
        connection.close()
    assert tables == 81
