"""Tasks of InterCode-SQL on the sample database, which need no downloaded data."""

from pathlib import Path

from envs.intercode.sql.prompts import PROMPTS, Prompt
from envs.intercode.sql.sample_database import build_sample, content_hash
from envs.intercode.sql.sample_questions import ask_all
from envs.intercode.sql.sqlite_engine import Rows, SqliteDatabase
from lemur_ray.agents.trajectory import Task
from lemur_ray.grading.sql import Reward
from lemur_ray.host.home import lemur_home
from lemur_ray.storage.bundles.host_path import HostPath

BENCHMARK = "intercode/sql"
ENV_ID = "envs:lemur/InterCodeSQL-v0"
MAX_TURNS = 10
MIN_TASKS = 40


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
    source = SqliteDatabase(path)
    try:
        questions = ask_all(lambda query: _rows(source, query))
    finally:
        source.close()
    if len(questions) < MIN_TASKS:
        raise ValueError(f"{path}: its data answers {len(questions)} questions, expected at least {MIN_TASKS}")
    shared = {"database": HostPath(path), "database_id": content_hash(path), "max_steps": MAX_TURNS}
    shared |= {"reward": reward, "handicap": handicap, "prompt": prompt}
    return [
        Task(
            BENCHMARK,
            f"sample-{q.id}",
            ENV_ID,
            q.hardness,
            {**shared, "question": q.question, "gold": q.gold},
            MAX_TURNS,
        )
        for q in questions[:limit]
    ]


def _rows(source: SqliteDatabase, query: str) -> list[tuple[object, ...]]:
    result = source.execute(query)
    if not isinstance(result, Rows) or result.cut:
        raise ValueError(f"{source.name}: {query}: {result}")
    return list(result.rows)
