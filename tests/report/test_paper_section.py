"""The paper's tables with our rows: which are drawn, what stands in a cell, and how runs become rows."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.discovery import describe_run
from lemur_ray.benchmarks.run_notes import EvaluationRun
from lemur_ray.report.pages import paper_section
from lemur_ray.report.pages.markup import DASH
from lemur_ray.report.paper_rows import PaperRun
from tests.report.report_samples import episode

REASONING, CODE = ("gsm8k", "math", "theoremqa", "hotpotqa", "mmlu"), ("humaneval", "mbpp")
MINT: dict[str, Any] = {
    "prompt": "full", "judged_by": "mint-2023", "option_rule": "legacy", "feedback": "none", "teacher": "",
    "ground_truth": False, "wikipedia": "live", "parser": "tags", "replay": "auto",
}  # fmt: skip
TAUGHT = MINT | {"feedback": "textual", "teacher": "openai:https://host/v1#gpt-4-0613"}
SQL: dict[str, Any] = {"prompt": "full", "reward": "iou", "handicap": True, "engine_kind": "sqlite", "compat": False}
OURS = "instruction in other words"


def played(episodes: list[Episode], settings: dict[str, Any] | None = None, policy: str = "mine") -> PaperRun:
    """A run under the paper's settings of MINT unless others are given."""
    settings, tasks = MINT if settings is None else settings, [e.key.task for e in episodes]
    return PaperRun(policy, episodes, describe_run(episodes[0].key.benchmark, EvaluationRun(policy, settings, tasks)))


def run(benchmark: str, solved: int, n: int, *, category: str = "", observation: str = "seen", **more) -> list[Episode]:
    """``n`` episodes, the first ``solved`` of them solved in two turns."""
    return [
        episode(
            str(i),
            Outcome.SOLVED if i < solved else Outcome.TURN_LIMIT,
            benchmark=benchmark,
            category=category or benchmark,
            observation=observation,
            turns=2 if i < solved else 5,
            **more,
        )
        for i in range(n)
    ]


def text_of(html: str) -> list[list[str]]:
    """The cells of every table row, without markup; what stands below a row's name comes last."""
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", found) for found in re.findall(r"<tr[^>]*>(.*?)</tr>", html)]
    parted = [(cells[0].partition("<br>"), cells[1:]) for cells in rows]
    whole = [[name, *cells, *([below] if below else [])] for (name, _, below), cells in parted]
    return [[unescape(re.sub(r"<[^>]+>", "", cell)) for cell in cells] for cells in whole]


def row(html: str, title: str, name: str) -> list[str]:
    """The row of that name in the table under that heading."""
    (under,) = [part for part in html.split("<h3>") if part.startswith(title)]
    return next(r for r in text_of(under) if r[0] == name)


def test_nothing_of_the_paper_is_nothing() -> None:
    assert paper_section.section([]) == ""
    assert paper_section.section([played(run("alfworld/text", 3, 5))]) == ""


def test_table_4_has_our_rates_with_intervals_and_an_average_only_over_all_five() -> None:
    some = [played(run(f"mint/{subset}", 1, 4)) for subset in REASONING[:2]]
    html = paper_section.section(some)
    assert "Table 4" in html
    assert "Table 6" not in html
    ours = row(html, "Table 4", "mine")
    assert ours[1].startswith("25.00 1/4 [")
    assert ours[3:7] == [DASH] * 4
    assert row(html, "Table 4", "gpt-4")[1:7] == ["93.75", "57.00", "57.14", "46.51", "80.26", "66.77"]
    everything = paper_section.section([played(run(f"mint/{subset}", 2, 4)) for subset in REASONING])
    assert row(everything, "Table 4", "mine")[6].startswith("50.00 10/20 [")


def test_runs_with_a_teacher_make_table_6_and_its_gain() -> None:
    plain = [played(run(f"mint/{subset}", 1, 4)) for subset in REASONING + CODE]
    taught = [played(run(f"mint/{subset}", 2, 4), TAUGHT) for subset in REASONING + CODE]
    html = paper_section.section(plain + taught)
    ours = row(html, "Table 6", "mine")
    assert ours[3].startswith("25.00 7/28")
    assert ours[6].startswith("50.00 14/28")
    assert ours[7] == "+25.00"
    assert ours[8].startswith("teacher: textual, openai:https://host/v1#gpt-4-0613; mint-2023 grader")
    assert row(html, "Table 6", "gpt-3.5-turbo")[1:8] == [
        "36.71",
        "29.41",
        "34.51",
        "50.32",
        "38.97",
        "46.90",
        "+12.39",
    ]
    assert row(html, "Table 4", "mine")[1].startswith("25.00 1/4"), "a taught run must not stand in Table 4"


