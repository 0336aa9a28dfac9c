"""A training that is not ``loop``: batches of its own, the same step, checkpoints, metrics and goodput."""

import functools
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.model.sharding import make_mesh, to_devices
from lemur_ray.train.checkpoint import Checkpoints
from lemur_ray.train.checkpoint_schedule import CheckpointSchedule
from lemur_ray.train.initial_state import open_state
from lemur_ray.train.recorder import Recorder
from lemur_ray.train.run.attempt import RunAttempt
from lemur_ray.train.step import make_train_step
from lemur_ray.weights.checkpoints import Commit
from tests.train.clock_fields import CLOCK


@functools.cache
def compiled(recipe: Recipe, mesh: jax.sharding.Mesh) -> Callable[..., Any]:
    """Shared by the tests: most of their time is tracing."""
    return make_train_step(recipe, mesh, num_sources=1)


def rolled_out(recipe: Recipe, step: int) -> dict[str, np.ndarray]:
    """A batch that nobody has planned: of a counting game, drawn with the step as seed, weighted by its reward."""
    shape = (recipe.train.rows_per_step, recipe.data.seq_len)
    first = np.random.default_rng(step).integers(0, 8, (shape[0], 1))
    game = ((first + np.arange(shape[1] + 1)) % 8).astype(np.int32)
    return {
        "tokens": game[:, :-1], "targets": game[:, 1:], "segment_ids": np.ones(shape, np.int32),
        "positions": np.tile(np.arange(shape[1], dtype=np.int32), (shape[0], 1)),
        "loss_weights": np.where(first % 2, 0.5, 1.0).astype(np.float32) * np.ones(shape, np.float32),
        "source": np.zeros(shape[0], np.int32),
    }  # fmt: skip


def another_loop(recipe: Recipe, out: Path, say: Callable[[str], None], *, dies_after: int = 99) -> dict[str, Any]:
    """Everything that a run keeps, without ``loop``, a corpus and a plan."""

    def recognise(commit: Commit) -> str:
        assert commit.plan["game"] == "counting"
        return f"{commit.plan['rows']} episodes are played"

    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    step_fn = compiled(recipe, mesh)
    with Checkpoints(f"{out}/checkpoints", keep=2) as checkpoints:
        attempt = RunAttempt(f"{out}/goodput.jsonl")
        step, state, _, beside = open_state(recipe, mesh, checkpoints, recognise=recognise, say=say)
        schedule = CheckpointSchedule(checkpoints, recipe.train, attempt, say=say)
        with closing(
            Recorder(recipe, str(out), attempt, sources=["game"], progress=beside.get("progress"), say=say)
        ) as recorder:
            attempt.spent.switch("first_step")
            while step < recipe.train.steps:
                with attempt.spent.during("rollout"):
                    batch = rolled_out(recipe, step)
                state, metrics = step_fn(state, to_devices(batch, mesh))
                recorder.settle()
                step += 1
                recorder.took(step, metrics)
                if step == dies_after:
                    raise KeyboardInterrupt
                if due := schedule.due(step):
                    recorder.settle()
                    schedule.save(step, state, {"game": "counting", "rows": 2 * step, "progress": recorder.progress()})
                attempt.sign(step, now=due)
            recorder.settle()
            schedule.finish(step)
            return {**recorder.summary(), "goodput": attempt.account()}


@pytest.fixture
def recipe(small_recipe: Callable[..., Recipe]) -> Recipe:
    return small_recipe(log_every_steps=3)


def lines(out: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key not in CLOCK} for record in records]


def test_another_loop_learns_logs_checkpoints_and_resumes_with_the_pieces_of_ours(
    tmp_path: Path, recipe: Recipe
) -> None:
    whole = another_loop(recipe, tmp_path / "whole", lambda line: None)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        another_loop(recipe, tmp_path / "broken", said.append, dies_after=7)
    assert said[0].split()[:2] == ["step", "3/12"]
    result = another_loop(recipe, tmp_path / "broken", said.append)
    assert "resumed from checkpoint 4: 8 episodes are played" in said
    assert lines(tmp_path / "broken") == lines(tmp_path / "whole")
    assert [line["step"] for line in lines(tmp_path / "whole")] == [3, 6, 9, 12]
    assert result["loss"] == whole["loss"] == pytest.approx(result["loss/game"])
    assert result["loss"] < lines(tmp_path / "whole")[0]["loss"] - 0.5
    found = result["goodput"]
    assert (found["attempts"], found["replayed_steps"]) == (2, 2)
    assert min(found["seconds"][item] for item in ("useful", "replayed", "rollout", "checkpoint", "restart")) > 0


def test_a_skipped_step_of_another_loop_is_said_without_rows(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.train import test_another_loop as here

    def bad(recipe: Recipe, step: int) -> dict[str, np.ndarray]:
        batch = rolled_out(recipe, step)
        return {**batch, "loss_weights": batch["loss_weights"] * (np.float32("nan") if step == 4 else np.float32(1))}

    monkeypatch.setattr(here, "rolled_out", bad)
    said: list[str] = []
    result = here.another_loop(recipe, tmp_path, said.append)
    assert result["skipped_steps"] == 1
    assert [line for line in said if "skipped" in line] == ["step 5: update skipped (loss nan, gradient norm nan)"]
