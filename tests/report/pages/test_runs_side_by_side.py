"""Several evaluations on one page: which is shown, which are compared or are one row, what is read beside a score."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.report.inputs import ReportError
from lemur_ray.report.pages.whole_page import render_report, render_run
from tests.report.report_samples import episode, write_ledger


def evaluated(folder: Path, recipe: str, **settings: object) -> None:
    """Adds what a recipe stands for to a folder, as an evaluation keeps it."""
    path = folder / "evaluations.json"
    known = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**known, recipe: {"settings": settings, "configs": []}}))


def test_a_run_folder_s_page_is_of_the_evaluation_that_was_just_made(tmp_path: Path) -> None:
    first = [episode("a", Outcome.SOLVED, recipe="aaaaaaaa", policy="one")]
    write_ledger(tmp_path, [*first, episode("a", Outcome.FAILED, recipe="bbbbbbbb", policy="two")])
    report = render_run(tmp_path, {"agreement": 1.0}, ("alfworld/text", "one", "aaaaaaaa"))
    numbers = json.loads((tmp_path / "report.json").read_text())
    assert (numbers["policy"], numbers["solved"], numbers["notes"]) == ("one", 1, {"agreement": 1.0})
    assert report.policy == "one"
    page = (tmp_path / "index.html").read_text()
    assert "<h1>one on alfworld/text</h1>" in page
    assert "evaluation settings <code>aaaaaaaa</code>" in page
    assert [run["policy"] for run in numbers["runs"]] == ["two", "one"]
    with pytest.raises(ReportError, match="no episode of three"):
        render_run(tmp_path, {}, ("alfworld/text", "three", "aaaaaaaa"))


def test_an_older_version_that_was_just_played_is_the_one_that_is_shown(tmp_path: Path) -> None:
    versions = ("openai:nano@100-aaaaaaaa", "openai:nano@200-bbbbbbbb")
    write_ledger(tmp_path, [episode("a", Outcome.SOLVED, policy=policy) for policy in versions])
    assert render_run(tmp_path, {}, ("alfworld/text", versions[0], "0123456789abcdef")).policy == versions[0]


def test_every_pair_is_compared_and_pairs_of_other_settings_say_how_they_differ(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    runs = [("one", "aaaaaaaa"), ("two", "aaaaaaaa"), ("three", "bbbbbbbb"), ("random", "cccccccc")]
    played = [
        episode(f"t{i}", Outcome.SOLVED if i < k else Outcome.FAILED, policy=policy, recipe=recipe)
        for k, (policy, recipe) in enumerate(runs, 2)
        for i in range(6)
    ]
    write_ledger(folder, played)
    evaluated(folder, "aaaaaaaa", prompt="brief", reward="iou")
    evaluated(folder, "bbbbbbbb", prompt="brief", reward="tau")
    evaluated(folder, "cccccccc", prompt="full", reward="iou")
    numbers = render_report(tmp_path / "out", runs=[], episodes=[folder], corpus=None)
    apart = {frozenset((c["first"], c["second"])): c["settings_differ"] for c in numbers["comparisons"]}
    assert len(apart) == 6
    assert apart[frozenset(("one", "two"))] == ""
    assert apart[frozenset(("one", "random"))] == "", "random actions take no notice of a prompt"
    assert set(apart[frozenset(("one", "three"))].split(" against ")) == {"reward iou", "reward tau"}
    page = (tmp_path / "out/index.html").read_text()
    assert "one: reward iou; three: reward tau; two: reward iou." in page
    assert "reward iou against reward tau" in page or "reward tau against reward iou" in page


def test_a_recorded_teacher_and_recorded_turns_are_differences_too(tmp_path: Path) -> None:
    policies = ["replay:gpt-4-0613/F=None", "replay:gpt-4-0613/F=gpt-4-0613"]
    write_ledger(tmp_path / "e", [episode("1", Outcome.SOLVED, benchmark="mint/math", policy=p) for p in policies])
    evaluated(tmp_path / "e", "0123456789abcdef", feedback="none", judged_by="mint-2023")
    turns = [f"replay:ic_sql_multiturn_gpt-3.5{gap}_turns.json.gz" for gap in ("-1", "_10")]
    sql = [episode("spider-a-1", Outcome.SOLVED, benchmark="intercode/sql", policy=p) for p in turns]
    alike = {"replay": "strict", "reward": "iou"}
    sql = [replace(e, key=replace(e.key, recipe=f"{i}" * 8)) for i, e in enumerate(sql)]
    write_ledger(tmp_path / "f", sql)
    for i in range(2):
        evaluated(tmp_path / "f", f"{i}" * 8, **alike, recording=f"{i}abcdef")
    numbers = render_report(tmp_path / "out", runs=[], episodes=[tmp_path / "e", tmp_path / "f"], corpus=None)
    apart = {c["benchmark"]: c["settings_differ"] for c in numbers["comparisons"]}
    assert set(apart["mint/math"].split(" against ")) == {"no feedback", "feedback of gpt-4-0613"}
    assert set(apart["intercode/sql"].split(" against ")) == {"turns 1", "turns 10"}


def bash_part(number: int, recipe: str) -> list[Episode]:
    policy = f"replay:ic_bash_multiturn_gpt-3.5_10_turns_fs_{number}.json.gz"
    return [
        episode(
            f"fs{number}-{i}",
            Outcome.SOLVED,
            benchmark="intercode/bash",
            category=f"fs_{number}",
            policy=policy,
            recipe=recipe,
        )
        for i in range(3)
    ]


def test_the_parts_of_a_recorded_run_are_one_row_with_the_name_of_the_model(tmp_path: Path) -> None:
    folders = []
    for number in (1, 3, 4):
        recipe = f"{number}" * 8
        folders.append(write_ledger(tmp_path / f"fs{number}", bash_part(number, recipe=recipe)))
        evaluated(folders[-1], recipe, compat=True, replay="strict", data=[f"{number}"], recording=recipe)
    numbers = render_report(tmp_path / "out", runs=[], episodes=folders, corpus=None)
    (run,) = numbers["agents"]
    assert run["overall"]["success"]["n"] == 9
    page = (tmp_path / "out/index.html").read_text()
    assert "gpt-3.5, recorded" in page
    assert ".json.gz" not in page
    assert "IC-Bash: 9 of 200 tasks" in page


def test_parts_under_other_settings_stay_apart(tmp_path: Path) -> None:
    folders = []
    for number in (1, 3):
        folders.append(write_ledger(tmp_path / f"fs{number}", bash_part(number, recipe=f"{number}" * 8)))
        evaluated(folders[-1], f"{number}" * 8, compat=number == 1, replay="strict", data=[f"{number}"])
    numbers = render_report(tmp_path / "out", runs=[], episodes=folders, corpus=None)
    assert [run["overall"]["n"] for run in numbers["agents"]] == [3, 3]


@pytest.mark.parametrize(
    ("benchmark", "task", "words"),
    [
        ("intercode/bash", "fs1-0", "`true` alone solves 19 of the 200 tasks (9.5 %)"),
        ("intercode/ctf", "ctf-0", "may have memorised them"),
        ("intercode/sql", "sample-0", "small sample database"),
    ],
)
def test_what_must_be_read_beside_a_score_stands_beside_it(
    tmp_path: Path, benchmark: str, task: str, words: str
) -> None:
    write_ledger(tmp_path, [episode(task, Outcome.SOLVED, benchmark=benchmark)])
    render_run(tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert words in page.partition("What this does not show")[0]


def test_a_run_on_spider_is_not_said_to_be_on_the_sample_database(tmp_path: Path) -> None:
    tasks = ("spider-flight_2-0", "spider-flight_2-1")
    write_ledger(tmp_path, [episode(task, Outcome.SOLVED, benchmark="intercode/sql") for task in tasks])
    render_run(tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "sample database" not in page
    assert "IC-SQL: 2 of 1,034 tasks" in page
    assert "gpt-4, published, no handicap 73.7" in page, "the published curve by turn"
