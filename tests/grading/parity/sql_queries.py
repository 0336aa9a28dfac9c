"""Spider beside the test suite's evaluation and that of 2018: golds, known wrong queries, changed and hostile ones."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envs.programs.spider.execution import graded_query, query_in
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.rows import read_rows
from tests.envs.questions import tasks_of
from tests.grading.parity.compare import Difference, Reply, ask_peer, differences

CHANGES: Mapping[str, tuple[str, str]] = {
    "DISTINCT added": (r"(?i)^select (?!distinct)(?=[\w.]+ from\b)", "SELECT DISTINCT "),
    "DISTINCT removed": (r"(?i)\bdistinct ", ""),
    "LIMIT removed": (r"(?i)\s+limit \d+", ""),
    "other direction": (r"(?i)\bdesc\b", "ASC"),
    "no direction": (r"(?i) (?:desc|asc)\b", ""),
    "ORDER BY removed": (r"(?i) order by (?:(?!limit).)*", " "),
    "WHERE removed": (r"(?i) where (?:(?!group|order|intersect|union|except).)*", " "),
    "HAVING removed": (r"(?i) having (?:(?!order|intersect).)*", " "),
    "greater for at least": (r">(?!=|\s*=)", ">="),
    "max for min": (r"(?i)\bmax\(", "min("),
    "avg for sum": (r"(?i)\b(?:sum|avg)\(", "total("),
    "count of a column": (r"(?i)count\(\*\)", "count(1)"),
    "an extra column": (r"(?i)^select (?!distinct)(?=.* from)", "SELECT 1, "),
    "columns exchanged": (r"(?i)^select ([\w.]+) ?, ?([\w.]+) (from)", r"SELECT \2, \1 \3"),
    "the first column alone": (r"(?i)^select ([\w.]+) ?, ?(?:(?! from).)+ from", r"SELECT \1 FROM"),
    "another value": (r"(=\s*['\"])([^'\"]+)(['\"])", r"\1\2x\3"),
    "another number": (r"(?<![\w'\"T])(\d+)(?![\w'\"])", "7"),
    "OR for AND": (r"(?i) and ", " OR "),
    "UNION for INTERSECT": (r"(?i) (?:intersect|except) ", " UNION "),
    "left join": (r"(?i) join ", " LEFT JOIN "),
    "operators in two parts": (r"(>|<|!)=", r"\1 ="),
    "a semicolon": (r"\Z", " ;"),
    "a comment": (r"\Z", " -- done"),
    "in capitals": (r"(?i)\bselect\b", "SELECT"),
    "a second statement": (r"\Z", "; DELETE FROM sqlite_master"),
    "an order of its own": (r"\A((?:(?!(?i:order by|intersect|union|except|limit)).)*)\Z", r"\1 ORDER BY 1 DESC"),
    "a number as a text": (r"(?i)count\(\*\)", "cast(count(*) as text)"),
    "a whole number as a decimal": (r"(?i)count\(\*\)", "count(*) * 1.0"),
}
"""Name -> (pattern, what replaces its first match in a gold query)."""
HOSTILE = {
    "nothing": "",
    "a refusal": "I do not know.",
    "no rows": "SELECT 1 WHERE 0",
    "a null": "SELECT NULL",
    "a write": "DROP TABLE sqlite_sequence",
    "a pragma": "PRAGMA database_list",
    "all rows of all tables": "SELECT * FROM sqlite_master",
    "not a query": "SELECT FROM WHERE",
    "a value": "VALUES (1)",
    "with": "WITH t AS (SELECT 1) SELECT * FROM t",
    "the word value": "SELECT value FROM value",
}


def second_file(database: Path, folder: Path) -> Path:
    """A copy of a database with two of three rows of each table, and those turned round: another file of a suite."""
    copy = folder / f"{database.stem}_second.sqlite"
    with contextlib.closing(sqlite3.connect(copy)) as made, contextlib.closing(sqlite3.connect(database)) as source:
        source.backup(made)
        names = [row[0] for row in made.execute("select name from sqlite_master where type = 'table'")]
        for name in names:
            made.execute(f'create temp table kept as select * from "{name}" where rowid % 3 != 0 order by rowid desc')
            made.execute(f'delete from "{name}"')
            made.execute(f'insert into "{name}" select * from kept')
            made.execute("drop table temp.kept")
        made.commit()
    return copy


def replies_to(row: Mapping[str, Any], task: Task, hostile: bool) -> list[Reply]:
    """Queries in reply to a question of Spider."""
    gold = row["query"]
    made = {"gold": gold} | {f"known wrong {n}": wrong for n, wrong in enumerate(row["known_wrong"])}
    for name, (pattern, put) in CHANGES.items():
        changed = re.sub(pattern, put, gold, count=1)
        if changed != gold:
            made[name] = changed
    if hostile:
        made |= {f"hostile, {name}": text for name, text in HOSTILE.items()}
    return [Reply(kind, task.id, text, {"query": gold}) for kind, text in made.items()]


def beside_spider(
    python: str, sources: Path, data: Path, folder: Path, every: int = 1
) -> list[tuple[str, list[Reply], list[Difference]]]:
    """(comparison, replies, differences) with the test suite's evaluation, on two files of each database, and with
    Spider's of 2018, on one. ``python``: one with sqlparse, nltk and tqdm; ``every``: takes one question of so many."""
    rows = list(read_rows(data / "bench/spider/dev.jsonl.gz"))
    replies: list[Reply] = []
    suites: dict[str, list[str]] = {}
    of_reply: list[list[str]] = []
    for number, (row, task) in list(enumerate(zip(rows, tasks_of("spider", data), strict=True)))[::every]:
        (database,) = task.options["reference"]["databases"]
        if row["db_id"] not in suites:
            suites[row["db_id"]] = [str(database), str(second_file(Path(database), folder))]
        own = replies_to(row, task, hostile=number % (10 * every) == 0)
        replies += own
        of_reply += [suites[row["db_id"]]] * len(own)
    differing = []
    for grader, files in (("test-suite", 2), ("spider", 1)):
        mine = [
            graded_query(query_in(reply.text), {"query": reply.more["query"], "databases": suite[:files]}).score == 1
            for reply, suite in zip(replies, of_reply, strict=True)
        ]
        asked = [
            {
                "databases": suite[:files],
                "gold": reply.more["query"],
                "text": reply.text,
                "grader": grader,
                "ours": right,
            }
            for reply, suite, right in zip(replies, of_reply, mine, strict=True)
        ]
        theirs = ask_peer(python, "spider_peer.py", asked, str(sources))
        differing.append((grader, replies, differences(grader, replies, mine, theirs, ())))
    return differing
