"""Which tasks are played: named ones, and samples that hold of every kind its share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.trajectory import Task
from lemur_ray.rollout.benchmark_tasks import from_json, to_json
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.schedule.task_selection import named_tasks, sample_over_strata, select_tasks


@dataclass(frozen=True)
class NoOptions:
    """None."""


KINDS = {"web": 2, "crypto": 19, "forensics": 15, "general": 33, "reverse": 31}
TASKS = [Task("b", f"{kind}-{i}", "e", kind) for kind, number in KINDS.items() for i in range(number)]


def config(**more: Any) -> EvalConfig[Any]:
    return EvalConfig(NoOptions(), "alfworld/text", **more)


@pytest.mark.parametrize("number", [10, 20, 50, 99])
def test_a_sample_holds_of_every_kind_its_share_in_the_tasks_own_order(number: int) -> None:
    found = sample_over_strata(TASKS, number)
    assert len(found) == number
    assert found == [task for task in TASKS if task in found]
    counts = Counter(task.category for task in found)
    for kind, size in KINDS.items():
        assert abs(counts[kind] - number * size / len(TASKS)) <= 1


def test_a_smaller_sample_is_part_of_a_larger_one_and_depends_on_nothing_else() -> None:
    ids = [[task.id for task in sample_over_strata(TASKS, n)] for n in (5, 6, 30)]
    assert set(ids[0]) < set(ids[1]) < set(ids[2])
    shuffled = sample_over_strata(TASKS[::-1], 30)
    assert {task.id for task in shuffled} == set(ids[2])
    assert {task.id for task in sample_over_strata(TASKS, 30, seed=1)} != set(ids[2])


def test_a_limit_samples_or_takes_the_first_and_says_whose_data_it_stands_for() -> None:
    tasks, data = select_tasks(TASKS, config(limit=7))
    assert (len(tasks), list(data)) == (7, TASKS)
    tasks, data = select_tasks(TASKS, config(limit=7, sample="first"))
    assert tasks == list(data) == TASKS[:7]
    assert select_tasks(TASKS, config(limit=1000))[0] == select_tasks(TASKS, config())[0] == TASKS


def test_tasks_are_named_by_id_by_place_and_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("# those that failed\nweb-1\n\n98:\n")
    found = named_tasks(TASKS, f"crypto-3, :1,@{tmp_path / 'ids'}")
    assert [task.id for task in found] == ["web-0", "web-1", "crypto-3", "reverse-29", "reverse-30"]
    assert len(select_tasks(TASKS, config(tasks="10:20", limit=2))[0]) == 2


def test_a_file_that_names_itself_is_said(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text(f"web-1\n@{other}\n")
    other.write_text("web-0\n")
    assert [task.id for task in named_tasks(TASKS, f"@{one},@{other}")] == ["web-0", "web-1"]
    other.write_text(f"@{tmp_path}/./one\n")
    with pytest.raises(ValueError, match=rf"--tasks @.*one: it names itself, in {other}: take that line out"):
        named_tasks(TASKS, f"@{one}")


@pytest.mark.parametrize("text", ["crypto-99", "200:300", "5:5", ",", "@/nowhere/at/all", "crypto"])
def test_what_names_no_task_is_said(text: str) -> None:
    with pytest.raises((ValueError, OSError)) as told:
        named_tasks(TASKS, text)
    assert len(str(told.value)) < 300
    if text == "crypto-99":
        assert "but for example ['crypto-" in str(told.value)


def test_an_evaluation_of_before_there_were_samples_played_the_first() -> None:
    stored = to_json(config(limit=5))
    assert from_json(stored).sample == "strata"
    del stored["sample"]
    assert from_json(stored).sample == "first"
    assert from_json({**stored, "limit": 0}) == replace(from_json(to_json(config())), options=from_json(stored).options)


def test_who_waited_for_a_task_that_is_left_out_waits_for_those_before_it() -> None:
    after = {"b": ("a",), "c": ("b",), "d": ("c", "gone"), "e": ("d", "a")}
    tasks = [Task("b", name, "e", "k", after=after.get(name, ())) for name in "abcde"]
    chosen, _ = select_tasks(tasks, config(tasks="e,a,c"))
    assert {task.id: task.after for task in chosen} == {"a": (), "c": ("a",), "e": ("c", "a")}
    assert select_tasks(tasks, config())[0] == tasks
    circle = [Task("b", name, "e", "k", after=(other,)) for name, other in ("ab", "bc", "cb")]
    assert select_tasks(circle, config(tasks="a"))[0][0].after == ()
