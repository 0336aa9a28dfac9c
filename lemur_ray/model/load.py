"""A model by name: a run folder, one of its checkpoints, a Hugging Face folder, or ``random:<recipe>[@<folder>]``.

Reads parameters only, never optimizer state, and needs no Ray. Knows nothing of training and of serving.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from lemur_ray.checkpoints import CHECKPOINTS, Commit, commit_at, model_fingerprint, newest_commit
from lemur_ray.config import ModelConfig, from_dict
from lemur_ray.model.hf import HuggingFaceError, read_config, read_params
from lemur_ray.model.llama import Params, abstract_params, init_params
from lemur_ray.recipes import get_recipe, with_vocabulary
from lemur_ray.text.tokenizer import SPECIALS, Tokenizer

RANDOM = "random:"


class ModelNotFound(Exception):
    """The spec names no model that can be loaded; the message says what was found and what was expected."""


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """Everything that is needed to run a model."""

    params: Params
    """The parameter tree, float32 arrays in host memory."""
    config: ModelConfig
    tokenizer: Tokenizer
    name: str
    """Short name for people and protocols, for example nano-chat."""
    version: str
    """Changes when the weights change: step and fingerprint of a checkpoint, fingerprint of a model folder."""
    recipe: dict[str, Any]
    """The recipe as JSON; empty for a model that this project did not train."""


def load_model(spec: str) -> LoadedModel:
    """Load a model.

    spec: a run folder (its newest committed checkpoint is taken), a folder ``<run>/checkpoints/<step>``, a Hugging Face
    folder, ``random:nano`` (seeded random weights of that recipe with a tokenizer of bytes), or ``random:nano@FOLDER``
    (the same with the tokenizer of the model in that folder, so that both see prompts of equal length).
    Raises ModelNotFound, HuggingFaceError, TensorFileError.
    """
    if spec.startswith(RANDOM):
        return _random(spec)
    folder = Path(spec).expanduser().absolute()
    if not folder.is_dir():
        raise ModelNotFound(f"no model at {folder}: expected a run folder, a checkpoint, a model folder or random:nano")
    if (folder / "recipe.json").is_file():
        return _checkpoint(folder, _newest(folder))
    commit = commit_at(str(folder))
    if commit is not None and (folder.parent.parent / "recipe.json").is_file():
        return _checkpoint(folder.parent.parent, commit)
    if (folder / "config.json").is_file():
        return _hugging_face(folder)
    found = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise ModelNotFound(
        f"{folder} holds {found}: expected recipe.json and checkpoints (a run), a committed checkpoint of a run, or "
        "config.json with safetensors (a Hugging Face model)"
    )


def load_tokenizer(spec: str) -> Tokenizer:
    """The tokenizer that ``load_model`` would give a spec, without the model. Raises ModelNotFound, ValueError."""
    folder = spec
    if spec.startswith(RANDOM):
        _, at, folder = spec.partition("@")
        if not at:
            return Tokenizer.bytes_only()
    path = Path(folder).expanduser().absolute()
    for place in (path, path.parent.parent):
        if (place / "tokenizer.json").is_file():
            return Tokenizer.load(place / "tokenizer.json")
    raise ModelNotFound(f"no tokenizer.json in {path}: expected a run folder, a checkpoint or a model folder")


def _random(spec: str) -> LoadedModel:
    tokenizer = load_tokenizer(spec)
    name = spec.removeprefix(RANDOM).partition("@")[0]
    recipe = get_recipe(name)
    recipe = dataclasses.replace(recipe, model=with_vocabulary(recipe, tokenizer.vocab_size).model)
    params = jax.tree.map(np.asarray, init_params(recipe.model, recipe.train.seed))
    version = f"{recipe.hash}-random"
    return LoadedModel(params, recipe.model, tokenizer, f"random-{name}", version, dataclasses.asdict(recipe))


def _newest(run: Path) -> Commit:
    commit = newest_commit(str(run / CHECKPOINTS))
    if commit is None:
        raise ModelNotFound(
            f"no committed checkpoint under {run / CHECKPOINTS}: let the run reach its first checkpoint"
        )
    return commit


def _checkpoint(run: Path, commit: Commit) -> LoadedModel:
    recipe = json.loads((run / "recipe.json").read_text())["recipe"]
    config = from_dict(ModelConfig, recipe["model"])
    params = read_checkpoint_params(commit.folder, config)
    tokenizer = Tokenizer.load(run / "tokenizer.json")
    return LoadedModel(params, config, tokenizer, run.name, f"{commit.step}-{commit.fingerprint}", recipe)


def read_checkpoint_params(step: str | Path, config: ModelConfig) -> Params:
    """Only the parameters of an orbax checkpoint of a train state, as numpy arrays of the shapes the config says."""
    shapes = abstract_params(config)
    item = {"params": shapes}
    restore_args = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray, dtype=leaf.dtype), item)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        try:
            params = checkpointer.restore(
                Path(step) / "state",
                args=ocp.args.PyTreeRestore(item=item, restore_args=restore_args, partial_restore=True),
            )["params"]
        except (OSError, ValueError, KeyError) as error:
            raise ModelNotFound(f"checkpoint {step} cannot be read: {str(error).strip()[:300]}") from error
    for (path, leaf), want in zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(shapes), strict=True):
        if leaf.shape != want.shape:
            label = jax.tree_util.keystr(path, simple=True, separator=".")
            raise ModelNotFound(f"checkpoint {step}: {label} is {leaf.shape}, the recipe says {want.shape}")
    return params


def grow_vocabulary(params: Params, config: ModelConfig, vocab_size: int) -> tuple[Params, ModelConfig]:
    """Rows for ChatML tokens that published weights lack: each new one is the mean of those there."""
    extra = vocab_size - config.vocab_size
    embed = params["embed"]
    grown = {**params, "embed": np.concatenate([embed, np.repeat(embed.mean(0, keepdims=True), extra, axis=0)])}
    if "head" in params:
        head = params["head"]
        grown["head"] = np.concatenate([head, np.repeat(head.mean(1, keepdims=True), extra, axis=1)], axis=1)
    return grown, dataclasses.replace(config, vocab_size=vocab_size)


def _hugging_face(folder: Path) -> LoadedModel:
    config = read_config(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    params = read_params(folder, config)
    if config.vocab_size < tokenizer.vocab_size <= config.vocab_size + len(SPECIALS):
        params, config = grow_vocabulary(params, config, tokenizer.vocab_size)
    elif tokenizer.vocab_size > config.vocab_size:
        raise HuggingFaceError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, the model {config.vocab_size} rows: "
            "tokenizer.json and weights do not belong together"
        )
    return LoadedModel(params, config, tokenizer, folder.name, model_fingerprint(folder), {})
