"""Parameters a run begins with when it does not begin from scratch: those of another run, checkpoint or model folder.

Optimizer state is never taken over. Knows nothing of Ray.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from lemur_ray.config import Recipe, differing_fields
from lemur_ray.model.hf import HuggingFaceError, TensorFileError
from lemur_ray.model.load import ModelNotFound, load_model
from lemur_ray.model.sharding import param_shardings
from lemur_ray.train.run_folder import RunFolderError

_SHAPE_FREE = ("max_seq_len",)
"""Model fields that a run may change when it starts from other weights."""


def initial_params(spec: str, recipe: Recipe, mesh: jax.sharding.Mesh) -> Any:
    """The parameters of ``spec`` (run folder, checkpoint, Hugging Face folder, ``random:nano``), laid out on the mesh.

    Raises:
        RunFolderError: there is no such model, or its model is not the recipe's; every differing field is named.
    """
    try:
        loaded = load_model(spec)
    except (ModelNotFound, HuggingFaceError, TensorFileError, ValueError) as error:
        raise RunFolderError(f"--init-from: {error}") from error
    found, asked = dataclasses.asdict(loaded.config), dataclasses.asdict(recipe.model)
    differing = [d for d in differing_fields(found, asked) if d.split(":")[0] not in _SHAPE_FREE]
    if differing:
        raise RunFolderError(
            f"--init-from {spec} is another model than recipe {recipe.name!r} (found != asked):\n  "
            + "\n  ".join(differing)
        )
    return jax.tree.map(
        lambda leaf, sharding: jax.make_array_from_callback(leaf.shape, sharding, jax.numpy.asarray(leaf).__getitem__),
        loaded.params,
        param_shardings(recipe.model, mesh),
    )
