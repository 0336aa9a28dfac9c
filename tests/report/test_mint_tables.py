"""The paper's tables come out of MINT's recorded runs, as integers where runs are whole."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from envs.mint.recording import SUBSETS
from lemur_ray.report.mint_tables import (
    Count,
    Run,
    SubsetCounts,
    feedback_gain,
    group,
    table_6,
    without_feedback,
)
from lemur_ray.report.paper import MODEL_OF_LOG
from tests.report.recorded_counts import counts_of_recording

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
TABLE_9 = {
    ("Llama-2-70b-chat-hf", "F=None"): (40, 8),
    ("CodeLlama-34b-Instruct-hf", "F=None"): (38, 33),
    ("gpt-3.5-turbo-0613", "F=None"): (17, 15),
    ("lemur-70b-chat-v1.even", "F=None"): (16, 15),
    ("Llama-2-70b-chat-hf", "F=gpt-4-0613"): (46, 12),
    ("CodeLlama-34b-Instruct-hf", "F=gpt-4-0613"): (37, 22),
    ("gpt-3.5-turbo-0613", "F=gpt-4-0613"): (22, 4),
    ("lemur-70b-chat-v1.even", "F=gpt-4-0613"): (13, 13),
}


@cache
def run(data: Path, model: str, setting: str) -> Run:
    folder = data / "mint" / "outputs" / model / setting
    return {subset: counts_of_recording(folder / f"{subset}.results.jsonl.gz") for subset in SUBSETS}


@pytest.mark.parametrize(("model", "setting"), SOLVED)
def test_successes_of_every_recorded_run_are_the_published_integers(data_dir: Path, model: str, setting: str) -> None:
    counts = run(data_dir, model, setting)
    assert tuple(counts[subset].solved.hits for subset in SUBSETS) == SOLVED[model, setting]
    math = counts["math"]
    assert (math.with_traceback.hits, math.with_invalid.hits) == TABLE_9[model, setting]


@pytest.mark.parametrize("model", WHOLE)
def test_every_cell_of_tables_4_5_7_and_9_is_the_printed_one(data_dir: Path, model: str) -> None:
    cells = without_feedback(run(data_dir, model, "F=None"), MODEL_OF_LOG[model])
    assert len(cells) == 11
    assert [cell for cell in cells if not cell.agrees] == []


@pytest.mark.parametrize(("model", "gain"), [*zip(WHOLE, (5.31, 4.20, 12.39), strict=True)])
def test_table_6_is_the_printed_one_for_the_whole_runs(data_dir: Path, model: str, gain: float) -> None:
    without, with_feedback = run(data_dir, model, "F=None"), run(data_dir, model, "F=gpt-4-0613")
    cells = table_6(without, with_feedback, MODEL_OF_LOG[model])
    assert len(cells) == 6
    assert [cell for cell in cells if not cell.agrees] == []
    assert feedback_gain(without, with_feedback) == gain


def test_half_a_run_gives_the_known_averages(data_dir: Path) -> None:
    without = run(data_dir, "lemur-70b-chat-v1.even", "F=None")
    averages = [group(without, name) for name in ("reasoning", "code", "micro", "all")]
    assert averages == [Count(52, 159), Count(21, 69), Count(73, 228), Count(119, 295)]
    feedback = run(data_dir, "lemur-70b-chat-v1.even", "F=gpt-4-0613")
    averages = [group(feedback, name) for name in ("reasoning", "code", "micro", "all")]
    assert averages == [Count(54, 159), Count(29, 69), Count(83, 228), Count(133, 295)]


def test_cells_that_differ_from_public_logs_say_so() -> None:
    run_without = {s: counts(0, n) for s, n in SIZES.items()}
    notes = {cell.column: cell.note for cell in table_6(run_without, run_without, "Lemur-70B-Chat")}
    assert "no public log" in notes["reasoning, with feedback"]
    assert not notes["code, with feedback"]
    assert any("ALFWorld" in cell.note for cell in table_6(run_without, None, "gpt-4"))


def test_an_average_over_a_missing_subset_is_an_error_that_names_it() -> None:
    with pytest.raises(KeyError, match="mbpp"):
        group({s: counts(1, n) for s, n in SIZES.items() if s != "mbpp"}, "code")


SIZES = dict(zip(SUBSETS, (48, 100, 49, 43, 76, 45, 91, 134), strict=True))


def counts(hits: int, n: int) -> SubsetCounts:
    return SubsetCounts(Count(hits, n), Count(0, n), Count(0, n))
