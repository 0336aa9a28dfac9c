"""The learner: restores the train state, makes a round's updates, and commits the new weights.

A round is committed whole: a process killed during its updates makes all of them again from the last commit. Knows
nothing of Ray, of episodes and of serving."""

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import Recipe, differing_fields
from lemur_ray.improve.surrogate import MOST_MISMATCH, Ratios, ratios
from lemur_ray.improve.training_rows import Rows
from lemur_ray.model.compile_cache import cache_folder, use_compile_cache
from lemur_ray.model.matmul import allowing
from lemur_ray.model.sharding import to_devices
from lemur_ray.train.checkpoint import Checkpoints, SaveFailed
from lemur_ray.train.initial_state import open_state
from lemur_ray.train.pod.placement import mesh_here
from lemur_ray.train.pod.slices import on_devices
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped
from lemur_ray.train.step import execution, make_train_step, token_losses
from lemur_ray.weights.checkpoints import CHECKPOINTS, Commit, commits


class Committed(NamedTuple):
    """Weights stored as a checkpoint in ``folder`` after ``step`` updates, with the ``numbers`` of their round."""

    step: int
    """Updates since the start of the run."""
    folder: str
    """Folder of the checkpoint."""
    numbers: Mapping[str, Any]
    """Losses and counts of the round's updates; empty for the start."""


@dataclass(frozen=True)
class LearnerSpec:
    """Recipe and initial model of a learner, folder of its weights (``out``), and identity of its run. Picklable."""

    recipe: Recipe
    out: str
    """Run folder."""
    init_from: str
    """Model whose parameters start the run."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that identify the run; stored in each checkpoint and compared on resume."""
    float64: bool = False
    """Log-probabilities are computed in float64, by server and learner."""