def test_table_9_counts_failures_alone() -> None:
    crash = "Traceback (most recent call last)\nValueError"
    html = paper_section.section([played(run("mint/math", 1, 4, observation=crash))])
    assert row(html, "Table 9", "mine")[1].startswith("75.00 3/4")
    assert row(html, "Table 9", "Lemur-70B-Chat")[1:3] == ["29.00", "26.00"]


def spider(solved: int, n: int, category: str = "easy", **more: Any) -> list[Episode]:
    """Episodes of Spider's questions."""
    found = run("intercode/sql", solved, n, category=category, **more)
    return [replace(e, key=replace(e.key, task=f"spider-{category}-{e.key.task}")) for e in found]


def test_table_10_is_of_spider_s_hardness_alone() -> None:
    html = paper_section.section([played(spider(2, 4) + spider(1, 2, "extra"), SQL)])
    assert row(html, "Table 10", "mine")[1].startswith("50.00 2/4")
    assert row(html, "Table 10", "gpt-3.5-turbo")[1:6] == ["92.74", "74.89", "67.24", "43.37", "72.82"]


def test_the_sample_database_stands_in_no_table_of_the_paper() -> None:
    """Its questions have the same names of hardness as Spider's."""
    assert paper_section.section([played(run("intercode/sql", 2, 4, category="easy"), SQL)]) == ""


def test_one_policy_under_two_settings_has_two_rows_named_by_what_differs() -> None:
    iou = played(spider(1, 4, recipe="aaaaaaaa"), SQL | {"handicap": False})
    tau = played(spider(3, 4, recipe="bbbbbbbb"), SQL | {"reward": "tau"})
    html = paper_section.section([iou, tau])
    assert row(html, "Table 5", "mine (no handicap)")[4].startswith("25.00 1/4")
    assert row(html, "Table 5", "mine (reward tau)")[4].startswith("75.00 3/4")
    assert len([r for r in text_of(html) if r[0].startswith("mine")]) == 4, "two tables of two rows each"


def test_settings_that_are_no_departure_keep_runs_apart_too() -> None:
    lite = played(spider(1, 4, recipe="aaaaaaaa"), SQL)
    server = played(spider(3, 4, recipe="bbbbbbbb"), SQL | {"engine_kind": "mysql"})
    html = paper_section.section([lite, server])
    assert row(html, "Table 5", "mine (engine sqlite)")[4].startswith("25.00")
    assert (
        row(html, "Table 10", "mine (engine sqlite)")[-1]
        == f"queries on sqlite; IC-SQL: 4 of 1,034 tasks; IC-SQL: {OURS}"
    )
    assert row(html, "Table 5", "mine (engine mysql)")[4].startswith("75.00")
    unknown = [played(spider(k, 4, recipe=r), {}) for k, r in ((1, "aaaaaaaa"), (2, "bbbbbbbb"), (3, "bbbbbbbb"))]
    names = [r[0] for r in text_of(paper_section.section(unknown)) if r[0].startswith("mine")]
    assert len(set(names)) == 3
    assert all("settings not recorded" in name for name in names)


def test_a_row_says_by_which_grader_and_on_how_many_tasks_it_was_played() -> None:
    strict = played(run("mint/gsm8k", 1, 4, recipe="b"), MINT | {"judged_by": "strict"})
    html = paper_section.section([played(run("mint/gsm8k", 1, 4, recipe="a")), strict])
    assert row(html, "Table 4", "mine")[-1] == "mint-2023 grader; M-GSM8K: 4 of 48 tasks"
    theirs = row(html, "Table 4", "mine (strict grader)")[-1]
    assert theirs == "strict grader, not comparable with published numbers; M-GSM8K: 4 of 48 tasks"
    offline = paper_section.section([played(run("intercode/ctf", 1, 76), {"compat": True})])
    assert row(offline, "Table 7", "mine")[-1] == f"IC-CTF: 76 of 100 tasks; IC-CTF: {OURS}"
    plain = paper_section.section([played(run("intercode/bash", 1, 200), {"compat": False})])
    assert row(plain, "Table 5", "mine (without upstream's quirks)")
    offline_search = paper_section.section([played(run("mint/gsm8k", 1, 48), MINT | {"wikipedia": "none"})])
    assert row(offline_search, "Table 4", "mine (no search)")[-1] == "mint-2023 grader"


