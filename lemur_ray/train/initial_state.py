"""The state a run goes on from: that of its newest checkpoint that can be read, else the beginning.

What lies beside the state in a checkpoint is JSON of the caller's, who also says whether the checkpoint is his. Knows
nothing of where batches come from, and of how steps are taken and workers started.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from lemur_ray.config import Recipe
from lemur_ray.train.checkpoint import Checkpoints, UnreadableCheckpoint
from lemur_ray.train.initial_params import frozen_base, initial_params
from lemur_ray.train.run.folder import TrainingStopped
from lemur_ray.train.step import TrainState, abstract_state, init_state
from lemur_ray.weights.checkpoints import Commit


class Opened(NamedTuple):
    """Unpack it: a step reuses the memory of the state it is given, and whoever kept this would hold on to it."""

    step: int
    """Steps taken; 0 at the beginning."""
    state: TrainState
    base: Any
    """The frozen parameters where adapters learn, else None."""
    beside: dict[str, Any]
    """The JSON that was saved beside the state; empty at the beginning."""


def open_state(
    recipe: Recipe,
    mesh: jax.sharding.Mesh,
    checkpoints: Checkpoints,
    *,
    recognise: Callable[[Commit], str],
    init_from: str = "",
    world_size: int = 1,
    say: Callable[[str], None] = print,
) -> Opened:
    """The state to go on from, laid out on the mesh. Every process of a run calls it alike.

    recognise: raises where a checkpoint is another run's; else what a person is told of it once it is restored.
    init_from: run, checkpoint or model folder whose parameters are the beginning, or what adapters are beside.

    Raises:
        TrainingStopped: every checkpoint that was ever committed is damaged, or one is of other arrays.
        RunFolderError: ``init_from`` is another model.
        UnreadableCheckpoint: one is damaged in a group of workers, which starts anew and then takes the one before.
    """
    abstract = abstract_state(recipe, mesh)
    for line in checkpoints.ignored:
        say(f"ignored {line}")
    state: Any = None
    step, beside = 0, dict[str, Any]()
    while state is None and (commit := agreed(checkpoints, world_size)) is not None:
        recognised = recognise(commit)
        try:
            state = checkpoints.restore(commit.step, abstract)
        except UnreadableCheckpoint as error:
            if world_size > 1:
                raise
            say(f"ignored: {error}")
            continue
        step, beside = commit.step, commit.plan
        say(f"resumed from checkpoint {step}: {recognised}")
    if state is None and (damaged := checkpoints.damaged()):
        raise TrainingStopped(
            f"none of the {len(damaged)} checkpoints of {checkpoints.folder.rpartition('/')[0]} can be read: bring one "
            f"of them back from a copy, or remove {checkpoints.folder} to begin again at step 0"
        )
    adapters = recipe.lora.rank > 0
    given = initial_params(init_from, recipe, mesh) if init_from and (state is None or adapters) else None
    if state is None:
        place = jax.tree.map(lambda leaf: leaf.sharding, abstract)
        state = jax.jit(lambda params: init_state(recipe, params), out_shardings=place)(given)
    return Opened(step, state, frozen_base(given, recipe) if adapters else None, beside)


def agreed(checkpoints: Checkpoints, world_size: int) -> Commit | None:
    """The newest committed checkpoint as rank 0 sees it: others may have listed the folder before it was tidied."""
    newest = checkpoints.newest()
    if world_size == 1:
        return newest
    step = int(multihost_utils.broadcast_one_to_all(np.array(newest.step if newest else -1)))
    return checkpoints.at(step) if step >= 0 else None
