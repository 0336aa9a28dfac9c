"""Extracts the SQL query from a reply, and compares its rows with the gold query's on every file of its database."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from envs.intercode.sql.sqlite_processes import worker
from envs.intercode.sql.sqlite_worker import Answer, Query
from envs.programs.code_in_replies import code_in, has_fence
from envs.programs.spider.same_rows import as_compared, orders, same_rows
from lemur_ray.benchmarks.question import FLEXIBLE, STRICT, Graded

TIME_S = 10.0
TOTAL_S = 30.0
"""Maximum seconds of a reply's query on all files of its database together; a test suite has a hundred."""
_MOST_ROWS = 100_000
_MOST_BYTES = 4 * 2**20
"""Maximum bytes of a result's rows. The largest gold result needs a tenth of it."""
_CTE = r"with\s+(?:recursive\s+)?[\w\"`\[\]]+\s*(?:\([^)]*\)\s*)?as\s+(?:(?:not\s+)?materialized\s+)?\("
_BEGINS = re.compile(rf"\b(?:select\b|{_CTE})", re.IGNORECASE)
_SET_APART = re.compile(
    rf"(?:^[ \t>]*(?:\w+[ \t]*:[ \t]*)?|[`:]\s*)(?P<query>select\b|{_CTE})", re.IGNORECASE | re.MULTILINE
)
"""The start of a query at the start of a line, or after a colon or a backtick."""
_CLAUSES = (
    *("FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT", "JOIN", "LEFT"),
    *("RIGHT", "INNER", "OUTER", "CROSS", "NATURAL", "ON", "AND", "OR", "SELECT", "WITH", "AS", "USING", "CASE"),
)
_FOLLOWS = re.compile(rf"\s*(?:{'|'.join(_CLAUSES)}|{'|'.join(_CLAUSES).lower()})\b|\s*(?:[(),]|--)")
"""The start of a paragraph that continues a query: a clause in capitals or in lower case, or punctuation."""
_SENTENCE = re.compile(r"\s*[A-Z][a-z']*[\s,:]+(?:[a-z']+[\s,.:;]+){2}")
"""The start of a line that is a sentence."""


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the query in a reply returns the gold query's rows on every file of the database, else 0.
    ``scores`` also has the strict reading, of replies that are a query alone. Raises RuntimeError if the gold fails."""
    asked = options["reference"]
    query, strict = query_in(reply, asked["begins"]), query_alone(reply, asked["begins"])
    graded = graded_query(query, asked)
    other = 0.0 if strict is None else graded.score if strict == query else graded_query(strict, asked).score
    return replace(graded, scores={STRICT: other, FLEXIBLE: graded.score})


def graded_query(query: str | None, asked: Mapping[str, Any]) -> Graded:
    """Score 1 if a query returns the gold query's rows on every file, else 0 with the reason. ``asked``: the task's
    reference, with the gold query and the database files. Raises RuntimeError if the gold query fails."""
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
    """Find the SQL query of a reply as a person would: in a code fence, else the last one on lines of its own, else
    from the first SELECT; it ends at its semicolon or before the next sentence. None if there is none. ``begins``: the
    start of the query that the prompt gave, put before a continuation."""
    code = _begun(_without_json(code_in(reply, r"(?i)\bselect\b").strip()), begins)
    apart = [match.start("query") for match in _SET_APART.finditer(code) if _is_query(code[match.start("query") :])]
    lines = [place for place in apart if not _goes_on(code[:place])]
    loud = re.search(r"\bSELECT\b", code)
    match = loud or _BEGINS.search(code)
    places = lines[-1:] if not has_fence(reply) else lines[:1]
    start = places[0] if places else match.start() if match else None
    return None if start is None else _up_to_end(code[start:], is_inline=code[:start].endswith("`"))


def _without_json(code: str) -> str:
    """The query in a JSON object with one; any other text unchanged."""
    try:
        fields = json.loads(code)
    except (ValueError, RecursionError):
        return code
    texts = [text for text in fields.values() if isinstance(text, str)] if isinstance(fields, dict) else []
    queries = [text for text in texts if re.match(rf"\s*{_BEGINS.pattern}", text, re.IGNORECASE)]
    return queries[0].strip() if len(queries) == 1 else code


def query_alone(reply: str, begins: str = "") -> str | None:
    """The query of a reply that is a query and nothing else, as the prompt asks; None for any other reply. ``begins``:
    the start of the query that the prompt gave."""
    code = _begun(reply.strip(), begins)
    return code if re.match(r"(?:select|with)\b", code, re.IGNORECASE) else None


def _begun(code: str, begins: str) -> str:
    """A query after the beginning that the prompt gave, unless it has one of its own."""
    return f"{begins} {code}" if begins and not re.match(r"(?:select|with)\b", code, re.IGNORECASE) else code


def _is_query(text: str) -> bool:
    """Whether a text that begins with SELECT or WITH is SQL: no sentence, and no quoted keyword alone."""
    if re.match(r"select\s*(?:`|$)", text, re.IGNORECASE):
        return False
    return bool(re.match(_CTE, text, re.IGNORECASE)) or not re.match(
        r"select\s+(?:the|all|only|each|every|those|a|an|from\s+the)\s+[a-z]+\s+(?:of|that|whose|with|from|in|and|for|by)\b",
        text,
    )


def _goes_on(before: str) -> bool:
    """Whether a query is open at the end of a text, so that a SELECT after it is part of that query."""
    query = before.rpartition(";")[2]
    open_brackets = query.count("(") > query.count(")")
    compound = re.search(r"\b(?:union(?:\s+all)?|intersect|except)\s*$|\)\s*$", query, re.IGNORECASE)
    return bool(_BEGINS.search(query)) and (open_brackets or bool(compound))


def _up_to_end(text: str, is_inline: bool) -> str:
    """A query that begins a text, up to its end: a backtick, a semicolon, or a paragraph or line of prose."""
    if is_inline:
        return text.partition("`")[0].strip()
    outside = re.sub(
        r"--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*'|\"[^\"]*\"", lambda match: "x" * len(match[0]), text, flags=re.DOTALL
    )
    end = outside.find(";")
    text = text if end < 0 else text[: end + 1]
    kept: list[str] = []
    for paragraph in re.split(r"(\n[ \t]*\n)", text):
        if kept and paragraph.strip() and not _FOLLOWS.match(paragraph) and not _goes_on("".join(kept)):
            break
        kept.append(paragraph)
    lines = "".join(kept).split("\n")
    prose = next((n for n, line in enumerate(lines) if n and _SENTENCE.match(line)), len(lines))
    query = "\n".join(lines[:prose]).strip().removesuffix("```").strip()
    if query.count("`") % 2:
        query = query.removesuffix("`").strip()
    return re.sub(r"(?<=['\"\w)`])\.$", "", query)


def run(database: str, query: str, time_s: float = TIME_S) -> Answer:
    """Run a query on the SQLite file ``database``, which it can only read, for at most ``time_s`` seconds. The answer
    has the rows (``cut`` if there were more than are compared), or an ``error`` for an invalid query or after the time
    limit."""
    with worker() as mine:
        return mine.ask(Query(database, as_compared(query), time_s, _MOST_ROWS, _MOST_BYTES))
