"""Spider: golds are right, known-wrong queries are not, hardness is as its authors count it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envs.intercode.sql.sqlite_processes import worker
from envs.intercode.sql.sqlite_worker import Query
from envs.programs.spider.execution import grade, query_in
from envs.programs.spider.hardness import hardness
from envs.programs.spider.same_rows import as_compared, orders, same_rows
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.benchmarks.rows import read_rows
from tests.envs.questions import Says, golds, play, tasks_of

DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
needs_data = pytest.mark.skipif(not (DATA / "bench/spider").is_dir(), reason="needs Spider beneath LEMUR_DATA")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases that are built go nowhere else."""
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path_factory.getbasetemp() / "spider-home"))


@needs_data
@pytest.mark.parametrize("form", ["chat", "base"])
def test_every_gold_is_right(form: str, tmp_path: Path) -> None:
    tasks = tasks_of("spider", DATA, form=form)
    assert (len(tasks), tasks[0].id) == (493, "spider/0")
    found = golds(tasks, tmp_path)
    assert all(found.values()), [task for task, right in found.items() if not right]


@needs_data
def test_every_known_wrong_query_is_wrong_and_golds_give_as_many_rows_as_recorded() -> None:
    wrong = 0
    rows = list(read_rows(DATA / "bench/spider/dev.jsonl.gz"))
    for row, task in zip(rows, tasks_of("spider", DATA), strict=True):
        for query in row["known_wrong"]:
            assert grade(query, task.options).score == 0, (row["query"], query)
            wrong += 1
        (database,) = task.options["reference"]["databases"]
        with worker() as mine:
            answer = mine.ask(Query(database, row["query"], 10.0, 100_000, 2**26))
        assert len(answer.rows) == row["gold_rows"]
    assert wrong == 743


@pytest.mark.skipif(not (DATA / "intercode/sql").is_dir(), reason="needs InterCode's copy of Spider's questions")
def test_hardness_is_that_of_the_authors() -> None:
    rows = list(read_rows(DATA / "intercode/sql/ic_spider_dev.json.gz"))
    assert len(rows) == 1034
    differs = [row["gold"] for row in rows if hardness(row["gold"]) != row["hardness"]]
    assert not differs


@needs_data
def test_a_query_that_writes_never_ends_or_is_none_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.programs.spider.execution.TIME_S", 1.0)
    task = tasks_of("spider", DATA)[0]
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT count(*) FROM n"
    said = ["DROP TABLE singer", "ATTACH '/tmp/x' AS y", "I do not know", endless, "SELECT nothing FROM nowhere"]
    for number, reply in enumerate(said):
        folder = tmp_path / str(number)
        folder.mkdir()
        (episode,) = play([task], Says({task.id: reply}), folder)
        assert (episode.outcome, episode.score) == (Outcome.FAILED, 0.0), reply


@needs_data
def test_a_slow_query_has_no_more_time_the_more_files_its_database_has(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tasks_of("spider", DATA)[0]
    asked = dict(task.options["reference"])
    asked["databases"] = asked["databases"] * 20
    slow = f"{asked['query'].rstrip(';')} LIMIT (SELECT max(x) FROM (WITH RECURSIVE n(x) AS "
    slow += "(SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 300000) SELECT x FROM n))"
    assert grade(slow, {"reference": asked}).score == 1
    monkeypatch.setattr("envs.programs.spider.execution.TOTAL_S", 0.2)
    late = grade(slow, {"reference": asked})
    assert (late.score, late.note) == (0, "Command timed out")


def test_rows_are_a_multiset_columns_a_set_and_order_counts_where_it_was_asked_for() -> None:
    gold = [(1, "a"), (2, "b"), (2, "b")]
    assert same_rows([("b", 2), ("a", 1), ("b", 2)], gold, ordered=False)
    assert not same_rows([("b", 2), ("a", 1), ("b", 2)], gold, ordered=True)
    assert same_rows([("a", 1), ("b", 2), ("b", 2)], gold, ordered=True)
    assert not same_rows([("b", 2), ("a", 1), ("a", 1)], gold, ordered=False)
    assert not same_rows([(1, "a")], gold, ordered=False)
    assert same_rows([], [], ordered=True)
    # Each column alone has the right values, but they stand in the wrong rows.
    assert not same_rows([(1, "b"), (2, "a")], [(1, "a"), (2, "b")], ordered=False)
    wide = [tuple(range(12)) for _ in range(3)]
    assert same_rows([tuple(reversed(row)) for row in wide], wide, ordered=False)


def test_queries_are_run_without_distinct_and_behind_their_end() -> None:
    assert as_compared("SELECT DISTINCT a FROM t WHERE b = 'distinct;' ; DROP TABLE t") == (
        "SELECT  a FROM t WHERE b = 'distinct;'"
    )
    assert as_compared("SELECT a WHERE b > = 2") == "SELECT a WHERE b >= 2"
    assert orders("select a from t ORDER\n BY a")


@pytest.mark.parametrize(
    ("reply", "begins", "query"),
    [
        ("```sql\nSELECT 1;\n```", "", "SELECT 1;"),
        ("It is: SELECT a FROM t", "", "SELECT a FROM t"),
        (" count(*) FROM t", "SELECT", "SELECT count(*) FROM t"),
        ("SELECT 1", "SELECT", "SELECT 1"),
        ("no", "", None),
    ],
)
def test_the_query_of_a_reply(reply: str, begins: str, query: str | None) -> None:
    assert query_in(reply, begins) == query
