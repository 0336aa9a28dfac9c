"""Stages: a run goes on with another one's moments, bit for bit; what changes is recorded, what cannot work refused."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from lemur_ray.config import OptimizerConfig, Recipe
from lemur_ray.config.model import RopeScaling
from lemur_ray.host.file_lock import hold
from lemur_ray.train.optimizer import learning_rate
from lemur_ray.train.run.folder import Run, RunFolderError
from lemur_ray.train.run.stage import staged
from lemur_ray.weights.convert import Convert, convert
from tests.weights.whole_models import params_of

Recipes = Callable[..., Recipe]


class Killed(BaseException):
    """Stands for the end of the process in the middle of a run."""


def with_schedule(recipe: Recipe, schedule: str, **fields: object) -> Recipe:
    optimizer = dataclasses.replace(recipe.optimizer, schedule=schedule, **fields)  # type: ignore[arg-type]
    return dataclasses.replace(recipe, optimizer=optimizer)


def same_params(a: Path, b: Path) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, params_of(a), params_of(b)))


def test_schedules_stay_at_the_peak_as_long_as_they_say() -> None:
    def rates(**fields: object) -> list[float]:
        config = OptimizerConfig(peak_lr=1.0, warmup_steps=2, **fields)  # type: ignore[arg-type]
        return [round(float(learning_rate(config, 10, np.float64(n), np)), 6) for n in range(1, 11)]

    assert rates(schedule="constant") == [0.5] + [1.0] * 9
    linear = rates(schedule="wsd", decay_fraction=0.4, final_lr_fraction=0.2)
    assert linear == [0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2]
    root = rates(schedule="wsd", decay_fraction=0.4, final_lr_fraction=0.0, decay_shape="1-sqrt")
    assert root[5:] == [1, 0.5, round(1 - 0.5**0.5, 6), round(1 - 0.75**0.5, 6), 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "kills"), [((8, 12), (3,)), pytest.param((100, 150), (1, 6, 16, 21), marks=pytest.mark.sweep)]
)
def test_a_run_and_its_stage_equal_one_run_to_the_bit(
    steps: tuple[int, int],
    kills: tuple[int, ...],
    tmp_path: Path,
    run_here: Callable,
    small_recipe: Recipes,
    read_losses: Callable,
) -> None:
    """Also if the stage is killed and started again. kills: batches after which each start is killed."""
    first, both = steps
    every = {"checkpoint_every_steps": 4, "eval_rows": 0}
    decaying = with_schedule(small_recipe(steps=both, **every), "wsd", decay_fraction=(both - first) / both)
    straight, parent, stage = (tmp_path / name for name in ("straight", "parent", "stage"))
    run_here(decaying, straight)
    run_here(with_schedule(small_recipe(steps=first, **every), "constant"), parent)

    def killed(batches: Iterator, after: int) -> Iterator:
        yield from itertools.islice(batches, after)
        raise Killed

    for after in kills:
        with pytest.raises(Killed):
            run_here(decaying, stage, resume_from=str(parent), feed=partial(killed, after=after))
    lines: list[str] = []
    result = run_here(decaying, stage, resume_from=str(parent), lines=lines)
    assert result["replays_that_differ"] == []
    together = {**read_losses(parent), **read_losses(stage)}
    assert together == read_losses(straight)
    assert same_params(straight, stage)


@pytest.mark.slow
def test_a_stage_with_other_data_begins_its_plan_anew_and_records_what_changed(
    tmp_path: Path, run_here: Callable, small_recipe: Recipes
) -> None:
    recipe = small_recipe(steps=4, eval_rows=0)
    run_here(recipe, tmp_path / "parent")
    other = dataclasses.replace(small_recipe(steps=6, eval_rows=0), data=dataclasses.replace(recipe.data, seed=5))
    lines: list[str] = []
    rows: list[int] = []

    def seen(batches: Iterator) -> Iterator:
        for batch in batches:
            rows.extend(batch["row"].tolist())
            yield batch

    spec = str(tmp_path / "parent")
    run_here(other, tmp_path / "stage", resume_from=spec, lines=lines, feed=seen, keep={"keep_guard": False})
    assert rows[:4] == [0, 1, 2, 3]
    assert any("read plan rows 0 to 8: counts on from step 4, its rows begin anew at 0" in line for line in lines)
    written = json.loads((tmp_path / "stage" / "recipe.json").read_text())
    assert "recipe.data.seed: 0 != 5" in written["stage"]["changed"]
    assert "recipe.train.steps: 4 != 6" in written["stage"]["changed"]
    assert written["resume_from"].endswith("step 4")
    run_here(other, tmp_path / "again", resume_from=f"{spec}/checkpoints/4", keep={"keep_step": False})
    first = json.loads((tmp_path / "again" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["step"] == 1


def test_a_stage_may_have_longer_rows_and_other_angles(
    tmp_path: Path, run_here: Callable, small_recipe: Recipes
) -> None:
    run_here(small_recipe(steps=4, eval_rows=0), tmp_path / "parent")
    corpus = json.loads((tmp_path / "parent" / "recipe.json").read_text())["corpus_path"]
    longer = small_recipe(steps=6, eval_rows=0)
    angles = RopeScaling(kind="yarn", factor=4.0, original_max_seq_len=longer.model.max_seq_len)
    moved = dataclasses.replace(longer.model, max_seq_len=512, rope_theta=5e5, rope_scaling=angles)
    run = Run(dataclasses.replace(longer, model=moved), corpus, str(tmp_path / "stage"))
    stage = staged(run, str(tmp_path / "parent")).stage
    assert stage is not None
    assert "recipe.model.rope_theta: 10000.0 != 500000.0" in stage.changed
    assert any(text.startswith("recipe.model.rope_scaling") for text in stage.changed)


def test_stages_that_cannot_work_are_refused(tmp_path: Path, run_here: Callable, small_recipe: Recipes) -> None:
    recipe, spec = small_recipe(steps=4, eval_rows=0), str(tmp_path / "parent")
    longer = small_recipe(steps=6, eval_rows=0)
    run_here(recipe, tmp_path / "parent")
    corpus = json.loads((tmp_path / "parent" / "recipe.json").read_text())["corpus_path"]

    def refused(recipe: Recipe, spec: str, match: str, init_from: str = "") -> None:
        with pytest.raises(RunFolderError, match=match):
            staged(Run(recipe, corpus, str(tmp_path / "stage"), init_from), spec)

    refused(recipe, spec, "is at step 4: expected --train.steps above it, got 4")
    wider = dataclasses.replace(longer, model=dataclasses.replace(longer.model, ffn_dim=96))
    refused(wider, spec, r"has another model or optimizer .*\n  recipe.model.ffn_dim: 64 != 96")
    eps = dataclasses.replace(longer, model=dataclasses.replace(longer.model, norm_eps=1e-6))
    refused(eps, spec, r"recipe.model.norm_eps: 1e-05 != 1e-06")
    adamw = dataclasses.replace(longer, optimizer=OptimizerConfig())
    refused(adamw, spec, r"optimizer.name: 'muon' != 'adamw'")
    lora = dataclasses.replace(adamw, lora=dataclasses.replace(longer.lora, rank=2))
    refused(lora, spec, "recipe.lora: None != ")
    refused(longer, str(tmp_path / "nothing"), "expected a run with a committed checkpoint")
    refused(longer, spec, "any other run nothing", init_from=spec)
    with hold(tmp_path / "parent" / ".run.lock"):
        refused(longer, spec, "that run is still going on")
    convert(Convert(spec, str(tmp_path / "plain"), "run"), str(tmp_path / "plain"))
    refused(longer, str(tmp_path / "plain"), "has no moments of an optimizer")