def test_what_a_model_writes_does_not_take_it_out_of_a_table() -> None:
    words = "Observation:\nno\n\nExpert feedback:\nThis is BAD.\n"
    html = paper_section.section([played(run("mint/math", 1, 4, observation=words))])
    assert row(html, "Table 4", "mine")[2].startswith("25.00 1/4")
    assert row(html, "Table 9", "mine")
    assert "Table 6" not in html


def test_a_replay_has_a_teacher_if_its_recording_had_one() -> None:
    runs = [
        played(run(f"mint/{subset}", 1, 4), policy=f"replay:gpt-4-0613/F={teacher}")
        for subset in CODE + REASONING
        for teacher in ("None", "gpt-4-0613")
    ]
    html = paper_section.section(runs)
    assert row(html, "Table 6", "gpt-4, recorded")[8].startswith("teacher: gpt-4-0613; mint-2023 grader")
    assert row(html, "Table 4", "gpt-4, recorded")[1].startswith("25.00 1/4")


def test_two_teachers_of_one_model_are_two_rows_beside_the_same_run_without() -> None:
    plain = [played(run(f"mint/{subset}", 1, 4)) for subset in REASONING + CODE]
    taught = [played(run(f"mint/{subset}", 2, 4), TAUGHT) for subset in REASONING + CODE]
    binary = [played(run(f"mint/{s}", 3, 4), MINT | {"feedback": "binary"}) for s in REASONING + CODE]
    (under,) = [part for part in paper_section.section(plain + taught + binary).split("<h3>") if "Table 6" in part[:9]]
    ours = [r for r in text_of(under) if r[0] == "mine"]
    assert [r[7] for r in ours] == ["+25.00", "+50.00"]


def test_episodes_of_one_task_do_not_narrow_an_interval() -> None:
    once = run("mint/math", 5, 10)
    alike = [replace(e, key=replace(e.key, epoch=epoch)) for e in once for epoch in range(3)]
    html = paper_section.section([played(once)])
    more = paper_section.section([played(alike)])
    assert row(more, "Table 9", "mine")[3].endswith("up to 3 episodes of a task, interval by task")
    bounds = [re.findall(r"\[.*\]", row(page, "Table 4", "mine")[2])[0] for page in (html, more)]
    width = [float(high) - float(low) for low, high in (bound.strip("[]").split(",") for bound in bounds)]
    assert width[1] > 0.9 * width[0]


def test_success_by_turn_and_the_tasks_on_which_graders_part() -> None:
    graded = [
        replace(e, scores={"strict": float(i == 0), "mint-2023": float(i < 2)})
        for i, e in enumerate(run("mint/gsm8k", 1, 3))
    ]
    html = paper_section.section([played(graded), played(graded, TAUGHT)])
    assert "Figure 3" in html
    assert "<svg" in html
    assert row(html, "Figure 3", "mine")[2].startswith("33.33 1/3 [")
    parted = row(html, "Where", "mine, mint/gsm8k")
    assert parted[1].startswith("2/3")
    assert parted[2].startswith("1/3")
    assert parted[3:] == ["1", "1"]
    assert row(html, "Where", "mine, mint/gsm8k, taught by textual, openai:https://host/v1#gpt-4-0613")[3] == "1"


def test_a_curve_is_of_the_subsets_it_names_and_never_beside_one_of_others() -> None:
    whole = [played(run(f"mint/{subset}", 1, 2)) for subset in (*REASONING, *CODE, "alfworld")]
    part = [played(run("mint/gsm8k", 1, 4), policy="other")]
    html = paper_section.section(whole + part)
    (under,) = [section for section in html.split("<h3>") if section.startswith("Figure 3")]
    assert under.count("<svg") == 2
    headers = [r[0] for r in text_of(under) if r[0].startswith("solved within")]
    assert headers == ["solved within, pooled over all eight subsets", "solved within, pooled over M-GSM8K"]
    assert row(html, "Figure 3", "mine")[1].startswith("0.00 0/16 [")
    assert row(html, "Figure 3", "mine")[2].startswith("50.00 8/16 [")


