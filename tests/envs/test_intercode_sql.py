"""InterCode-SQL on the sample database: parser, engine, environment, tasks."""

import re
import sqlite3
import time
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.intercode.sql import prompts as sql_prompts
from envs.intercode.sql.reply import parse_sql
from envs.intercode.sql.sample_database import build_sample
from envs.intercode.sql.sample_questions import LEVELS, templates
from envs.intercode.sql.sqlite_engine import Rows, SqliteDatabase
from envs.intercode.sql.tasks import load_sql_tasks
from lemur_ray.agents.baselines.scripted import ExpertPolicy, RandomPolicy
from lemur_ray.agents.messages import ChatReply, ChatRequest, Sampling
from lemur_ray.agents.trajectory import EpisodeKey, Outcome, Task
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from tests.rollout.scripted_policy import ScriptedPolicy

STATUS = """\
Package: zlib1g
Status: install ok installed
Priority: required
Section: libs
Installed-Size: 168
Maintainer: Mark Brown <broonie@example.org>
Architecture: amd64
Version: 1:1.2.13
Depends: libc6 (>= 2.14)
Description: compression library - runtime
 A long text: with a colon.

Package: libc6
Status: install ok installed
Section: libs
Installed-Size: unknown
Maintainer: GNU Libc Maintainers
Architecture: amd64
Version: 2.36
Pre-Depends: debconf | debconf-2.0
Depends: libgcc-s1:any, libcrypt1 (>= 1)
Description: GNU C Library

Package: gone
Status: deinstall ok config-files
Version: 1
"""


def play(task: Task, policy: Any) -> Attempt:
    spec = EpisodeSpec(EpisodeKey(task.benchmark, task.id, policy.name, "r"), task, Sampling())
    return run_episode(spec, policy, clock=time.monotonic)


# The parser


@pytest.mark.parametrize(
    ("reply", "statement"),
    [
        ("```sql\nSELECT name\nFROM t;\n```", "SELECT name FROM t"),
        ("```\nSELECT 1\n```", "SELECT 1"),
        ("```SELECT 1```", "SELECT 1"),
        ("```mysql\nshow tables```", "show tables"),
        ("First: ```sql SELECT 1``` then ```sql SELECT 2```", "SELECT 1"),
        ("I would say SELECT  a,\n\tb FROM t; and then DROP TABLE t", "SELECT a, b FROM t"),
        ("Let me show you what I select: SELECT 1", "SELECT 1"),
        ("select 1", "select 1"),
        ("DESC t", "DESC t"),
        ("DESCRIBE my\\_table;", "DESCRIBE my_table"),
        ("```sql\nSELECT 1", "SELECT 1"),
        ("```sql\nWITH a AS (SELECT 1) SELECT * FROM a```", None),
        ("```sql\nDROP TABLE t```", None),
        ("```python\nprint('SELECT')```", None),
        ("The answer is 42.", None),
        ("", None),
        ("```sql```", None),
        ("selection of describes", None),
        (";SELECT 1", "SELECT 1"),
    ],
)
def test_the_statement_in_a_reply_is_found_by_the_rule(reply: str, statement: str | None):
    assert parse_sql(reply) == statement


@given(reply=st.text(alphabet=st.sampled_from("SELECT selctdfrom`;\\_\n 1'\ud800☃"), max_size=200))
def test_the_parser_takes_any_text_and_finds_statements_only(reply: str):
    statement = parse_sql(reply)
    assert statement is None or re.match(r"(show|select|describe|desc)\b", statement, re.I)
    assert statement is None or ";" not in statement


