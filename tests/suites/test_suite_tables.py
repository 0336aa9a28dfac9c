"""Which benchmarks a suite has, what its command line means for each, and how far it says that it is."""

from __future__ import annotations

import pytest

from lemur_ray.benchmarks import discovery
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails
from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.run_notes import RunDescription
from lemur_ray.evaluation.suites import tables
from lemur_ray.evaluation.suites.command_line import is_suite, parse_suite
from lemur_ray.evaluation.suites.progress import PartSoFar, SuiteProgress
from lemur_ray.evaluation.suites.tables import left_out, parts_of, suite_names
from lemur_ray.report.paper import COLUMNS


def test_a_suite_has_the_columns_of_its_table_each_with_the_benchmark_that_says_so() -> None:
    found = {part.column: part.benchmark for part in parts_of("table5")}
    assert list(found) == [column.column for column in COLUMNS.values() if column.table == "Table 5"]
    assert found["IC-SQL"] == "intercode/sql"
    assert found["M-MBPP"] == "mint/mbpp"
    assert {part.column: part.benchmark for part in parts_of("table7")}["ALFWorld"] == "mint/alfworld"


def test_table_6_plays_the_groups_of_mint_without_and_with_a_teacher() -> None:
    parts = parts_of("table6")
    assert [part.taught for part in parts] == [False] * 7 + [True] * 7
    assert parts[7].folder == "mint-gsm8k-taught"
    taught = dict(parse_suite(["--suite", "table6", "--teacher", "openai:http://t#m"]).parts)
    assert taught[parts[0]].options.feedback == "none"
    assert (taught[parts[7]].options.feedback, taught[parts[7]].options.teacher) == ("textual", "openai:http://t#m")


def test_the_paper_is_all_tables_and_nothing_twice() -> None:
    assert suite_names() == ["table3", "table4", "table5", "table6", "table7", "paper"]
    every = parts_of("paper")
    assert len(every) == len(set(every))
    assert {part.column for part in every} == set(COLUMNS)


def test_a_benchmark_of_somebody_else_is_in_a_table_by_the_column_that_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = Benchmark(
        find("mmlu").options,
        find("mmlu").load,
        {"full": 1, "brief": 1},
        details=BenchmarkDetails(about=lambda run: RunDescription(column="DS-1000")),
    )
    scaled = Benchmark(
        theirs.options,
        theirs.load,
        {"full": 1, "brief": 1},
        details=BenchmarkDetails(about=lambda run: RunDescription(column="MMLU", other_protocol="x")),
    )
    ours = list(discovery.offers())
    offered = [discovery.Offer("theirs/scaled", scaled), *ours, discovery.Offer("theirs/x", theirs)]
    monkeypatch.setattr(tables, "offers", lambda: iter(offered))
    found = {(part.column, part.benchmark) for part in parts_of("table3")}
    assert ("DS-1000", "theirs/x") in found
    assert {name for column, name in found if column == "MMLU"} == {"mmlu"}


def test_an_unknown_suite_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"--suite table8: unknown.*table3, table4"):
        parts_of("table8")


def test_what_nobody_says_is_as_the_paper_has_it_and_what_somebody_says_holds() -> None:
    line = ["--suite", "table5", "--policy=openai:http://x/v1", "--limit", "3", "--sandbox", "docker", "--out", "/o"]
    found = {part.benchmark: config for part, config in parse_suite(line).parts}
    assert found["intercode/sql"].options.handicap
    assert found["intercode/bash"].options.compat
    assert found["mint/mbpp"].options.grader == "mint-2023"
    assert {config.limit for config in found.values()} == {3}
    assert {config.policy for config in found.values()} == {"openai:http://x/v1"}
    assert found["mint/mbpp"].options.sandbox == "docker"
    assert found["intercode/sql"].out == "/o/intercode-sql"
    changed = {part.benchmark: config for part, config in parse_suite([*line, "--no-handicap", "--no-compat"]).parts}
    assert not changed["intercode/sql"].options.handicap
    assert not changed["intercode/bash"].options.compat


def test_question_sets_are_played_as_the_released_scripts_do() -> None:
    found = {part.benchmark: config.options for part, config in parse_suite(["--suite", "table3"]).parts}
    assert {found[name].mode for name in ("mmlu", "gsm8k", "humaneval", "mbpp")} == {"lemur"}
    assert "spider" in found, "of which nothing was released"


