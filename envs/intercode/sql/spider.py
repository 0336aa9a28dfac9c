"""Tasks of InterCode-SQL as published: 1034 questions of Spider about 20 databases.

The data (CC BY-SA 4.0) is not part of this project: ``DATA/intercode/sql``."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.intercode.sql.mysql_dialect import mysql_refuses
from envs.intercode.sql.prompts import Prompt
from envs.intercode.sql.sample_tasks import BENCHMARK, ENV_ID, MAX_TURNS
from envs.intercode.sql.spider_dump import CATALOGUE, dump_id, sqlite_databases
from envs.outside_data import required
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.grading.sql import Reward
from lemur_ray.host.home import lemur_home
from lemur_ray.host.json_files import read_json
from lemur_ray.storage.bundles.host_path import HostPath

log = logging.getLogger(__name__)

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
    questions = _questions(required(data, "intercode/sql/ic_spider_dev.json.gz"))
    dump = required(data, "intercode/sql/ic_spider_dbs.sql.gz")
    folder = None if server else sqlite_databases(dump, scratch or lemur_home() / "intercode" / "spider")
    known = set(json.loads((folder / CATALOGUE).read_text(encoding="utf-8"))) if folder else None
    shared: dict[str, Any] = {"database_id": dump_id(dump), "max_steps": MAX_TURNS, "reward": reward}
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


def _questions(path: Path) -> list[dict[str, str]]:
    entries = read_json(path)
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        wrong = not isinstance(entry, dict) or any(
            not isinstance(entry.get(key), str) or not entry[key] for key in ("db", "gold", "query", "hardness")
        )
        if wrong:
            raise ValueError(f"{path}, task {number}: expected an object with the texts db, gold, query and hardness")
    return entries
