"""InterCode-SQL: answer a question by querying a database, with the reward of every attempt shown ("Try Again").

Every statement is executed and graded at once. Since observations contain the reward, this is an oracle-feedback
setting, and reports must say so. The episode ends at reward 1 exactly, at ``skip``, or after ``max_steps`` turns; its
score is the best reward of any turn. Protocol: princeton-nlp/intercode c3e46d8; its public code shows a model the last
five messages besides system prompt and question (``dialogue_limit``)."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from envs.intercode.recording import recorded_episode
from envs.intercode.sql import prompts
from envs.intercode.sql.engine import QueryLimits, Row, Rows, SqlDatabase, SqlError
from envs.intercode.sql.mysql_dialect import mysql_refuses
from envs.intercode.sql.recorded_rows import neutral, read_rows
from envs.intercode.sql.reply import parse_sql
from envs.intercode.sql.spider_dump import CATALOGUE
from envs.intercode.sql.sqlite_engine import SqliteDatabase
from envs.text_env import Opening, TextEnv, Turn, check_texts, one_of
from lemur_ray.agents.recording import RecordedTurn
from lemur_ray.grading.sql import sql_reward

DIALOGUE_LIMIT = 5
LIMITS = QueryLimits(time_s=10.0)


class InterCodeSQLEnv(TextEnv):
    """InterCode-SQL as an environment. Options of ``reset``:

    - ``question``, ``gold`` (a query), ``gold_refused`` (MySQL, upstream's engine, rejects it: its answer is no rows);
    - ``database`` (a SQLite file, or a name on ``server``), ``server`` (URL of a MySQL or MariaDB, default none),
      ``database_id`` (not read: identifies the data in reports);
    - ``reward`` (iou, tau), ``handicap`` (show all tables and columns), ``prompt`` (full, brief);
    - ``compat``: queries that MySQL would refuse fail on SQLite, too;
    - ``recorded``: replies are the actions of a recording, used without parsing, an empty one for a turn without code.
      "strict" runs them; "grading" grades the results in episode ``index`` of the file ``recording`` instead."""

    option_names: ClassVar[frozenset[str]] = frozenset(
        {"database", "server", "database_id", "question", "gold", "gold_refused", "reward", "handicap", "prompt"}
        | {"compat", "recorded", "recording", "index"}
    )
    default_max_steps: ClassVar[int] = 10

    def begin(self, options: Mapping[str, Any]) -> Opening:
        check_texts(options, "database", "question", "gold")
        self._reward = one_of("reward", options.get("reward", "iou"), ("iou", "tau"))
        self._prompt = one_of("prompt", options.get("prompt", "full"), prompts.PROMPTS)
        self._recorded = one_of("recorded", options.get("recorded", ""), ("", "strict", "grading"))
        self._question, self._gold_query = options["question"], options["gold"]
        self._mysql_rules = bool(options.get("compat")) and not options.get("server")
        self._mixed_engines = self._recorded == "grading" and not options.get("server")
        self._best = 0.0
        self._graded = False
        self._past: list[RecordedTurn] = []
        if self._recorded == "grading":
            self._past = list(reversed(recorded_episode(options).turns))
        self._database = self.opened.enter_context(closing(open_database(options)))
        self._gold = () if options.get("gold_refused") else self._answer(self._gold_query)
        tables = None
        if options.get("handicap"):
            tables = {name: [column[0] for column in columns] for name, columns in self._database.tables.items()}
        system = prompts.system_prompt(self._prompt, self.max_steps, tables)
        return Opening(prompts.opening(self._prompt, self._question), system, dialogue_limit=DIALOGUE_LIMIT)

    def respond(self, reply: str) -> Turn:
        recorded = self._past.pop() if self._past else None
        if reply.strip().lower() == "skip":
            return Turn("Skipped.", "skip", valid=True, finished=True, reward=0.0, score=self._best)
        statement = (reply or None) if self._recorded else parse_sql(reply)
        if statement is None:
            return self._turn(prompts.NO_CODE[self._prompt], None, False, 0.0)
        if recorded is not None:
            observation = recorded.observation or ""
            rows = read_rows(observation)
            reward = 0.0 if rows is None else self._reward_of(rows)
            return self._turn(observation, statement, rows is not None, reward)
        result = self._run(statement)
        if isinstance(result, Rows):
            reward = 0.0 if result.cut else self._reward_of(result.rows)
            output = prompts.shown(result.rows, result.cut)
        else:
            reward = 0.0
            output = result.message if result.timed_out else f"Error executing query: {result.message}"
        observation = prompts.turn(self._prompt, self._question, output, reward)
        return self._turn(observation, statement, isinstance(result, Rows), reward)

    def _run(self, statement: str) -> Rows | SqlError:
        refused = mysql_refuses(statement) if self._mysql_rules else None
        return self._database.execute(statement, LIMITS) if refused is None else SqlError(refused)

    def _answer(self, gold: str) -> Sequence[Row]:
        """Rows of the gold query, to which a model's are compared. Raises ValueError if it fails or is cut."""
        result = self._database.execute(gold, LIMITS)
        if not isinstance(result, Rows) or result.cut:
            raise ValueError(f"gold query of {self._question!r} has no full result: {result}")
        return neutral(result.rows) if self._mixed_engines else result.rows

    def _reward_of(self, rows: Sequence[Row]) -> float:
        return sql_reward(neutral(rows) if self._mixed_engines else rows, self._gold, self._reward)

    def _turn(self, observation: str, action: str | None, valid: bool, reward: float) -> Turn:
        # Not the maximum with an initial 0: with tau all rewards may be negative.
        self._best = max(self._best, reward) if self._graded else reward
        self._graded = True
        return Turn(observation, action, valid, solved=reward == 1, reward=reward, score=self._best)

    def hints(self) -> dict[str, Any]:
        """For scripted policies: the gold query as the expert's reply, and admissible statements about each table."""
        looks = ["SHOW TABLES"]
        for table in self._database.tables:
            looks += [f"DESCRIBE {table}", f"SELECT * FROM {table} LIMIT 5", f"SELECT count(*) FROM {table}"]
        return {"expert": f"```sql\n{self._gold_query}\n```", "admissible": looks}


def open_database(options: Mapping[str, Any]) -> SqlDatabase:
    """Open ``options["database"]``: a SQLite file, or a name on ``options["server"]`` (URL of a MySQL or MariaDB).
    Raises FileNotFoundError without the file, sqlite3.DatabaseError if it is no database, ConnectionError if the server
    does not answer."""
    if options.get("server"):
        from envs.intercode.sql.mysql_engine import MySqlDatabase  # its driver is an extra

        return MySqlDatabase(options["server"], options["database"])
    path = Path(options["database"])
    catalogue = path.parent / CATALOGUE
    return SqliteDatabase(path, _catalogue(catalogue)[path.stem] if catalogue.is_file() else None)


@lru_cache(maxsize=4)
def _catalogue(path: Path) -> dict[str, dict[str, tuple[Row, ...]]]:
    """Database name -> table name -> rows of DESCRIBE, read from ``catalogue.json``; the last four files are cached."""
    read = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: {table: tuple(tuple(row) for row in rows) for table, rows in tables.items()}
        for name, tables in read.items()
    }
