"""Row i of a plan is a pure function; epochs come out as asked; a corpus that is too small is said."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lemur_ray.config import DataConfig, Recipe, SourceConfig, TrainConfig
from lemur_ray.plan.plan import Plan, PlanError, PlanSource, plan_for
from lemur_ray.recipes.lemur_mixture import TABLE_8, table8_sources


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    num_rows = draw(st.integers(50, 3000))
    sources = []
    for index in range(draw(st.integers(1, 5))):
        epochs = draw(st.sampled_from([0.06, 0.69, 1.0, 1.26, 2.98, 7.0]))
        weight = draw(st.floats(0.05, 1.0))
        sources.append(PlanSource(f"s{index}", "code", 40 * num_rows, weight, epochs))
    return Plan(tuple(sources), draw(st.integers(0, 10**6)), num_rows)


@given(plans())
@settings(max_examples=60, deadline=None)
def test_each_full_epoch_is_a_permutation_of_one_fixed_set_of_rows(plan: Plan) -> None:
    where = plan.rows(np.arange(plan.num_rows))
    for index, used in enumerate(plan.used_rows):
        mine = where.source == index
        first = set(where.example[mine & (where.epoch == 0)].tolist())
        for epoch in range(int(where.epoch[mine].max(initial=0)) + 1):
            seen = where.example[mine & (where.epoch == epoch)].tolist()
            assert len(set(seen)) == len(seen) <= used
            if epoch:
                assert set(seen) <= first
                assert len(first) == used


@given(plans())
@settings(max_examples=60, deadline=None)
def test_epochs_come_out_as_asked_to_within_a_row_and_every_row_is_visited_floor_or_ceil_of_them(plan: Plan) -> None:
    where = plan.rows(np.arange(plan.num_rows))
    for index, source in enumerate(plan.sources):
        visits = np.unique(where.example[where.source == index], return_counts=True)[1]
        assert source.epochs is not None
        assert visits.max(initial=0) <= int(np.ceil(source.epochs))
        if source.epochs >= 1 and plan.counts[index]:
            assert visits.sum() / plan.used_rows[index] <= source.epochs * (1 + 1e-9)
            assert visits.sum() > source.epochs * (plan.used_rows[index] - 1)
            assert len(visits) == plan.used_rows[index]
            assert visits.min() == visits.sum() // len(visits)
            assert visits.max() == -(-visits.sum() // len(visits))


@given(plans(), st.lists(st.integers(0, 49), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_one_row_equals_the_same_row_among_many(plan: Plan, rows: list[int]) -> None:
    where = plan.rows(np.array(rows))
    assert [tuple(plan.row(i)) for i in rows] == [tuple(int(a[k]) for a in where) for k in range(len(rows))]


def test_epochs_below_one_are_the_same_subset_in_every_run_with_the_seed() -> None:
    def subset(seed: int) -> set[int]:
        plan = Plan((PlanSource("a", "code", 1000, 1.0, 0.25),), seed, 200)
        return set(plan.rows(np.arange(200)).example.tolist())

    assert subset(1) == subset(1)
    assert len(subset(1)) == 200
    assert subset(1) != subset(2)


def test_rows_of_different_epochs_come_in_different_orders() -> None:
    plan = Plan((PlanSource("a", "code", 100, 1.0, 3.0),), 0, 300)
    example = plan.rows(np.arange(300)).example.reshape(3, 100)
    assert (example[0] != example[1]).any()
    assert (example[1] != example[2]).any()


def test_the_order_does_not_depend_on_the_length_of_the_run_where_whole_sources_are_open() -> None:
    sources = (PlanSource("a", "code", 5000, 3.0), PlanSource("b", "text", 5000, 1.0))
    short, long = Plan(sources, 3, 500), Plan(sources, 3, 4000)
    np.testing.assert_array_equal(short.rows(np.arange(500)), long.rows(np.arange(500)))


def test_skipped_ranges_are_left_out_and_everything_else_stays_in_order() -> None:
    sources = (PlanSource("a", "code", 500, 3.0), PlanSource("b", "text", 500, 1.0))
    skip = ((10, 20), (15, 30), (100, 101), (0, 2))
    raw = Plan(sources, 0, 423)
    kept = [i for i in range(423) if not (10 <= i < 30 or i == 100 or i < 2)]
    np.testing.assert_array_equal(Plan(sources, 0, 400, skip).rows(np.arange(400)), raw.rows(np.array(kept)))


def test_row_ten_billion_is_there_at_once() -> None:
    plan = Plan((PlanSource("a", "code", 10**10, 9.0), PlanSource("b", "text", 10**10, 1.0)), 0, 10**10 + 1)
    assert plan.row(10**10).example < 10**10
    with pytest.raises(IndexError, match="rows 0 to 10000000000"):
        plan.row(10**10 + 1)


def test_a_source_too_small_for_its_epochs_is_an_error_with_numbers_that_would_do() -> None:
    with pytest.raises(
        PlanError, match=r"source a: 1000 rows .* 500 different rows, the corpus has 400: .* 2\.5 epochs"
    ):
        Plan((PlanSource("a", "code", 400, 1.0, 2.0),), 0, 1000)
    with pytest.raises(PlanError, match="in one pass need 1000 different rows"):
        Plan((PlanSource("a", "code", 400, 1.0),), 0, 1000)
    assert Plan((PlanSource("a", "code", 400, 1.0, 2.5),), 0, 1000).used_rows == (400,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), 0, 10), "without sources"),
        (((PlanSource("a", "code", 9, 1.0),), 0, 0), "at least 1"),
        (((PlanSource("a", "code", 9, 1.0, -1.0),), 0, 5), "epochs -1.0"),
        (((PlanSource("a", "code", 9, 0.0),), 0, 5), "positive sum"),
        (((PlanSource("a", "code", 9, 1.0),), 0, 5, ((3, 3),)), "skipped range 3:3"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan(*arguments)


def test_table_8_gives_its_epochs_and_effective_tokens_within_half_a_percent() -> None:
    total_tokens, rows = 90e9, 21_972_992
    sources = []
    for row, source in zip(TABLE_8, table8_sources(), strict=True):
        billions = row.effective_tokens_billion
        unique = billions * 1e9 / (row.epochs or 1.0) / 4096
        # The corpus holds a little more than is needed, as any real one does.
        sources.append(PlanSource(source.name, source.kind, int(unique * 1.02), source.weight, source.epochs))
    plan = Plan(tuple(sources), 0, rows)
    assert plan.counts[0] == 15_996_954
    for row, entry in zip(TABLE_8, plan.summary(), strict=True):
        tokens_billion = entry["built_share"] * total_tokens / 1e9
        # Two printed decimals: half a unit in the last place of weight and of tokens, beside the 0.5 %.
        rounding = 0.005 + 0.005 / 100 * total_tokens / 1e9
        assert abs(tokens_billion - row.effective_tokens_billion) <= 0.005 * row.effective_tokens_billion + rounding
        if row.epochs is not None:
            assert entry["built_epochs"] == pytest.approx(row.epochs, rel=0.005)


MANIFEST: dict[str, Any] = {
    "seq_len": 64,
    "sources": [
        {"name": "python", "kind": "code", "rows": 900, "tokens": 54_000},
        {"name": "c", "kind": "code", "rows": 100, "tokens": 6_000},
        {"name": "docs", "kind": "text", "rows": 30, "tokens": 1_900},
        {"name": "empty", "kind": "text", "rows": 0, "tokens": 0},
    ],
}


def recipe(steps: int = 100, **data: Any) -> Recipe:
    return Recipe(data=DataConfig(seq_len=64, **data), train=TrainConfig(steps=steps, rows_per_step=4))


def test_without_sources_the_plan_mixes_the_corpus_ten_to_one_by_tokens_within_a_kind() -> None:
    plan = plan_for(recipe(), MANIFEST)
    shares = {entry["name"]: entry["asked_share"] for entry in plan.summary()}
    assert shares == pytest.approx({"python": 10 / 11 * 0.9, "c": 10 / 11 * 0.1, "docs": 1 / 11})
    text = plan_for(recipe(code_to_text=1.0), MANIFEST).summary()[2]
    assert text["asked_share"] == pytest.approx(0.5)


def test_a_run_longer_than_the_corpus_repeats_what_it_has() -> None:
    plan = plan_for(recipe(steps=1000), MANIFEST)
    built = {entry["name"]: entry["built_epochs"] for entry in plan.summary()}
    assert built["docs"] == pytest.approx(4000 / 11 / 30, rel=0.01)
    assert plan.used_rows == (900, 100, 30)


def test_a_corpus_of_one_kind_gets_the_whole_run() -> None:
    manifest = {"seq_len": 64, "sources": [{"name": "chat", "kind": "chat", "rows": 10, "tokens": 600}]}
    assert plan_for(recipe(), manifest).counts == (400,)


def test_named_sources_with_epochs_are_taken_as_they_are() -> None:
    plan = plan_for(recipe(sources=(SourceConfig("python", "code", 1.0, 2.0), SourceConfig("docs"))), MANIFEST)
    assert plan.used_rows == (100, 30)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sources": (SourceConfig("java", "code"),)}, "'java' is not in the corpus: it has c, docs, empty, python"),
        ({"sources": (SourceConfig("empty", "text"),)}, "'empty' has no rows"),
        ({"sources": (SourceConfig("docs", "text", 1.0, 1.0),)}, "the corpus has 30"),
    ],
)
def test_a_recipe_that_does_not_fit_the_corpus_is_an_error_that_says_how(data: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_for(recipe(**data), MANIFEST)


def test_rows_of_another_length_are_refused() -> None:
    with pytest.raises(PlanError, match="rows of 1024 tokens, the corpus rows of 64"):
        plan_for(Recipe(), MANIFEST)


def test_overlapping_skips_and_skips_after_the_end_count_as_what_they_leave_out() -> None:
    def built(*skips: tuple[int, int]) -> list[int]:
        train = TrainConfig(steps=100, rows_per_step=4, skip_rows=skips)
        plan = plan_for(dataclasses.replace(recipe(), train=train), MANIFEST)
        return [source["built_rows"] for source in plan.summary()]

    assert built((8, 12), (10, 16)) == built((8, 16))
    assert built((8, 16), (900, 5000)) == built((8, 16))


def test_skipped_rows_of_the_recipe_do_not_shorten_the_run() -> None:
    skipping = dataclasses.replace(recipe(), train=TrainConfig(steps=100, rows_per_step=4, skip_rows=((8, 12),)))
    plan, plain = plan_for(skipping, MANIFEST), plan_for(recipe(steps=101), MANIFEST)
    assert plan.num_rows == 400
    np.testing.assert_array_equal(plan.rows(np.arange(8, 400)), plain.rows(np.arange(12, 404)))