class Programs:
    """Compiled programs of a learner: one training step for each number of rows, and log-probabilities of ids. Compiled
    at the first use."""

    def __init__(self, recipe: Recipe, mesh: Any, float64: bool = False) -> None:
        self._recipe, self._mesh, self._float64 = recipe, mesh, float64
        how = execution(recipe, mesh)
        if float64:
            wide = {"compute_dtype": jnp.float64, "operand_dtype": jnp.float64, "attention": "chunked"}
            how = how._replace(forward=replace(how.forward, **wide))
        self._losses = jax.jit(partial(token_losses, recipe=recipe, how=how))
        self.step = functools.cache(self._compiled)

    def _compiled(self, num_rows: int) -> Any:
        """The step for batches of ``num_rows`` rows, a multiple of ``train.rows_per_step``."""
        train = self._recipe.train
        microbatches = train.microbatches * (num_rows // train.rows_per_step)
        recipe = replace(self._recipe, train=replace(train, microbatches=microbatches))
        return make_train_step(recipe, self._mesh, num_sources=1)

    def logprobs(self, params: Any, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        """(rows, length) float32: log-probability of each target in nats. batch: of ``step.Batch``, on the host."""
        size = self._recipe.train.rows_per_step
        parts = [{n: a[i : i + size] for n, a in batch.items()} for i in range(0, len(batch["tokens"]), size)]
        with allowing(self._float64):
            losses = [np.asarray(self._losses(params, to_devices(one, self._mesh)), np.float32) for one in parts]
        return -np.concatenate(losses)


class Learner:
    """A train state on this process's devices. ``open`` must be called first, ``close`` at the end."""

    def __init__(self, spec: LearnerSpec) -> None:
        self._spec = spec

    def open(self) -> Committed:
        """Restore the newest commit, or commit the initial weights as step 0. Raises RunFolderError for another run's
        checkpoints, TrainingStopped if all are damaged, ValueError if the devices do not suit the mesh."""
        spec = self._spec
        use_compile_cache(cache_folder(spec.out))
        where, self._mesh = mesh_here(spec.recipe)
        self._checkpoints = Checkpoints(f"{spec.out}/{CHECKPOINTS}", keep=spec.recipe.train.keep_checkpoints)
        step, self._state, _, stored = open_state(
            spec.recipe, self._mesh, self._checkpoints, recognise=self._recognised, init_from=spec.init_from
        )
        recipe = on_devices(spec.recipe, where)
        self._programs = Programs(recipe, self._mesh, spec.float64)
        if not stored:
            return self._commit(0, {})
        return Committed(step, self._checkpoints.path(step), stored["round"])

    def train(self, number: int, rows: Rows, order: np.ndarray, best: int = 0) -> Committed:
        """Make the updates of round ``number`` and commit the weights. The checkpoint of step ``best`` is kept. order:
        (updates, width) numbers of rows; -1 is an empty row. Rows with traces (``groups``) get the loss weights of the
        clipped surrogate. Raises TrainingStopped, with nothing saved, if a weight is not finite afterwards, every
        update was skipped, or the sampler had other weights; SaveFailed if the weights cannot be stored."""
        begun, history, all_ratios = time.monotonic(), [], list[Ratios]()
        filled = {name: np.concatenate([array, np.zeros_like(array[:1])]) for name, array in rows.items()}
        for chosen in order:
            batch = {name: array[chosen] for name, array in filled.items()}
            if "behaviour" in rows:
                all_ratios.append(self._weigh(number, batch, is_first=not all_ratios))
            self._state, metrics = self._programs.step(len(chosen))(self._state, to_devices(batch, self._mesh))
            history.append({name: metrics[name] for name in ("loss", "grad_norm", "skipped", "weight_sum")})
        values = {name: np.array([float(one[name]) for one in history]) for name in history[0]}
        empty = int((order < 0).all(axis=1).sum())  # updates without a row, which the step skips as well
        skipped = int(values["skipped"].sum()) - empty
        finite = all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(self._state.params))
        if not finite or skipped == len(order) - empty:
            what = "weights that are not finite" if not finite else "no update that could be kept"
            raise TrainingStopped(
                f"round {number}: its updates gave {what} ({skipped} of {len(order) - empty} were skipped): nothing "
                f"is saved, the weights of round {number - 1} stay; choose a lower --optimizer.peak-lr and another "
                "--out"
            )
        self._checkpoints.protected.clear()
        self._checkpoints.protected.add(best)
        kept = values["skipped"] == 0
        numbers = {
            "round": number, "updates": len(order), "empty": empty, "skipped": skipped, "num_rows": len(rows["tokens"]),
            "loss": float(values["loss"][kept].mean()), "grad_norm": float(values["grad_norm"][kept].mean()),
            "trained_weight": float(values["weight_sum"].sum()), "learn_s": round(time.monotonic() - begun, 2),
            **(_summary(all_ratios) if all_ratios else {}),
        }  # fmt: skip
        return self._commit(number * len(order), numbers)

    def _weigh(self, number: int, batch: dict[str, np.ndarray], is_first: bool) -> Ratios:
        """Put the weights of the clipped surrogate into a batch, and take out what the step does not read. Raises
        TrainingStopped if, before the first update, the sampler's log-probabilities are not the learner's."""
        behaviour, drawn = batch.pop("behaviour"), batch.pop("drawn")
        found = ratios(self._programs.logprobs(self._state.params, batch), behaviour, batch["loss_weights"], drawn)
        batch["loss_weights"] = found.weights
        is_exact = jax.default_backend() == "cpu" and self._spec.recipe.train.compute_dtype == "float32"
        if is_first and is_exact and not found.mean <= MOST_MISMATCH:
            raise TrainingStopped(
                f"round {number}: log-probabilities of the server and of the learner differ by {found.mean:.1e} on "
                f"average, more than {MOST_MISMATCH:.1e}, 100 times what equal weights give: nothing is trained; the "
                "server has other weights or computes otherwise (quantised?)"
            )
        return found

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


def _summary(of_updates: list[Ratios]) -> dict[str, float]:
    """Numbers of a round's updates: the mismatch before the first one, the others as means."""
    first = of_updates[0]
    means = {name: float(np.mean([getattr(one, name) for one in of_updates])) for name in ("k3", "clipped")}
    return {"mismatch_max": first.largest, "mismatch_mean": first.mean, "equal_bits": first.equal, **means}


def check_same(stored: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Raise RunFolderError, with every differing field, unless ``stored`` has the values ``wanted`` that identify a
    run. where: what is compared, for the message."""
    if differing := differing_fields({name: stored.get(name) for name in wanted}, dict(wanted)):
        raise RunFolderError(
            f"{where} belongs to another run (stored != requested): {'; '.join(map(str, differing))}; use the same "
            "settings to resume it, or another --out to start a new run"
        )
