"""No prompt holds its own gold: worked examples come from other sets, and the gold check names a prompt that does."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Step, Task, Trajectory
from lemur_ray.evaluation.gold_check import leak_lines
from tests.envs.questions import tasks_of

DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
needs_data = pytest.mark.skipif(not (DATA / "bench/mbpp").is_dir(), reason="needs MBPP beneath LEMUR_DATA")


def asked(task: Task) -> Episode:
    """The episode in which the gold of a question is the reply."""
    messages = task.options.get("messages") or [
        {"role": "user", "content": task.options.get("shots", "") + task.options["prompt"]}
    ]
    opening = tuple(Message.from_json(message) for message in messages)
    step = Step(str(task.options["gold"]), None, "", 1.0, True)
    key = EpisodeKey(task.benchmark, task.id, "expert", "r")
    return Episode(
        key, task.category, Outcome.SOLVED, 1.0, 1, Trajectory(opening, (step,), len(task.options.get("shots", "")))
    )


@needs_data
@pytest.mark.parametrize(
    ("benchmark", "every", "options"),
    [
        ("mbpp", 1, {"split": "all"}),
        ("mbpp", 1, {"split": "prompt", "form": "base"}),
        ("humaneval", 1, {}),
        ("gsm8k", 1, {}),
        ("bbh/direct", 7, {}),
        ("mmlu", 61, {"form": "base"}),
    ],
)
def test_no_prompt_holds_its_own_gold(benchmark: str, every: int, options: dict[str, Any]) -> None:
    tasks = [task for task in tasks_of(benchmark, DATA, **options)[::every] if task.options.get("gold")]
    assert [*leak_lines([asked(task) for task in tasks])] == []


def test_a_prompt_that_holds_its_gold_is_named() -> None:
    secret = "return the sum of all numbers that are even"
    task = Task("b", "b/1", "envs:x", "c", {"prompt": f"Example: {secret}. Now you.", "gold": secret})
    (line,) = leak_lines([asked(task)])
    assert line.startswith("b/1: leaked: its prompt contains the gold")


def test_a_prompt_that_holds_the_gold_of_a_later_turn_is_named() -> None:
    steps = [Step(text, None, "", 0.0, False) for text in ("ls", "find / -name notes.txt -newer /etc/hosts -size +2k")]

    def lines(prompt: str) -> list[str]:
        trajectory = Trajectory((Message("user", prompt),), tuple(steps))
        key = EpisodeKey("b", "b/2", "expert", "r")
        return [*leak_lines([Episode(key, "c", Outcome.SOLVED, 1.0, 2, trajectory)])]

    (line,) = lines(f"Find the notes. Hint: {steps[1].reply}")
    assert line.startswith("b/2: leaked: its prompt contains the gold: find /")
    assert lines("Find the notes with ls") == [], "a gold of few words is no secret"


def test_spiders_shots_are_of_the_training_set(tmp_path: Path) -> None:
    home = tmp_path / "spider"
    for name in ("dev_db", "train_one", "train_two"):
        (home / "database" / name).mkdir(parents=True)
        with sqlite3.connect(home / f"database/{name}/{name}.sqlite") as connection:
            connection.execute(f"create table {name}_t (a int)")
        connection.close()
    dev = [{"db_id": "dev_db", "question": q, "query": "SELECT max(a) FROM dev_db_t"} for q in ("Highest?", "Top?")]
    train = [
        {"db_id": name, "question": f"How many in {name}?", "query": f"SELECT count(*) FROM {name}_t"}
        for name in ("train_one", "train_one", "train_two")
    ]
    (home / "dev.json").write_text(json.dumps(dev))
    with pytest.raises(FileNotFoundError, match="train"):
        tasks_of("spider", tmp_path, shots=1)
    (home / "train_spider.json").write_text(json.dumps(train))
    tasks = tasks_of("spider", tmp_path, shots=2)
    assert len(tasks) == 2
    for task in tasks:
        shots = task.options["shots"]
        assert "SELECT max(a)" not in shots + task.options["prompt"]
        assert shots.count("-- Question: How many in") == 2
        assert shots.index("CREATE TABLE train_two_t") < shots.index("CREATE TABLE dev_db_t")
    with pytest.raises(ValueError, match="has 2 databases"):
        tasks_of("spider", tmp_path, shots=3)
