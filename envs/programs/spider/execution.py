"""Extracts the SQL query from a reply, and compares its rows with the gold query's on every file of its database."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from envs.intercode.sql.sqlite_processes import worker
from envs.intercode.sql.sqlite_worker import Answer, Query
from envs.programs.code_in_replies import code_in
from envs.programs.spider.same_rows import as_compared, orders, same_rows
from lemur_ray.benchmarks.question import Graded

TIME_S = 10.0
TOTAL_S = 30.0
"""Maximum seconds of a reply's query on all files of its database together; a test suite has a hundred."""
_MOST_ROWS = 100_000
_MOST_BYTES = 4 * 2**20
"""Maximum bytes of a result's rows. The largest gold result needs a tenth of it."""
_BEGINS = re.compile(r"\b(?:select|with)\b", re.IGNORECASE)


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the query's rows equal the gold's on every file, else 0. RuntimeError if the gold query fails."""
    asked = options["reference"]
    query = query_in(reply, asked["begins"])
    if query is None:
        return Graded(0.0, None, "no query")
    ordered = orders(asked["query"])
    left_s = TOTAL_S
    for database in asked["databases"]:
        gold = run(database, asked["query"])
        if gold.error is not None:
            raise RuntimeError(f"{database}: the gold {asked['query']!r} cannot be run: {gold.error}")
        if gold.cut:
            raise RuntimeError(f"{database}: the gold {asked['query']!r} has more rows than are compared")
        began = time.monotonic()
        got = run(database, query, min(TIME_S, left_s))
        left_s = max(0.01, left_s - (time.monotonic() - began))
        if got.error is not None:
            return Graded(0.0, query, got.error[:200])
        if got.cut or not same_rows(got.rows, gold.rows, ordered):
            return Graded(0.0, query, f"other rows: {len(got.rows)}, expected {len(gold.rows)}")
    return Graded(1.0, query)


def query_in(reply: str, begins: str = "") -> str | None:
    """The query of a reply: in a fence, else from its first SELECT or WITH. ``begins``: the query's start in the
    prompt."""
    code = code_in(reply, r"(?i)\bselect\b").strip()
    if begins and not re.match(r"(?:select|with)\b", code, re.IGNORECASE):
        code = f"{begins} {code}"
    match = _BEGINS.search(code)
    return code[match.start() :].split("\n\n")[0].strip() if match else None


def run(database: str, query: str, time_s: float = TIME_S) -> Answer:
    with worker() as mine:
        return mine.ask(Query(database, as_compared(query), time_s, _MOST_ROWS, _MOST_BYTES))
