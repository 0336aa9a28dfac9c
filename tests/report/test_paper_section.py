"""The paper's tables with our rows: which are drawn, what stands in a cell, and how runs become rows."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.report import paper_section
from lemur_ray.report.markup import DASH
from lemur_ray.report.mint_tables import CODE, REASONING
from tests.report.report_samples import episode


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
    """The cells of every table row, without markup."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html)
    return [[re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def row(html: str, title: str, name: str) -> list[str]:
    """The row of that name in the table under that heading."""
    (under,) = [part for part in html.split("<h3>") if part.startswith(title)]
    return next(r for r in text_of(under) if r[0] == name)


def test_nothing_of_the_paper_is_nothing() -> None:
    assert paper_section.section([]) == ""
    assert paper_section.section([("nano-chat", run("alfworld/text", 3, 5))]) == ""


def test_table_4_has_our_rates_with_intervals_and_an_average_only_over_all_five() -> None:
    some = [("mine", run(f"mint/{subset}", 1, 4)) for subset in REASONING[:2]]
    html = paper_section.section(some)
    assert "Table 4" in html
    assert "Table 6" not in html
    ours = row(html, "Table 4", "mine")
    assert ours[1].startswith("25.00 1/4 [")
    assert ours[3:] == [DASH] * 4
    assert row(html, "Table 4", "gpt-4")[1:] == ["93.75", "57.00", "57.14", "46.51", "80.26", "66.77"]
    everything = paper_section.section([("mine", run(f"mint/{subset}", 2, 4)) for subset in REASONING])
    assert row(everything, "Table 4", "mine")[6].startswith("50.00 10/20 [")


def test_runs_with_a_teacher_make_table_6_and_its_gain() -> None:
    plain = [("mine", run(f"mint/{subset}", 1, 4)) for subset in REASONING + CODE]
    words = "Observation:\nno\n\nExpert feedback:\nThis is BAD.\n"
    taught = [("mine", run(f"mint/{subset}", 2, 4, observation=words)) for subset in REASONING + CODE]
    html = paper_section.section(plain + taught)
    ours = row(html, "Table 6", "mine")
    assert ours[3].startswith("25.00 7/28")
    assert ours[6].startswith("50.00 14/28")
    assert ours[7] == "+25.00"
    assert row(html, "Table 6", "gpt-3.5-turbo")[1:] == ["36.71", "29.41", "34.51", "50.32", "38.97", "46.90", "+12.39"]
    assert row(html, "Table 4", "mine")[1].startswith("25.00 1/4"), "a taught run must not stand in Table 4"


def test_table_9_counts_failures_alone() -> None:
    crash = "Traceback (most recent call last)\nValueError"
    html = paper_section.section([("mine", run("mint/math", 1, 4, observation=crash))])
    assert row(html, "Table 9", "mine")[1].startswith("75.00 3/4")
    assert row(html, "Table 9", "Lemur-70B-Chat")[1:] == ["29.00", "26.00"]


def test_table_10_is_of_spider_s_hardness_alone() -> None:
    spider = run("intercode/sql", 2, 4, category="easy") + [
        replace(e, key=replace(e.key, task=f"x{e.key.task}")) for e in run("intercode/sql", 1, 2, category="extra")
    ]
    html = paper_section.section([("mine", spider)])
    assert row(html, "Table 10", "mine")[1].startswith("50.00 2/4")
    assert row(html, "Table 10", "gpt-3.5-turbo")[1:] == ["92.74", "74.89", "67.24", "43.37", "72.82"]
    assert "Table 10" not in paper_section.section([("mine", run("intercode/sql", 2, 4, category="joins"))])


def test_success_by_turn_and_the_tasks_on_which_graders_part() -> None:
    graded = [
        replace(e, scores={"strict": float(i == 0), "mint-2023": float(i < 2)})
        for i, e in enumerate(run("mint/gsm8k", 1, 3))
    ]
    html = paper_section.section([("mine", graded)])
    assert "Figure 3" in html
    assert "<svg" in html
    parted = row(html, "Where", "mine, mint/gsm8k")
    assert parted[1].startswith("2/3")
    assert parted[2].startswith("1/3")
    assert parted[3:] == ["1", "1"]


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("replay:gpt-3.5-turbo-0613/F=None", "gpt-3.5-turbo, recorded"),
        ("replay:gpt-3.5-turbo-0613/F=gpt-4-0613", "gpt-3.5-turbo, recorded"),
        ("nano-chat, step 5000", "nano-chat, step 5000"),
    ],
)
def test_a_replay_is_named_as_the_paper_names_its_model(policy: str, name: str) -> None:
    assert paper_section.model_name(policy) == name


def test_unscored_episodes_are_in_no_cell() -> None:
    lost = episode("lost", Outcome.INFRA_LOST, benchmark="mint/mmlu")
    html = paper_section.section([("mine", [*run("mint/mmlu", 1, 1), lost])])
    assert row(html, "Table 4", "mine")[5].startswith("100.00 1/1")
