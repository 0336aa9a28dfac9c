"""The numbers that the paper prints are those that MINT's public logs count, as integers where runs are whole."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from envs.mint.recording import SUBSETS
from lemur_ray.benchmarks.discovery import describe_run
from lemur_ray.benchmarks.run_notes import EvaluationRun
from lemur_ray.report.paper import COLUMNS, NOTES, TABLE_4_MICRO, TABLE_6, TABLE_9
from lemur_ray.report.paper_rows import GROUPS
from tests.report.recorded_counts import Counts, counts_of_recording, together

WHOLE = ("Llama-2-70b-chat-hf", "CodeLlama-34b-Instruct-hf", "gpt-3.5-turbo-0613")
SOLVED = {
    ("Llama-2-70b-chat-hf", "F=None"): (16, 3, 1, 12, 32, 4, 8, 29),
    ("CodeLlama-34b-Instruct-hf", "F=None"): (12, 4, 1, 7, 23, 1, 2, 50),
    ("gpt-3.5-turbo-0613", "F=None"): (21, 26, 14, 12, 43, 17, 23, 56),
    ("lemur-70b-chat-v1.even", "F=None"): (15, 4, 3, 9, 21, 12, 9, 46),
    ("Llama-2-70b-chat-hf", "F=gpt-4-0613"): (27, 9, 7, 15, 15, 10, 17, 56),
    ("CodeLlama-34b-Instruct-hf", "F=gpt-4-0613"): (22, 10, 4, 12, 16, 3, 2, 91),
    ("gpt-3.5-turbo-0613", "F=gpt-4-0613"): (34, 43, 22, 14, 46, 23, 30, 89),
    ("lemur-70b-chat-v1.even", "F=gpt-4-0613"): (16, 10, 9, 6, 13, 16, 13, 50),
}
"""Successes by subset in the order of SUBSETS, counted in the published logs."""
FAILED = {
    ("Llama-2-70b-chat-hf", "F=None"): (40, 8),
    ("CodeLlama-34b-Instruct-hf", "F=None"): (38, 33),
    ("gpt-3.5-turbo-0613", "F=None"): (17, 15),
    ("lemur-70b-chat-v1.even", "F=None"): (16, 15),
    ("Llama-2-70b-chat-hf", "F=gpt-4-0613"): (46, 12),
    ("CodeLlama-34b-Instruct-hf", "F=gpt-4-0613"): (37, 22),
    ("gpt-3.5-turbo-0613", "F=gpt-4-0613"): (22, 4),
    ("lemur-70b-chat-v1.even", "F=gpt-4-0613"): (13, 13),
}


Counted = Mapping[str, Counts]


@cache
def run(data: Path, model: str, setting: str) -> Counted:
    folder = data / "mint" / "outputs" / model / setting
    return {subset: counts_of_recording(folder / f"{subset}.results.jsonl.gz") for subset in SUBSETS}


def average(counts: Counted, group: str) -> tuple[int, int]:
    return together(counts[subset] for subset in SUBSETS if column_of(subset) in GROUPS[group])


def column_of(subset: str) -> str:
    return describe_run(f"mint/{subset}", EvaluationRun("mine")).column


def model_of(log: str) -> str:
    recorded = describe_run("mint/math", EvaluationRun(f"replay:{log}/F=None")).recorded
    assert recorded is not None
    return recorded.model


def percent(hits_of: tuple[int, int]) -> float:
    return round(100 * hits_of[0] / hits_of[1], 2)


@pytest.mark.parametrize(("model", "setting"), SOLVED)
def test_successes_of_every_recorded_run_are_the_published_integers(data_dir: Path, model: str, setting: str) -> None:
    counts = run(data_dir, model, setting)
    assert tuple(counts[subset].solved for subset in SUBSETS) == SOLVED[model, setting]
    assert (counts["math"].with_traceback, counts["math"].with_invalid) == FAILED[model, setting]


@pytest.mark.parametrize("log", WHOLE)
def test_every_cell_of_tables_4_5_7_and_9_is_the_printed_one(data_dir: Path, log: str) -> None:
    counts, model = run(data_dir, log, "F=None"), model_of(log)
    for subset in SUBSETS:
        assert counts[subset].n == COLUMNS[column_of(subset)].n
        assert counts[subset].percent() == COLUMNS[column_of(subset)].values[model], subset
    assert percent(average(counts, "reasoning")) == TABLE_4_MICRO[model]
    assert (counts["math"].percent("with_traceback"), counts["math"].percent("with_invalid")) == TABLE_9[model]


@pytest.mark.parametrize(("log", "gain"), [*zip(WHOLE, (5.31, 4.20, 12.39), strict=True)])
def test_table_6_is_the_printed_one_for_the_whole_runs(data_dir: Path, log: str, gain: float) -> None:
    without, taught = run(data_dir, log, "F=None"), run(data_dir, log, "F=gpt-4-0613")
    (printed,) = [row for row in TABLE_6 if row.model == model_of(log)]
    names = ("reasoning", "code", "micro")
    assert tuple(percent(average(without, name)) for name in names) == printed.without
    assert tuple(percent(average(taught, name)) for name in names) == printed.with_feedback
    (before, n), (after, also) = average(without, "micro"), average(taught, "micro")
    assert (round(100 * (after / also - before / n), 2), printed.gain) == (gain, gain)


def test_half_a_run_gives_the_known_averages(data_dir: Path) -> None:
    without = run(data_dir, "lemur-70b-chat-v1.even", "F=None")
    assert [average(without, name) for name in GROUPS] == [(52, 159), (21, 69), (73, 228), (119, 295)]
    feedback = run(data_dir, "lemur-70b-chat-v1.even", "F=gpt-4-0613")
    assert [average(feedback, name) for name in GROUPS] == [(54, 159), (29, 69), (83, 228), (133, 295)]


def test_printed_numbers_that_differ_from_public_logs_are_named() -> None:
    said = " ".join(NOTES)
    sizes = {column_of(subset): COLUMNS[column_of(subset)].n for subset in SUBSETS}
    reasoning, micro = (sum(sizes[subset] for subset in GROUPS[name]) for name in ("reasoning", "micro"))
    for hits, n in ((103, reasoning), (164, micro), (405, sum(sizes.values())), (292, micro)):
        assert f"{100 * hits / n:.2f}" in said
