"""Spider's published verdicts: python spider_peer.py ASKED.json SOURCES, in a Python with sqlparse, nltk and tqdm.

``SOURCES``: a folder with checkouts ``test-suite-sql-eval`` and ``spider``. ``ASKED``: a list of ``databases`` (the
first is the database's own), ``gold``, ``text``, ``ours`` (this project's verdict) and ``grader``: test-suite (Zhong et
al. 2020, without values plugged in) or spider (the evaluation of 2018, on the first database). Prints a JSON list of
verdict and reason: the rule of the published program without which its verdict would be ours, established by running it
without that rule; empty if the verdicts are equal or no rule is the reason. A query that the parser of 2018 does not
know has that reason if the test suite's evaluation gives our verdict. nltk cuts a query into words as one sentence, for
which it needs no data of its own.
"""

import asyncio
import contextlib
import functools
import importlib.util
import io
import itertools
import json
import os
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

PARSER = "there its parser does not know the query's syntax"
BLANKS = "there SQLite gets operators in two parts as they are"
DISTINCT = "there DISTINCT is kept, so that rows that are there twice count"
COLUMNS = "there columns are known by their expressions, also without rows: equal ones are one column, as is *"
ORDER = "there rows are always compared in their order"
SORTED = "there the cells of a row are sorted by text and type first: 4.0 may sort elsewhere than 4"


def module(folder: Path, name: str) -> object:
    """A module of a checkout, whose neighbours have the same names as those of the other checkout."""
    sys.path.insert(0, str(folder))
    for known in ("process_sql", "evaluation", "parse"):
        sys.modules.pop(known, None)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, folder / f"{name}.py"))
    module.__spec__.loader.exec_module(module)
    sys.path.pop(0)
    return module


def placed(databases: list[str], root: Path, known: dict) -> str:
    """Path of the first database in a folder with all of them, as a test suite packs them."""
    key = tuple(databases)
    if key not in known:
        folder = root / str(len(known))
        folder.mkdir()
        for number, file in enumerate(databases):
            shutil.copy(file, folder / f"{number}.sqlite")
        known[key] = str(folder / "0.sqlite")
    return known[key]


class Rows:
    """Stands for the module sqlite3 of the evaluation of 2018: rows in an order of their own."""

    def connect(self, database: str) -> "Rows":
        self.cursor_of_file = sqlite3.connect(database).cursor()
        return self

    def cursor(self) -> "Rows":
        return self

    def execute(self, query: str) -> None:
        self.cursor_of_file.execute(query)

    def fetchall(self) -> list:
        return sorted(self.cursor_of_file.fetchall(), key=repr)


def by_places(database: str, query: str) -> dict:
    """What the parser gives, if it named columns by their places instead of their expressions; none without rows."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        first = connection.execute(query).fetchone() or ()
    return {"select": (False, [(0, (0, (place,), None)) for place in range(len(first))])}


def verdict_without(rules: tuple, suite: object, evaluation: object, database: str, text: str, gold: str) -> bool:
    """The verdict of 2018 if the rules of these names did not exist. Raises errors of its parser and of SQLite."""
    schema = evaluation.Schema(evaluation.get_schema(database))
    parsed, golden = (evaluation.get_sql(schema, query) for query in (text, gold))
    if BLANKS in rules:
        text, gold = suite.postprocess(text), suite.postprocess(gold)
    if DISTINCT in rules:
        text, gold = suite.remove_distinct(text), suite.remove_distinct(gold)
    if COLUMNS in rules:
        parsed, golden = by_places(database, text), by_places(database, gold)
    evaluation.sqlite3 = Rows() if ORDER in rules else sqlite3
    return bool(evaluation.eval_exec_match(database, text, gold, parsed, golden))


def by_spider(suite: object, evaluation: object, database: str, text: str, gold: str, ours: bool) -> tuple[bool, str]:
    """The verdict of 2018. If it is not ``ours``, also the fewest of its rules without which it would be."""
    asked = (suite, evaluation, database, text, gold)
    try:
        verdict = verdict_without((), *asked)
    except Exception:
        in_suite, why = by_suite(suite, database, text, gold, ours)
        return False, PARSER if ours and (in_suite or why) else ""
    rules = (BLANKS, DISTINCT, COLUMNS, *([] if "order by" in gold.lower() else [ORDER]))
    for count in range(1, len(rules) + 1) if verdict != ours else ():
        for switched_off in itertools.combinations(rules, count):
            with contextlib.suppress(Exception):
                if verdict_without(switched_off, *asked) == ours:
                    return verdict, "; ".join(switched_off)
    return verdict, ""


def by_suite(suite: object, database: str, text: str, gold: str, ours: bool) -> tuple[bool, str]:
    """The test suite's verdict. If it is not ``ours``, also the rule without which it would be."""
    verdict = bool(suite.eval_exec_match(database, text, gold, False, False, False))
    if verdict == ours:
        return verdict, ""
    as_published, suite.unorder_row = suite.unorder_row, lambda row: tuple(sorted(row, key=value_of))
    without = bool(suite.eval_exec_match(database, text, gold, False, False, False))
    suite.unorder_row = as_published
    return verdict, SORTED if without == ours else ""


def value_of(cell: object) -> str:
    """What a cell is sorted by if 4 and 4.0 are one value."""
    return str(float(cell) if isinstance(cell, int) else cell)


def main(path: str, sources: str) -> None:
    import nltk

    nltk.word_tokenize = functools.partial(nltk.word_tokenize, preserve_line=True)
    suite = module(Path(sources) / "test-suite-sql-eval", "exec_eval")
    evaluation = module(Path(sources) / "spider", "evaluation")
    asyncio.set_event_loop(asyncio.new_event_loop())
    verdicts, known = [], {}
    with tempfile.TemporaryDirectory() as root:
        os.chdir(root)
        for one in json.loads(Path(path).read_text()):
            database = placed(one["databases"], Path(root), known)
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    asked = (database, one["text"], one["gold"], one["ours"])
                    if one["grader"] == "spider":
                        verdicts.append(by_spider(suite, evaluation, *asked))
                    else:
                        verdicts.append(by_suite(suite, *asked))
                except Exception as error:
                    verdicts.append((False, f"it raises {type(error).__name__}"))
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(*sys.argv[1:])
