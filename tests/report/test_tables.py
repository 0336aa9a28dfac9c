"""Sums over episodes: nothing is dropped, nothing missing becomes a zero in silence."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import episode

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.report.tables import by_run, compare, summarise, to_csv


@given(st.lists(st.sampled_from(list(Outcome)), min_size=1, max_size=60))
def test_every_episode_is_scored_or_missing_with_its_blame(outcomes: list[Outcome]) -> None:
    report = summarise(episode(f"t{i}", o, category="ab"[i % 2]) for i, o in enumerate(outcomes))
    overall = report.overall
    assert overall.n == len(outcomes)
    assert overall.scored + sum(overall.missing.values()) == overall.n
    assert overall.solved == outcomes.count(Outcome.SOLVED)
    assert sum(overall.outcomes.values()) == overall.n
    assert sum(g.n for g in report.categories) == overall.n
    assert sum(g.solved for g in report.categories) == overall.solved
    assert overall.success.n == overall.scored
    if overall.scored:
        assert overall.success.value in overall.success.interval
    else:
        assert overall.success.value is None


def test_a_missing_episode_is_left_out_of_the_rate_and_shown_as_failed_beside_it() -> None:
    outcomes = [Outcome.SOLVED] * 6 + [Outcome.FAILED] * 2 + [Outcome.INFRA_LOST, Outcome.ENV_ERROR]
    overall = summarise(episode(f"t{i}", o) for i, o in enumerate(outcomes)).overall
    assert overall.success.value == 0.75
    assert overall.success_missing_failed.value == 0.6
    assert overall.mean_score == 0.75
    assert overall.mean_score_missing_0 == 0.6
    assert overall.missing == {"env": 1, "infra": 1}


def test_partial_scores_move_the_mean_score_and_not_the_success_rate() -> None:
    overall = summarise([episode("a", Outcome.SOLVED), episode("b", Outcome.TURN_LIMIT, score=0.5)]).overall
    assert overall.success.value == 0.5
    assert overall.mean_score == 0.75


def test_actions_turns_tokens_and_retries_are_counted() -> None:
    overall = summarise(
        [
            episode("a", Outcome.SOLVED, turns=4),
            episode("b", Outcome.TURN_LIMIT, turns=6, valid=False, attempts=2),
            episode("c", Outcome.INFRA_LOST, turns=1, valid=False, attempts=3),
        ]
    ).overall
    assert (overall.invalid_actions.count, overall.invalid_actions.n) == (6, 10)
    assert overall.mean_turns_solved == 4
    assert overall.mean_turns == 5
    assert (overall.retried.count, overall.retried.n) == (2, 3)
    assert overall.prompt_tokens == 11 * 120


def test_an_empty_ledger_is_an_error() -> None:
    with pytest.raises(ValueError, match="no episodes"):
        summarise([])


def test_a_key_that_occurs_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="more than once"):
        summarise([episode("a", Outcome.SOLVED), episode("a", Outcome.FAILED)])


def test_runs_are_not_mixed() -> None:
    mixed = [episode("a", Outcome.SOLVED), episode("a", Outcome.FAILED, policy="other")]
    with pytest.raises(ValueError, match="2 runs"):
        summarise(mixed)
    assert [len(run) for run in by_run(mixed).values()] == [1, 1]


def test_policies_are_compared_on_tasks_that_both_were_scored_on() -> None:
    a = [episode("1", Outcome.SOLVED), episode("2", Outcome.SOLVED), episode("3", Outcome.INFRA_LOST)]
    b = [episode("1", Outcome.FAILED), episode("3", Outcome.SOLVED), episode("2", Outcome.SOLVED)]
    found = compare(a, b)
    assert found is not None
    assert (found.n, found.only_a, found.only_b, found.difference) == (2, 1, 0, 0.5)
    assert compare(a, [episode("9", Outcome.SOLVED)]) is None


def test_the_headline_has_what_the_command_line_promises_and_is_json() -> None:
    report = summarise([episode("a", Outcome.SOLVED), episode("b", Outcome.HARNESS_BUG)])
    line = json.loads(json.dumps(report.headline()))
    assert {"benchmark", "n", "scored", "solved", "success_rate", "missing"} <= line.keys()
    assert (line["n"], line["scored"], line["solved"], line["success_rate"]) == (2, 1, 1, 1.0)
    assert (line["missing"], line["missing_by_blame"]) == (1, {"harness": 1})


def test_every_rate_in_json_has_its_n_and_interval() -> None:
    value = json.loads(json.dumps(summarise([episode("a", Outcome.SOLVED)]).to_json()))
    for group in (value["overall"], *value["categories"]):
        for rate in ("success", "success_missing_failed", "retried", "invalid_actions"):
            assert {"count", "n", "value", "low", "high"} <= group[rate].keys()


def test_the_csv_holds_one_line_per_category_with_the_same_numbers() -> None:
    episodes = [episode(f"t{i}", Outcome.SOLVED if i % 3 else Outcome.FAILED, category="ab"[i % 2]) for i in range(9)]
    report = summarise(episodes)
    rows = list(csv.DictReader(io.StringIO(to_csv([report]))))
    assert [row["category"] for row in rows] == ["all", "a", "b"]
    assert float(rows[0]["success"]) == report.overall.success.value
    assert int(rows[0]["success_n"]) == 9
    assert float(rows[0]["success_low"]) == report.overall.success.interval.low


def test_tasks_played_several_times_are_clusters_and_pairs_of_their_own() -> None:
    def run(policy: str, solved: int, epochs: int) -> list[Episode]:
        return [
            episode(f"t{i}", Outcome.SOLVED if i < solved else Outcome.FAILED, policy=policy, epoch=epoch)
            for i in range(20)
            for epoch in range(epochs)
        ]

    once, often = summarise(run("a", 8, 1)).overall, summarise(run("a", 8, 5)).overall
    assert (often.success.count, often.success.n) == (40, 100)
    assert often.success.interval.high == pytest.approx(once.success.interval.high, abs=0.01)
    assert often.success.to_json()["interval"] == "wilson, clustered by task"
    assert often.success_missing_failed.interval == often.success.interval
    assert once.success.to_json()["interval"] == "wilson"
    found = compare(run("a", 8, 5), run("b", 5, 5))
    assert found is not None
    assert (found.n, found.only_a, found.only_b, found.test) == (20, 3, 0, "sign flips by task")
    alone = compare(run("a", 8, 1), run("b", 5, 1))
    assert alone is not None
    assert alone.test == "McNemar"
    assert found.p_value == pytest.approx(alone.p_value, abs=0.03), "five times the episodes are no more evidence"
