"""Spider's published verdicts: python spider_peer.py ASKED.json SOURCES, in a Python with sqlparse, nltk and tqdm.

``SOURCES``: a folder with checkouts ``test-suite-sql-eval`` and ``spider``. ``ASKED``: a list of ``databases`` (the
first is the database's own), ``gold``, ``text`` and ``grader``: test-suite (Zhong et al. 2020, without values plugged
in) or spider (the evaluation of 2018, on the first database). Prints a JSON list of verdicts, a
text for a negative one with its reason. nltk cuts a query into words as
one sentence, for which it needs no data of its own.
"""

import asyncio
import contextlib
import functools
import importlib.util
import io
import json
import os
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path


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


def by_spider(evaluation: object, database: str, text: str, gold: str) -> bool | str:
    """The verdict of 2018, or what makes it negative though the rows may be right."""
    schema = evaluation.Schema(evaluation.get_schema(database))
    golden = evaluation.get_sql(schema, gold)
    try:
        parsed = evaluation.get_sql(schema, text)
    except Exception:
        return "its parser does not know the query's syntax"
    if evaluation.eval_exec_match(database, text, gold, parsed, golden):
        return True
    with contextlib.closing(sqlite3.connect(database)) as connection:
        try:
            rows, wanted = (connection.execute(query).fetchall() for query in (text, gold))
        except sqlite3.Error as error:
            return f"SQLite gets the query as it is: {error}"
    if rows != wanted and sorted(map(repr, rows)) == sorted(map(repr, wanted)):
        return "rows are always compared in their order"
    if set(rows) == set(wanted) and len(rows) != len(wanted):
        return "DISTINCT is kept, so that rows that are there twice count"
    return "columns are told apart by their expressions"


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
                    if one["grader"] == "spider":
                        verdicts.append(by_spider(evaluation, database, one["text"], one["gold"]))
                    else:
                        verdict = suite.eval_exec_match(database, one["text"], one["gold"], False, False, False)
                        verdicts.append(bool(verdict))
                except Exception as error:
                    verdicts.append(f"it raises {type(error).__name__}")
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(*sys.argv[1:])
