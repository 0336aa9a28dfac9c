"""InterCode-SQL: answer a question by querying a database, with the reward of every attempt shown ("Try Again").

Every statement is executed and graded at once; the reward is part of the observation, so this is an oracle-feedback
setting and reports must say so. The episode ends at reward 1 exactly, at ``skip``, or after ``max_steps`` turns; its
score is the best reward of any turn. Protocol: princeton-nlp/intercode c3e46d8; its public code shows a model the last
five messages besides system prompt and question (``dialogue_limit``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from envs.intercode import sql_prompts
from envs.intercode.sql_reply import parse_sql
from envs.intercode.sqlite_engine import Rows, SqliteDatabase
from envs.text_env import Opening, TextEnv, Turn
from lemur_ray.grading.sql import Row, sql_reward

DIALOGUE_LIMIT = 5


class InterCodeSQLEnv(TextEnv):
    """Options: ``database`` (path), ``question``, ``gold`` (a query), ``reward`` (iou, tau), ``handicap``, ``prompt``,
    ``database_id`` (not read: identifies the data in reports)."""

    option_names: ClassVar[frozenset[str]] = frozenset(
        {"database", "database_id", "question", "gold", "reward", "handicap", "prompt"}
    )
    default_max_steps: ClassVar[int] = 10

    def __init__(self) -> None:
        super().__init__()
        self._database: SqliteDatabase | None = None

    def begin(self, options: Mapping[str, Any]) -> Opening:
        self.close()
        for name in ("database", "question", "gold"):
            if not isinstance(options.get(name), str) or not options[name]:
                raise ValueError(f"option {name}: {options.get(name)!r}, expected a text that is not empty")
        self._reward = _one_of("reward", options.get("reward", "iou"), ("iou", "tau"))
        self._prompt = _one_of("prompt", options.get("prompt", "full"), sql_prompts.PROMPTS)
        self._question, self._gold_query = options["question"], options["gold"]
        self._best = 0.0
        self._graded = False
        self._database = SqliteDatabase(Path(options["database"]))
        gold = self._database.execute(self._gold_query)
        if not isinstance(gold, Rows) or gold.cut:
            raise ValueError(f"gold query of {self._question!r} has no full result: {gold}")
        self._gold: tuple[Row, ...] = gold.rows
        tables = {name: [column[0] for column in columns] for name, columns in self._database.tables.items()}
        system = sql_prompts.system_prompt(self._prompt, self.max_steps, tables if options.get("handicap") else None)
        return Opening(sql_prompts.opening(self._prompt, self._question), system, dialogue_limit=DIALOGUE_LIMIT)

    def respond(self, reply: str) -> Turn:
        if reply.strip().lower() == "skip":
            return Turn("Skipped.", "skip", valid=True, finished=True, reward=0.0, score=self._best)
        statement = parse_sql(reply)
        if statement is None:
            return self._turn(sql_prompts.no_code(self._prompt), None, False, 0.0)
        assert self._database is not None
        result = self._database.execute(statement)
        if isinstance(result, Rows):
            reward = 0.0 if result.cut else sql_reward(result.rows, self._gold, self._reward)
            output = sql_prompts.shown(result.rows, result.cut)
        else:
            reward = 0.0
            output = result.message if result.timed_out else f"Error executing query: {result.message}"
        observation = sql_prompts.turn(self._prompt, self._question, output, reward)
        return self._turn(observation, statement, isinstance(result, Rows), reward)

    def _turn(self, observation: str, action: str | None, valid: bool, reward: float) -> Turn:
        # The best of the rewards there were: with tau all of them may be negative.
        self._best = max(self._best, reward) if self._graded else reward
        self._graded = True
        return Turn(observation, action, valid, solved=reward == 1, reward=reward, score=self._best)

    def hints(self) -> dict[str, Any]:
        """The gold query, and a few statements about every table."""
        assert self._database is not None
        looks = ["SHOW TABLES"]
        for table in self._database.tables:
            looks += [f"DESCRIBE {table}", f"SELECT * FROM {table} LIMIT 5", f"SELECT count(*) FROM {table}"]
        return {"expert": f"```sql\n{self._gold_query}\n```", "admissible": looks}

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise ValueError(f"option {name}: {value!r}, expected one of {', '.join(known)}")
    return value