def test_webarena_is_drawn_as_its_protocol_says_and_what_somebody_says_holds() -> None:
    def drawn(*words: str) -> tuple[float, float]:
        parts = parse_suite(["--suite", "table7", *words]).parts
        (found,) = [config for part, config in parts if part.benchmark == "webarena/webarena"]
        return found.temperature, found.top_p

    assert drawn() == (1.0, 0.9)
    assert drawn("--temperature", "0") == (0.0, 0.9)


def test_values_that_some_refuse_are_said_of_all_of_them_and_the_rest_can_be_played() -> None:
    line = ["--suite", "table3", "--shots", "7"]
    with pytest.raises(
        ValueError, match=r"not everybody takes these flags:\n- mmlu: --shots 7(.|\n)*--without mmlu,mbpp leaves"
    ):
        parse_suite(line)
    found = {part.benchmark: config.options for part, config in parse_suite([*line, "--without", "mmlu,mbpp"]).parts}
    assert found["gsm8k"].shots == 7
    assert not hasattr(found["humaneval"], "shots"), "who has no such flag is not told"


def test_a_flag_of_nobody_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse_suite(["--suite", "table4", "--handicapp"])
    assert "--handicapp" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--suite"], "expected a value"),
        (["--suite", "table4", "--without"], "expected a value"),
        (["--suite", "table4", "--benchmark", "mint/math"], "give one of them"),
        (["--suite", "table4", "--without", "mint/maths"], "not in this suite.*mint/math"),
        (["--suite=table7", "--without=intercode/ctf,mint/alfworld"], "nothing is left"),
    ],
)
def test_a_suite_that_cannot_be_meant_is_refused(line: list[str], said: str) -> None:
    assert is_suite(line)
    if "table7" in line[0]:
        line = [line[0], "--without", ",".join({part.benchmark for part in parts_of("table7") if part.benchmark})]
    with pytest.raises(ValueError, match=said):
        parse_suite(line)


def test_what_is_left_out_is_kept_with_its_column() -> None:
    played, missing = left_out(parts_of("table5"), "intercode/sql, robocodegen")
    assert [part.column for part in missing] == ["IC-SQL", "RoboCodeGen"]
    assert len(played) == 3


def test_time_and_cost_to_come_are_reckoned_from_what_was_played() -> None:
    now = 0.0
    parts = [PartSoFar("a", 10, 10), PartSoFar("b", 20, 20)]
    progress = SuiteProgress(parts, lambda: now, priced=True)
    progress.start_part(0)
    assert (progress.to_come().seconds, progress.to_come().cost) == (None, None)
    now = 50.0
    line = progress.line(5, 1.0)
    assert line == (
        "benchmark 1 of 2; suite: 5/30 done, 50 s so far, about 4 min to come, cost 1.00, about 5.00 to come"
    )
    progress.update(10, 2.0)
    progress.start_part(1)
    now = 70.0
    progress.update(10, 1.0)
    assert progress.to_come().seconds == pytest.approx(20.0)
    assert progress.to_come().cost == pytest.approx(1.0)
    now = 90.0
    progress.update(20, 2.0)
    assert (progress.to_come().seconds, progress.to_come().cost) == (0.0, 0.0)


def test_time_so_far_is_of_all_sessions_and_time_to_come_is_reckoned_from_this_one() -> None:
    now = 0.0
    progress = SuiteProgress([PartSoFar("a", 10, 4, before_s=60.0)], lambda: now)
    progress.start_part(0)
    now = 10.0
    assert progress.line(8, 0.0) == "benchmark 1 of 1; suite: 8/10 done, 70 s so far, about 10 s to come"


def test_what_an_earlier_session_played_counts_for_cost_but_not_for_time() -> None:
    now = 0.0
    progress = SuiteProgress([PartSoFar("a", 10, 4)], lambda: now, priced=True)
    progress.start_part(0)
    now = 10.0
    progress.update(8, 8.0)
    assert progress.to_come().seconds == pytest.approx(10.0)
    assert progress.to_come().cost == pytest.approx(2.0)
