"""Tasks of InterCode-SQL: the 1034 published questions of Spider about 20 databases, and those of the sample database.

Spider's data (CC BY-SA 4.0) is not part of this project: ``DATA/intercode/sql``. The sample database needs no data."""

import json
import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from envs.intercode.sql.mysql_dialect import mysql_refuses
from envs.intercode.sql.prompts import PROMPTS, Prompt
from envs.intercode.sql.sample_database import build_sample
from envs.intercode.sql.sample_questions import ask_all
from envs.intercode.sql.spider_dump import CATALOGUE, sqlite_databases
from envs.intercode.sql.sqlite_engine import Rows, SqliteDatabase
from envs.intercode.tasks import read_entries
from envs.outside_data import required
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.benchmarks.rows import content_digest
from lemur_ray.grading.sql import Reward
from lemur_ray.host.home import lemur_home
from lemur_ray.storage.bundles.host_path import HostPath

log = logging.getLogger(__name__)

BENCHMARK = "intercode/sql"
ENV_ID = "envs:lemur/InterCodeSQL-v0"
MAX_TURNS = 10
MIN_SAMPLE_TASKS = 40
EMPTY_DATABASE = "wta_1"
"""A database whose tables are empty in the dump: any query that returns nothing, or counts 0, is right (62 tasks)."""


def load_spider_tasks(
    data: Path,
    *,
    scratch: Path | None = None,
    reward: Reward = "iou",
    handicap: bool = False,
    prompt: Prompt = "full",
    server: str = "",
    compat: bool = False,
) -> list[Task]:
    """The tasks, with the databases as SQLite files under ``scratch`` (default: LEMUR_HOME), or on a MySQL ``server``.
    Six tasks whose golds MySQL rejects are left out. With ``compat`` they stay, with no rows as their answer.
    ``reward``: iou or tau; ``handicap``: show all tables. Raises FileNotFoundError with the command that fetches the
    data, ValueError that names file and place."""
    fields = ("db", "gold", "query", "hardness")
    questions = read_entries(
        required(data, "intercode/sql/ic_spider_dev.json.gz"), "the texts db, gold, query and hardness", fields,
        lambda one: all(map(one.get, fields)),
    )  # fmt: skip
    dump = required(data, "intercode/sql/ic_spider_dbs.sql.gz")
    folder = None if server else sqlite_databases(dump, scratch or lemur_home() / "intercode" / "spider")
    known = set(json.loads((folder / CATALOGUE).read_text(encoding="utf-8"))) if folder else None
    shared: dict[str, Any] = {"database_id": content_digest(str(dump)), "max_steps": MAX_TURNS, "reward": reward}
    shared |= {"handicap": handicap, "prompt": prompt, "compat": compat, "server": server}
    tasks, left_out = [], []
    for index, entry in enumerate(questions):
        refused = mysql_refuses(entry["gold"]) is not None
        if refused and not compat:
            left_out.append(index)
            continue
        name = entry["db"]
        if known is not None and name not in known:
            raise ValueError(f"{dump}: no database {name!r}, which task {index} asks for; fetch the file again")
        database = HostPath(folder / f"{name}.sqlite", folder) if folder else name
        asked = {"question": entry["query"], "gold": entry["gold"], "gold_refused": refused, "database": database}
        options = {**shared, **asked}
        tasks.append(Task(BENCHMARK, f"spider-{name}-{index}", ENV_ID, entry["hardness"], options, MAX_TURNS))
    if left_out:
        log.warning("%d tasks are left out, their golds are no MySQL: %s", len(left_out), left_out)
    return tasks


def spider_notes(episodes: Sequence[Episode]) -> dict[str, Any]:
    """{``success_rate_without_wta_1``: share solved of the scored Spider tasks on other databases than the one with
    empty tables}; {} if there is no such task."""
    scored = [e for e in episodes if e.outcome.scored and e.key.task.startswith("spider-")]
    rest = [e for e in scored if not e.key.task.startswith(f"spider-{EMPTY_DATABASE}-")]
    if not rest:
        return {}
    solved = sum(e.outcome is Outcome.SOLVED for e in rest)
    return {f"success_rate_without_{EMPTY_DATABASE}": solved / len(rest)}


def load_sql_tasks(
    limit: int | None = None,
    *,
    reward: Reward = "iou",
    handicap: bool = False,
    prompt: Prompt = "full",
    database: Path | None = None,
) -> list[Task]:
    """The first ``limit`` (None: all) questions about the sample database, which is built if necessary. ``reward``: iou
    or tau; ``handicap``: show all tables. Raises ValueError for a limit below 1, an unknown prompt, or a machine whose
    data answers too few questions."""
    if limit is not None and limit < 1:
        raise ValueError(f"{limit} tasks of {BENCHMARK} asked for: an evaluation needs at least one")
    if prompt not in PROMPTS:
        raise ValueError(f"prompt {prompt!r}: expected one of {', '.join(PROMPTS)}")
    path = build_sample(database or lemur_home() / "intercode" / "sample.sqlite")
    with closing(SqliteDatabase(path)) as source:
        questions = ask_all(lambda query: _rows(source, query))
    if len(questions) < MIN_SAMPLE_TASKS:
        raise ValueError(f"{path}: its data answers {len(questions)} questions, expected at least {MIN_SAMPLE_TASKS}")
    shared = {"database": HostPath(path), "database_id": content_digest(str(path)), "max_steps": MAX_TURNS}
    shared |= {"reward": reward, "handicap": handicap, "prompt": prompt}
    tasks = []
    for asked in questions[:limit]:
        options = {**shared, "question": asked.question, "gold": asked.gold}
        tasks.append(Task(BENCHMARK, f"sample-{asked.id}", ENV_ID, asked.hardness, options, MAX_TURNS))
    return tasks


def _rows(source: SqliteDatabase, query: str) -> list[tuple[object, ...]]:
    result = source.execute(query)
    if not isinstance(result, Rows) or result.cut:
        raise ValueError(f"{source.name}: {query}: {result}")
    return list(result.rows)
