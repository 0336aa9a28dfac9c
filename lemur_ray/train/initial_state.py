"""The train state a run continues from: its newest readable checkpoint, else the initial state, whose parameters may
be those of another run or model.

Every process reads only the slices of its own devices. The caller owns the JSON stored with the state and checks that a
checkpoint belongs to its run. Knows nothing of batches, of the training loop and of how workers are started."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp

from lemur_ray.config import Recipe
from lemur_ray.model.lora import frozen
from lemur_ray.model.sharding import param_shardings
from lemur_ray.train.checkpoint import Checkpoints, UnreadableCheckpoint
from lemur_ray.train.guard import init_guard
from lemur_ray.train.run.coordination import share
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped
from lemur_ray.train.run.needs import check_same_model
from lemur_ray.train.run.stage import Stage
from lemur_ray.train.step import TrainState, abstract_state, init_state
from lemur_ray.weights.checkpoints import Commit, fixed_checkpoint
from lemur_ray.weights.mesh_loading import place
from lemur_ray.weights.open_model import MODEL_ERRORS, open_model


class Opened(NamedTuple):
    """Result of `open_state`: the state and the steps it has taken. Unpack it: a step reuses the state's memory, which
    this tuple would keep alive."""

    step: int
    """Steps taken; 0 at the beginning."""
    state: TrainState
    base: Any
    """The frozen base parameters of an adapter run, else None."""
    content: dict[str, Any]
    """JSON object saved with the state in the checkpoint; empty at the beginning."""


def open_state(
    recipe: Recipe,
    mesh: jax.sharding.Mesh,
    checkpoints: Checkpoints,
    *,
    recognise: Callable[[Commit], str],
    init_from: str = "",
    stage: Stage | None = None,
    world_size: int = 1,
    say: Callable[[str], None] = print,
) -> Opened:
    """Restore or initialise the train state on the mesh. Every process of a run makes the same call.
    recognise: raises for a checkpoint of another run; else returns text on its position for the log. init_from: run,
    checkpoint or model folder of the initial parameters, or of the base of adapters; "": random ones. stage: another
    run's checkpoint, from which a run without a checkpoint of its own continues. world_size: number of processes. say:
    logs a line. Raises TrainingStopped if every committed checkpoint is damaged or one has other arrays, RunFolderError
    if ``init_from`` is a model of another shape, and with several workers UnreadableCheckpoint for a damaged
    checkpoint: restarted, they use the one before."""
    abstract = abstract_state(recipe, mesh)
    for entry in checkpoints.ignored:
        say(f"ignored {entry}")
    state: Any = None
    step, content = 0, dict[str, Any]()
    while state is None and (commit := checkpoints.newest()) is not None:
        recognised = recognise(commit)
        try:
            state = checkpoints.restore(commit.step, abstract)
        except UnreadableCheckpoint as error:
            if world_size > 1:
                raise
            say(f"ignored: {error}")
            continue
        step, content = commit.step, commit.plan
        say(f"resumed from checkpoint {step}: {recognised}")
    if state is None and (damaged := checkpoints.damaged()):
        raise TrainingStopped(
            f"none of the {len(damaged)} checkpoints of {checkpoints.folder.rpartition('/')[0]} can be read: bring one "
            f"of them back from a copy, or remove {checkpoints.folder} to begin again at step 0"
        )
    if state is None and stage is not None:
        state, step = _taken_over(stage, abstract), stage.first_step
        say(stage.note)
    adapters = recipe.lora.rank > 0
    start = None
    if init_from and (state is None or adapters):
        start = initial_params(share(partial(fixed_checkpoint, init_from)), recipe, mesh)
    if state is None:
        shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
        state = jax.jit(lambda params: init_state(recipe, params), out_shardings=shardings)(start)
    return Opened(step, state, frozen_base(start, recipe) if adapters else None, content)


def _taken_over(stage: Stage, abstract: TrainState) -> TrainState:
    """The train state of the stage's parent. Raises TrainingStopped if its checkpoint cannot be read."""
    try:
        with ocp.StandardCheckpointer() as reader:
            state: TrainState = reader.restore(f"{stage.checkpoint}/state", abstract)
    except (OSError, ValueError) as error:
        raise TrainingStopped(f"checkpoint {stage.checkpoint} cannot be continued: {error}") from error
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)

    def adjusted(state: TrainState) -> TrainState:
        opt = state.opt if stage.keep_guard else {**state.opt, "guard": init_guard()}
        return TrainState(jax.numpy.full_like(state.step, stage.first_step), state.params, opt)

    out: TrainState = jax.jit(adjusted, out_shardings=shardings, donate_argnums=0)(state)
    return out


def initial_params(spec: str, recipe: Recipe, mesh: jax.sharding.Mesh) -> Any:
    """Load the parameters of ``spec`` (run folder, checkpoint, Hugging Face folder, ``random:nano``) onto the mesh.
    Raises RunFolderError if there is no such model, or its shape differs from the recipe's: names every such field."""
    try:
        source = open_model(spec).source
        check_same_model(spec, source.config, recipe)
        return place(source, recipe.model, param_shardings(recipe.model, mesh))
    except MODEL_ERRORS as error:
        raise RunFolderError(f"--init-from: {error}") from error


def frozen_base(given: Any, recipe: Recipe) -> Any:
    """The frozen base of adapters: the parameters ``given`` in the compute dtype, norms in float32. Frees ``given``.
    Raises TrainingStopped if ``given`` is None."""
    if given is None:
        raise TrainingStopped("adapters (--lora.rank) tune a model that is there: name it with --init-from")
    return frozen(given, recipe.model, jax.numpy.dtype(recipe.train.compute_dtype))
