"""Loads the initial parameters of a run from another run, a checkpoint or a model folder, and the base of adapters.

Every process reads only the slices of its own devices. Optimizer state is never loaded. Knows nothing of Ray."""

from __future__ import annotations

from typing import Any

import jax

from lemur_ray.config import Recipe
from lemur_ray.model.lora import frozen
from lemur_ray.model.sharding import param_shardings
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped
from lemur_ray.train.run.needs import check_same_model
from lemur_ray.weights.mesh_loading import place
from lemur_ray.weights.open_model import MODEL_ERRORS, open_model


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
