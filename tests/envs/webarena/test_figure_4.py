"""Figure 4 on the page: the same tasks in both action languages, paired; other runs are not in it."""

from __future__ import annotations

from dataclasses import replace

from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Trajectory
from lemur_ray.benchmarks.run_notes import RunDescription
from lemur_ray.report.pages.paper_section import section
from lemur_ray.report.paper_rows import PaperRun


def run(variant: str, solved: int, column: str = "WebArena", recipe: str = "a") -> PaperRun:
    episodes = [
        Episode(
            EpisodeKey("webarena/webarena", str(task), "m", recipe),
            "shopping",
            Outcome.SOLVED if task < solved else Outcome.FAILED,
            float(task < solved),
            1,
            Trajectory(),
        )
        for task in range(40)
    ]
    return PaperRun("m", episodes, RunDescription(column=column, variant=variant, departures=(variant,)))


def test_both_languages_stand_in_one_row_with_their_difference() -> None:
    symbolic, calls = run("symbolic actions", 8), run("Python calls", 15, recipe="b")
    page = section([symbolic, calls])
    assert "Figure 4: WebArena in both action languages" in page
    _, _, figure = page.partition("Figure 4")
    row = figure.split("<tr")[2]
    assert "8/40" in row
    assert "15/40" in row
    assert "+17.50" in row
    assert "0.016" in row, "of 7 tasks that part them, all in favour of one"
    assert "5.67" in figure


def test_runs_that_more_than_the_language_parts_are_not_paired() -> None:
    def played(variant: str, recipe: str, **settings: str) -> PaperRun:
        one = run(variant, 8, recipe=recipe)
        return replace(one, about=replace(one.about, protocol={"actions": variant, **settings}))

    strict = played("symbolic actions", "a", evaluator="strict", judge="none")
    calls = played("Python calls", "b", evaluator="upstream", judge="none")
    figure = section([strict, calls]).partition("Figure 4")[2]
    assert figure.count("8/40") == 2
    assert "tasks</td>" not in figure.split("Lemur")[0], "no difference is computed"
    assert "strict" in figure
    alike = played("symbolic actions", "c", evaluator="upstream", judge="none")
    both = section([strict, calls, alike]).partition("Figure 4")[2]
    assert "40 tasks" in both
    assert both.count("8/40") == 3


def test_a_run_in_one_language_stands_alone_and_stand_ins_are_not_in_it() -> None:
    assert "5.30" in section([run("symbolic actions", 8)]).partition("Figure 4")[2]
    standin = run("symbolic actions", 40)
    assert "Figure 4" not in section([replace(standin, about=replace(standin.about, column=""))])
