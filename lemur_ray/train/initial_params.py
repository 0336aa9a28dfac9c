"""Parameters a run begins with when it does not begin from scratch: those of another run, checkpoint or model folder.

Every process reads the slices of its own devices. Optimizer state is never taken over. Knows nothing of Ray.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from lemur_ray.config import Recipe, differing_fields
from lemur_ray.model.lora import frozen
from lemur_ray.model.sharding import param_shardings
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped
from lemur_ray.weights.open_model import MODEL_ERRORS, open_model
from lemur_ray.weights.placing import place

_SHAPE_FREE = ("max_seq_len",)
"""Model fields that a run may change when it starts from other weights."""
MOST_NEW_ROWS = 256
"""Rows of vocabulary that a run may add: the ChatML tokens, rounded up to what a mesh divides."""


def initial_params(spec: str, recipe: Recipe, mesh: jax.sharding.Mesh) -> Any:
    """The parameters of ``spec`` (run folder, checkpoint, Hugging Face folder, ``random:nano``), laid out on the mesh.

    Raises:
        RunFolderError: there is no such model, or its model is not the recipe's; every differing field is named.
    """
    try:
        source = open_model(spec, grow=False).source
        found, asked = source.config, recipe.model
        if found.vocab_size < asked.vocab_size <= found.vocab_size + MOST_NEW_ROWS:
            found = dataclasses.replace(found, vocab_size=asked.vocab_size)
        every = differing_fields(dataclasses.asdict(found), dataclasses.asdict(asked))
        differing = [field for field in every if field.split(":")[0] not in _SHAPE_FREE]
        if differing:
            raise RunFolderError(
                f"--init-from {spec} is another model than recipe {recipe.name!r} (found != asked):\n  "
                + "\n  ".join(differing)
            )
        return place(source, asked, param_shardings(asked, mesh))
    except MODEL_ERRORS as error:
        raise RunFolderError(f"--init-from: {error}") from error


def frozen_base(given: Any, recipe: Recipe) -> Any:
    """What adapters are beside: the parameters the run started from, in the type they are computed with.

    Lets go of the memory of ``given``. Raises TrainingStopped where there are none.
    """
    if given is None:
        raise TrainingStopped("adapters (--lora.rank) tune a model that is there: name it with --init-from")
    return frozen(given, recipe.model, jax.numpy.dtype(recipe.train.compute_dtype))
