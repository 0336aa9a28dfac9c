"""The two rewards of InterCode-SQL, against scipy, against hand-computed cases and against published logs."""

import ast
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from lemur_ray.grading.sql import Reward, kendall_tau_b, sql_reward

ROWS = st.lists(st.tuples(st.integers(0, 5)), max_size=12)


def rows(*values: Any) -> list[tuple[Any, ...]]:
    return [(value,) for value in values]


@pytest.mark.parametrize(
    ("got", "gold", "iou", "tau"),
    [
        (None, rows(1), 0.0, 0.0),
        (None, [], 0.0, 0.0),
        ([], [], 1.0, 1.0),
        ([], rows(1), 0.0, 0.0),
        (rows(1), [], 0.0, 0.0),
        (rows(1), rows(1), 1.0, 1.0),  # one shared row: no order, nothing is rounded
        (rows(2, 1), rows(1, 2), 1.0, -1.0),  # a question without an order is punished for it
        (rows(1, 2, 3), rows(1, 2, 3), 1.0, 1.0),
        (rows(1, 1, 1), rows(1, 1, 1), 1.0, 1.0),  # constant: no order
        (rows(1, 2, 3), rows(1, 2), 2 / 3, 0.67),
        (rows(1, 1, 2), rows(1, 2, 2), 0.5, 0.5),
        (rows(1, 2, 9), rows(1, 8, 7), 0.2, 0.2),
        (rows(1), rows(1.0), 0.0, 0.0),  # compared as text
        (rows(None), rows("None"), 0.0, 0.0),
        ([(1, "a")], [("a", 1)], 0.0, 0.0),
        (rows(*range(1000)), rows(*range(999)), 0.999, 1.0),  # rounds to success
    ],
)
def test_rewards_of_the_cases_worked_out_by_hand(got: Any, gold: Any, iou: float, tau: float):
    assert sql_reward(got, gold, "iou") == iou
    assert sql_reward(got, gold, "tau") == tau


@settings(max_examples=300, deadline=None)
@given(pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_kendall_tau_equals_scipy(pairs: list[tuple[int, int]]):
    x, y = [a for a, _ in pairs], [b for _, b in pairs]
    expected = float(kendalltau(x, y).statistic) if len(pairs) > 1 else math.nan
    found = kendall_tau_b(x, y)
    assert math.isnan(found) if math.isnan(expected) else found == pytest.approx(expected, abs=1e-12)


@given(rows_=ROWS)
def test_a_result_equals_itself(rows_: list[tuple[int]]):
    assert sql_reward(rows_, rows_, "iou") == 1.0
    assert sql_reward(rows_, rows_, "tau") == 1.0


@given(got=ROWS, gold=ROWS)
def test_overlap_is_symmetric_and_bounded_and_tau_never_exceeds_it_by_more_than_rounding(got: Any, gold: Any):
    iou = sql_reward(got, gold, "iou")
    assert iou == sql_reward(gold, got, "iou")
    assert 0 <= iou <= 1
    assert -iou - 0.005 <= sql_reward(got, gold, "tau") <= iou + 0.005


def test_the_reward_of_ten_thousand_rows_is_quick_enough_for_every_turn():
    many = rows(*range(10_000))
    assert sql_reward(many[::-1], many, "tau") < 0


LOGS: list[tuple[str, Reward]] = [
    ("gpt-3.5/ic_sql_multiturn_gpt-3.5_10_turns_handicap.json.gz", "iou"),
    ("text-bison-001/ic_sql_multiturn_text-bison-001_10_turns_handicap.json.gz", "iou"),
    ("vicuna/ic_sql_multiturn_vicuna_10_turns.json.gz", "tau"),
]


@pytest.mark.parametrize(("name", "reward"), LOGS)
def test_logged_rewards_are_reproduced_from_logged_observations(data_dir: Path, name: str, reward: Reward):
    """Where an episode was solved, a solving observation equals gold; every other turn can be graded against it.

    Under tau a solving turn has gold's order, too. (A few logs hold one observation more or less than rewards.)
    """
    log = json.loads(gzip.decompress((data_dir / "intercode" / "logs" / "sql" / name).read_bytes()))
    graded = agreed = 0
    for episode in log.values():
        turns = episode["turn_history"]
        results = [_rows_of(observation) for observation in turns["observations"]]
        solving = [r for r, value in zip(results, turns["rewards"], strict=False) if value == 1 and r is not None]
        if not solving:
            continue
        for result, logged in zip(results, turns["rewards"], strict=False):
            if result is not None:
                graded += 1
                agreed += abs(sql_reward(result, solving[0], reward) - (logged or 0)) <= 0.005
    assert graded > 60
    assert agreed / graded >= 0.995, f"{agreed} of {graded} turns"


def _rows_of(observation: Any) -> list[tuple[Any, ...]] | None:
    """Rows of a logged observation; None where it is an error, or holds values that are no Python literals (dates)."""
    if not isinstance(observation, str) or not observation.startswith("["):
        return None
    try:
        return [tuple(row) for row in ast.literal_eval(observation)]
    except (ValueError, SyntaxError):
        return None