def test_two_hundred_kilobytes_of_reply_are_parsed_at_once():
    started = time.thread_time()
    for piece in ("`", "```", "SELECT ", "x", "```sql "):
        parse_sql(piece * (200_000 // len(piece)))
    assert time.thread_time() - started < 5


# The sample database and its questions


def test_the_same_machine_gives_the_same_bytes(sample: Path, tmp_path: Path):
    assert build_sample(tmp_path / "again.sqlite").read_bytes() == sample.read_bytes()


def test_packages_are_read_as_dpkg_wrote_them(tmp_path: Path):
    status, stdlib = tmp_path / "status", tmp_path / "lib"
    status.write_text(STATUS)
    stdlib.mkdir()
    (stdlib / "small.py").write_text('"""A module.\n\nMore."""\nasync def f(a, /, b, *, c): "said"\nclass K: pass\n')
    (stdlib / "broken.py").write_text("print 'old'\n")
    connection = sqlite3.connect(build_sample(tmp_path / "s.sqlite", status, stdlib))
    query = "select p.name, section, installed_kb, m.name, email_domain from packages p join maintainers m"
    assert connection.execute(query + " using (maintainer_id) order by 1").fetchall() == [
        ("libc6", "libs", None, "GNU Libc Maintainers", None),
        ("zlib1g", "libs", 168, "Mark Brown", "example.org"),
    ]
    assert set(connection.execute("select * from dependencies")) == {
        ("zlib1g", "depends", "libc6"),
        ("libc6", "pre-depends", "debconf"),
        ("libc6", "depends", "libgcc-s1"),
        ("libc6", "depends", "libcrypt1"),
    }
    assert connection.execute("select * from modules").fetchall() == [("small", 5, 1, 1, "A module.")]
    assert connection.execute("select * from functions").fetchall() == [("small", "f", 4, 3, 1)]
    connection.close()


def test_a_machine_without_dpkg_is_told_what_is_missing(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="Debian or Ubuntu"):
        build_sample(tmp_path / "s.sqlite", tmp_path / "no-status")
    assert list(tmp_path.iterdir()) == []


def test_there_are_at_least_forty_tasks_in_four_levels_each_with_an_answer(sample: Path, database: SqliteDatabase):
    tasks = load_sql_tasks(database=sample)
    assert len(tasks) >= 40
    assert {task.category for task in tasks[:4]} == set(LEVELS)
    assert len({task.id for task in tasks}) == len(tasks)
    for task in tasks:
        gold = database.execute(task.options["gold"])
        assert isinstance(gold, Rows)
        assert gold.rows
        assert not gold.cut
        assert "{" not in task.options["question"] + task.options["gold"]
    assert len({template.name for template in templates()}) == len(templates())


def test_a_limit_takes_the_first_and_zero_is_an_error(sample: Path):
    assert load_sql_tasks(3, database=sample) == load_sql_tasks(database=sample)[:3]
    with pytest.raises(ValueError, match="at least one"):
        load_sql_tasks(0, database=sample)
    with pytest.raises(ValueError, match="full, brief"):
        load_sql_tasks(1, prompt="short", database=sample)  # type: ignore[arg-type]


# The environment


@pytest.mark.parametrize("reward", ["iou", "tau"])
def test_the_gold_query_solves_every_task_in_one_turn(sample: Path, reward: Any):
    for task in load_sql_tasks(reward=reward, database=sample):
        attempt = play(task, ExpertPolicy())
        assert (attempt.outcome, attempt.score, len(attempt.trajectory.steps)) == (Outcome.SOLVED, 1.0, 1), task.id


def test_looking_around_solves_nothing_and_ends_at_the_turn_limit(sample: Path):
    attempts = [play(task, RandomPolicy()) for task in load_sql_tasks(8, database=sample)]
    assert all(len(a.trajectory.steps) == 10 or a.outcome is Outcome.SOLVED for a in attempts)
    assert sum(a.outcome is Outcome.TURN_LIMIT for a in attempts) >= 7


def task_of(sample: Path, gold: str, **options: Any) -> Task:
    options = {"database": str(sample), "question": "Q?", "gold": gold, "max_steps": 10, **options}
    return Task("intercode/sql", "t", "envs:lemur/InterCodeSQL-v0", "easy", options, 10)


def test_every_turn_has_its_reward_and_the_best_one_is_the_score(sample: Path):
    task = task_of(sample, "SELECT 1 UNION ALL SELECT 2")
    attempt = play(task, ScriptedPolicy(["SELECT 1", "no idea", "SELECT missing", "SELECT 3", "skip"]))
    assert [s.reward for s in attempt.trajectory.steps] == [0.5, 0.0, 0.0, 0.0, 0.0]
    assert [s.valid for s in attempt.trajectory.steps] == [True, False, False, True, True]
    assert [s.action for s in attempt.trajectory.steps] == ["SELECT 1", None, "SELECT missing", "SELECT 3", "skip"]
    assert (attempt.outcome, attempt.score) == (Outcome.FAILED, 0.5)
    observations = [s.observation for s in attempt.trajectory.steps]
    assert "Output: [(1,)]" in observations[0]
    assert "Reward: 0.5" in observations[0]
    assert "No SQL statement" in observations[1]
    assert "Error executing query: no such column: missing" in observations[2]


def test_a_reversed_order_is_negative_by_tau_and_solved_by_iou(sample: Path):
    gold, reply = "SELECT 1 UNION ALL SELECT 2", ScriptedPolicy(["SELECT 2 UNION ALL SELECT 1"])
    assert play(task_of(sample, gold, reward="iou"), reply).outcome is Outcome.SOLVED
    attempt = play(task_of(sample, gold, reward="tau"), reply)
    assert (attempt.outcome, attempt.score) == (Outcome.TURN_LIMIT, -1.0)


def test_an_empty_answer_to_an_empty_gold_is_solved(sample: Path):
    task = task_of(sample, "SELECT name FROM packages WHERE 0")
    assert play(task, ScriptedPolicy(["SELECT 1 WHERE 0"])).outcome is Outcome.SOLVED


def test_the_handicap_shows_tables_and_columns_and_nothing_else_does(sample: Path):
    def system(**options: Any) -> str:
        env = gymnasium.make("envs:lemur/InterCodeSQL-v0")
        _, info = env.reset(options={**task_of(sample, "SELECT 1").options, **options})
        env.close()
        return str(info["system"])

    assert "packages(name, version, section" in system(handicap=True)
    assert "packages" not in system()
    assert "10 turns" in system()
    assert len(system(prompt="brief")) < 40
    assert "packages(name" in system(prompt="brief", handicap=True)


def test_long_results_are_cut_for_the_model_and_say_how_many_rows_there_are():
    assert sql_prompts.shown((), False) == "No output"
    assert sql_prompts.shown(((1,),), False) == "[(1,)]"
    many = sql_prompts.shown(tuple((i,) for i in range(60)), False)
    assert many.endswith("(49,)] (60 rows)")
    assert len(sql_prompts.shown((("x" * 5000,),), False)) < 1100
    assert sql_prompts.shown(((1,),) * 60, True).endswith("(60 or more rows)")


def test_a_model_sees_the_system_prompt_the_question_and_the_last_two_turns(sample: Path):
    asked: list[ChatRequest] = []

    class Model:
        name = "model"

        def reply(self, request: ChatRequest) -> ChatReply:
            asked.append(request)
            return ChatReply(f"SELECT {len(asked)}")

    play(task_of(sample, "SELECT 'never'"), Model())
    assert [len(request.messages) for request in asked] == [2, 4, 6, 6, 6, 6, 6, 6, 6, 6]
    assert [m.role for m in asked[-1].messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert asked[-1].messages[1].content.startswith("Question: Q?")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gold": ""}, "option gold"),
        ({"gold": "SELECT missing"}, "no such column"),
        ({"reward": "f1"}, "expected one of iou, tau"),
        ({"prompt": "long"}, "expected one of full, brief"),
        ({"database": "/nowhere/x.sqlite"}, "no such database"),
        ({"databse": "x"}, "did you mean 'database'"),
    ],
)
def test_bad_options_are_the_environments_fault_and_named(sample: Path, options: dict[str, Any], message: str):
    attempt = play(task_of(sample, **{"gold": "SELECT 1", **options}), ExpertPolicy())
    assert (attempt.outcome, attempt.score) == (Outcome.ENV_ERROR, None)
    assert message in attempt.detail


def test_gymnasium_finds_nothing_wrong_with_the_environment(sample: Path):
    env = gymnasium.make("envs:lemur/InterCodeSQL-v0")
    options = task_of(sample, "SELECT 1").options
    observation, info = env.reset(seed=1, options=options)
    assert env.observation_space.contains(observation)
    assert info["dialogue_limit"] == 5
    observation, reward, terminated, truncated, info = env.step("SELECT 1")
    assert env.observation_space.contains(observation)
    assert (reward, terminated, truncated, info["solved"]) == (1.0, True, False, True)
    env.close()
