"""The learner: restores the train state, makes a round's updates, and commits the new weights.

A round is committed whole: a process killed during its updates makes all of them again from the last commit. Knows
nothing of Ray, of episodes and of serving.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import Recipe, differing_fields
from lemur_ray.improve.training_rows import Rows
from lemur_ray.model.compile_cache import cache_folder, use_compile_cache
from lemur_ray.model.sharding import to_devices
from lemur_ray.train.checkpoint import Checkpoints, SaveFailed
from lemur_ray.train.initial_state import open_state
from lemur_ray.train.pod.placement import mesh_here
from lemur_ray.train.pod.slices import on_devices
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped
from lemur_ray.train.step import make_train_step
from lemur_ray.weights.checkpoints import CHECKPOINTS, Commit, commits


class Committed(NamedTuple):
    """Weights that are on the disk."""

    step: int
    """Updates since the start of the run."""
    folder: str
    """Folder of the checkpoint."""
    numbers: Mapping[str, Any]
    """Losses and counts of the round's updates; empty for the start."""


@dataclass(frozen=True)
class LearnerSpec:
    """What a learner trains: picklable."""

    recipe: Recipe
    out: str
    """Run folder."""
    init_from: str
    """Model whose parameters start the run."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that identify the run; stored in each checkpoint and compared on resume."""


class Learner:
    """A train state on this process's devices. Call ``open`` first."""

    def __init__(self, spec: LearnerSpec) -> None:
        self._spec = spec

    def open(self) -> Committed:
        """Restore the newest commit, or commit the initial weights as step 0. Raises RunFolderError for another run's
        checkpoints, TrainingStopped."""
        spec = self._spec
        use_compile_cache(cache_folder(spec.out))
        where, self._mesh = mesh_here(spec.recipe)
        self._checkpoints = Checkpoints(f"{spec.out}/{CHECKPOINTS}", keep=spec.recipe.train.keep_checkpoints)
        step, self._state, _, stored = open_state(
            spec.recipe, self._mesh, self._checkpoints, recognise=self._recognised, init_from=spec.init_from
        )
        self._step = make_train_step(on_devices(spec.recipe, where), self._mesh, num_sources=1)
        if not stored:
            return self._commit(0, {})
        return Committed(step, self._checkpoints.path(step), stored["round"])

    def train(self, number: int, rows: Rows, order: np.ndarray) -> Committed:
        """Make the updates of round ``number`` and commit the weights.

        order: (updates, rows_per_step) numbers of rows. Raises TrainingStopped, with nothing saved, if a weight is not
        finite afterwards or every update was skipped; SaveFailed.
        """
        begun, history = time.monotonic(), []
        for chosen in order:
            batch = {name: array[chosen] for name, array in rows.items()}
            self._state, metrics = self._step(self._state, to_devices(batch, self._mesh))
            history.append({name: metrics[name] for name in ("loss", "grad_norm", "skipped", "weight_sum")})
        values = {name: np.array([float(one[name]) for one in history]) for name in history[0]}
        skipped = int(values["skipped"].sum())
        finite = all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(self._state.params))
        if not finite or skipped == len(order):
            what = "weights that are not finite" if not finite else "no update that could be kept"
            raise TrainingStopped(
                f"round {number}: its updates gave {what} ({skipped} of {len(order)} were skipped): nothing is saved, "
                f"the weights of round {number - 1} stay; choose a lower --optimizer.peak-lr and another --out"
            )
        kept = values["skipped"] == 0
        numbers = {
            "round": number, "updates": len(order), "skipped": skipped, "num_rows": len(rows["tokens"]),
            "loss": float(values["loss"][kept].mean()), "grad_norm": float(values["grad_norm"][kept].mean()),
            "trained_weight": float(values["weight_sum"].sum()), "learn_s": round(time.monotonic() - begun, 2),
        }  # fmt: skip
        return self._commit(number * len(order), numbers)

    def close(self) -> None:
        """Stop the threads that write checkpoints."""
        if hasattr(self, "_checkpoints"):
            self._checkpoints.__exit__()

    def _commit(self, step: int, numbers: Mapping[str, Any]) -> Committed:
        recipe = self._spec.recipe
        content = {"rows": step * recipe.train.rows_per_step, "hash": recipe.hash, "corpus": "play"}
        self._checkpoints.save(step, self._state, {**content, **self._spec.described, "round": dict(numbers)})
        self._checkpoints.wait()
        if step not in [commit.step for commit in commits(f"{self._spec.out}/{CHECKPOINTS}")[0]]:  # a save timed out
            raise SaveFailed(f"the weights of step {step} could not be saved: run the same command again to resume")
        return Committed(step, self._checkpoints.path(step), numbers)

    def _recognised(self, commit: Commit) -> str:
        check_same(commit.plan, self._spec.described, f"checkpoint {commit.folder}")
        return f"{commit.plan['round'].get('round', 0)} rounds are trained"


def check_same(stored: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Raise RunFolderError, with every differing field, unless ``stored`` has the identity ``wanted`` of a run."""
    if differing := differing_fields({name: stored.get(name) for name in wanted}, dict(wanted)):
        raise RunFolderError(
            f"{where} belongs to another run (stored != requested): {'; '.join(differing)}; use the same settings to "
            "resume it, or another --out to start a new run"
        )