@pytest.mark.parametrize(
    ("benchmark", "policy", "model"),
    [
        ("mint/math", "replay:gpt-3.5-turbo-0613/F=None", "gpt-3.5-turbo"),
        ("mint/math", "replay:gpt-3.5-turbo-0613/F=gpt-4-0613", "gpt-3.5-turbo"),
        ("intercode/bash", "replay:ic_bash_multiturn_gpt-3.5_10_turns_fs_1.json.gz", "gpt-3.5"),
        ("intercode/sql", "replay:ic_sql_multiturn_gpt-3.5-1_turns_handicap.json.gz", "gpt-3.5"),
        ("intercode/sql", "replay:ic_sql_multiturn_text-bison-001_10_turns.json.gz", "text-bison-001"),
        ("intercode/sql", "nano-chat, step 5000", None),
    ],
)
def test_a_replay_is_named_as_the_paper_names_its_model(benchmark: str, policy: str, model: str | None) -> None:
    recorded = describe_run(benchmark, EvaluationRun(policy)).recorded
    assert (recorded.model if recorded else None) == model


def test_unscored_episodes_are_in_no_cell() -> None:
    lost = episode("lost", Outcome.INFRA_LOST, benchmark="mint/mmlu")
    html = paper_section.section([played([*run("mint/mmlu", 1, 1), lost])])
    assert row(html, "Table 4", "mine")[5].startswith("100.00 1/1")


def of_kinds(benchmark: str, shares: dict[str, tuple[int, int]], **more: Any) -> list[Episode]:
    """By kind: how many of how many are solved."""
    out = []
    for kind, (solved, n) in shares.items():
        found = run(benchmark, solved, n, category=kind, **more)
        out += [replace(e, key=replace(e.key, task=f"{kind}/{e.key.task}"), cluster=kind) for e in found]
    return out


def test_table_3_has_means_of_files_and_languages_beside_shares_and_an_average_of_all_eight() -> None:
    settings = {"mode": "lemur", "prompt": "full"}
    runs = [
        played(of_kinds("mmlu", {"anatomy": (9, 10), "virology": (1, 30)}), settings),
        played(of_kinds("bbh/direct", {"snarks": (3, 4), "navigate": (2, 8)}), settings),
        *(played(of_kinds(f"multipl_e/{name}", {name: (n, 10)}), settings) for name, n in (("cpp", 4), ("java", 7))),
    ]
    html = paper_section.section(runs)
    ours = row(html, "Table 3", "mine")
    assert ours[1].startswith("25.00 10/40 [")
    assert ours[1].endswith("mean of 2 subjects 46.67")
    assert ours[7].startswith("55.00 mean of 2 languages [")
    assert ours[2].startswith("50.00 mean of 2 files [")
    assert ours[9] == DASH, "an average needs all eight"
    assert row(html, "Table 3", "Lemur-70B-Chat")[9] == "56.24printed 55.00"
    assert row(html, "Table 3", "Llama-2-70B-Chat")[9] == "40.19"
    rest = ("gsm8k", "humaneval", "mbpp", "spider", "ds1000")
    whole = paper_section.section([*runs, *(played(run(name, 1, 2), settings) for name in rest)])
    # 25 %, 50 %, 55 % and five times 50 %.
    assert row(whole, "Table 3", "mine")[9].startswith("47.50 mean of 8 [")


def test_a_way_of_asking_that_the_released_script_has_not_stands_below_in_the_cell() -> None:
    settings = {"mode": "lemur", "prompt": "full"}
    html = paper_section.section([played(run(f"bbh/{way}", n, 4), settings) for way, n in (("direct", 1), ("cot", 3))])
    asked = row(html, "Table 3", "mine")[2]
    assert asked.startswith("25.00 bbh/direct [")
    assert re.search(r"\] ?cot: 75\.00 bbh/cot \[", asked)
