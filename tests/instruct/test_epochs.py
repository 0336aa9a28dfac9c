"""Runs measured in passes: 128 conversations a step on average, whole passes, each conversation equally often."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemur_ray.config import MeshConfig, Recipe, TrainConfig, TuningConfig
from lemur_ray.instruct.epochs import WholeEpochs, whole_epochs, with_whole_epochs
from lemur_ray.plan.plan import plan_for
from lemur_ray.recipes import get_recipe
from lemur_ray.train.pod.placement import batch_parts


@given(st.integers(1, 5), st.integers(1, 300), st.integers(1, 64), st.integers(1, 5000), st.integers(1, 20))
def test_passes_are_whole_batches_and_few_rows_are_empty(
    epochs: int, batch: int, multiple: int, rows: int, per_row: int
) -> None:
    whole = WholeEpochs(epochs, batch, multiple)
    step, total = whole.rows_per_step(rows, rows * per_row), whole(rows, rows * per_row)
    assert step % multiple == 0
    assert epochs * total % step == 0
    assert rows <= total < rows + step
    assert abs(step - batch / per_row) <= max(multiple / 2 + 1e-9, multiple - batch / per_row)


def manifest(total: int, filled: int, examples: int) -> dict:
    source = {"name": "chat", "kind": "chat", "rows": total, "empty_rows": total - filled, "documents": examples}
    return {"sources": [{**source, "tokens": 1}], "seq_len": 64}


def small(**tuning: float) -> Recipe:
    recipe = Recipe(train=TrainConfig(steps=7, rows_per_step=3), tuning=TuningConfig(epochs=2, **tuning))  # type: ignore[arg-type]
    return dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, seq_len=64))


def test_every_row_is_visited_twice_in_another_order_each_time() -> None:
    recipe = small(batch_examples=12)
    rows = whole_epochs(recipe, batch_parts(recipe.mesh))(101, 303)
    recipe, said = with_whole_epochs(recipe, manifest(rows, 101, 303), 1)
    assert (recipe.train.rows_per_step, rows, recipe.train.steps) == (4, 102, 51)
    assert "303 conversations in 101 rows (3.00 a row) and 1 empty ones: 51 steps of 4 rows, 12.0" in said
    plan = plan_for(recipe, manifest(rows, 101, 303))
    order = plan.rows(np.arange(plan.num_rows)).example
    assert set(Counter(order.tolist()).values()) == {2}
    assert sorted(order[:rows]) == list(range(rows)), "the second pass begins before the first has ended"
    assert order[:rows].tolist() != order[rows:].tolist()


@pytest.mark.parametrize("fsdp", [8, -1])
def test_warm_up_is_a_share_of_the_steps_and_rows_divide_over_devices_and_microbatches(fsdp: int) -> None:
    recipe = dataclasses.replace(
        small(batch_examples=128),
        mesh=MeshConfig(num_workers=4, use_tpu=True, topology="2x2x4", accelerator_type="TPU-V4", fsdp=fsdp, tp=2),
    )
    recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, microbatches=2))
    whole = whole_epochs(recipe, batch_parts(recipe.mesh))
    assert whole.multiple == 16
    rows = whole(10_000, 28_000)
    recipe, said = with_whole_epochs(recipe, manifest(rows, 10_000, 28_000), 8)
    assert recipe.train.rows_per_step == 48
    assert recipe.optimizer.warmup_steps == -(-3 * recipe.train.steps // 100)
    assert "134.4 conversations on average (asked: 128)" in said


def test_a_recipe_without_passes_stays_as_it_is_and_a_table_of_other_batches_is_refused() -> None:
    recipe = get_recipe("nano-chat")
    assert with_whole_epochs(recipe, manifest(9, 9, 9), 1)[0] is recipe
    assert whole_epochs(recipe, batch_parts(recipe.mesh))(101, 303) == 101
    with pytest.raises(ValueError, match="no whole number of batches of 4 rows"):
        with_whole_epochs(small(batch_examples=12), manifest(101, 101, 303), 1)


@pytest.mark.parametrize("name", ["lemur-70b-chat", "lemur-7b-chat"])
def test_tuning_recipes_hold_the_papers_numbers(name: str) -> None:
    recipe = get_recipe(name)
    optimizer = recipe.optimizer
    assert (recipe.tuning.epochs, recipe.tuning.batch_examples, recipe.tuning.warmup_fraction) == (2, 128, 0.03)
    assert (optimizer.name, optimizer.peak_lr, optimizer.final_lr_fraction) == ("adamw", 2e-5, 0.0)
    assert (optimizer.weight_decay, optimizer.clip_norm) == (0.0, 1.0)
    assert recipe.data.seq_len == 2048
    assert abs(recipe.train.steps - 5747) <= 1
    assert recipe.model.vocab_size >= 32_000 + 5
    assert recipe.model.vocab_size % 128 == 0
    assert recipe.mesh.num_workers * 4 == recipe.mesh.fsdp * recipe.mesh.tp
    assert recipe.train.rows_per_step % whole_epochs(recipe, batch_parts(recipe.mesh)).multiple == 0


def test_a_table_of_an_older_version_is_found_under_its_name() -> None:
    """The shape is part of the name under which a shelf keeps a table; the words are those of the first version."""
    assert repr(WholeEpochs(2, 128, 16)) == "Passes(epochs=2, batch_examples=128, multiple=16)"


def test_a_number_of_steps_is_reported_with_its_passes_and_advice_where_they_are_many() -> None:
    recipe = dataclasses.replace(small(), tuning=TuningConfig())
    assert with_whole_epochs(recipe, manifest(7, 7, 20), 1) == (recipe, "7 steps of 3 rows, 3 passes over the table")
    _, line = with_whole_epochs(recipe, manifest(1, 1, 1), 1)
    assert "21 passes" in line
    many = dataclasses.replace(recipe, train=TrainConfig(steps=3600, rows_per_step=1))
    assert "--tuning.epochs" in with_whole_epochs(many, manifest(1, 1, 4), 1)[1]
