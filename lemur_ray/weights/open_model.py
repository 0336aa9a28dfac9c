"""Open a model by name: a run folder, one of its checkpoints, a Hugging Face folder or ``random:<recipe>[@<folder>]``.

Opening reads no weights; the source of an opened model reads slices of them on demand."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lemur_ray.config import LoraConfig, ModelConfig, from_dict
from lemur_ray.host.exit_codes import CausedError
from lemur_ray.model.llama import Params, init_params
from lemur_ray.model.lora import MergedWeights, adapter_shapes
from lemur_ray.recipes import get_recipe, with_vocabulary
from lemur_ray.storage.file_system import file_system
from lemur_ray.text.special_tokens import GENERATION, json_file
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import load_folder
from lemur_ray.weights.checkpoints import (
    CHECKPOINTS,
    MODEL_FOLDER,
    Commit,
    commit_at,
    model_fingerprint,
    newest_commit,
    step_of,
    weights_of,
)
from lemur_ray.weights.hf_config import HuggingFaceError, raw_config
from lemur_ray.weights.hf_tensors import HuggingFaceWeights
from lemur_ray.weights.orbax_params import CheckpointError, CheckpointWeights
from lemur_ray.weights.param_slices import Index, Source, label
from lemur_ray.weights.safetensors_reader import TensorFileError
from lemur_ray.weights.vocabulary_growth import GrownWeights

RANDOM = "random:"


class ModelNotFound(CausedError):
    """Raised if a name or path leads to no model that can be opened; the message says why and what is expected."""


MODEL_ERRORS = (ModelNotFound, HuggingFaceError, TensorFileError, CheckpointError, ValueError)
"""Exceptions about faults of the model, not of storage, that opening or reading it may raise."""


@dataclasses.dataclass(frozen=True)
class OpenModel:
    """An opened model: tokenizer and configuration are loaded, weights are read on demand from ``source``."""

    source: Source
    tokenizer: Tokenizer | None
    """None if a Hugging Face folder has no tokenizer.json."""
    name: str
    """Short name of the model for users and in protocols, for example nano-chat."""
    version: str
    """Step and fingerprint of a checkpoint, fingerprint of a model folder; changes with the weights."""
    recipe: dict[str, Any]
    """Training recipe as JSON values; {} for a Hugging Face folder."""


@dataclasses.dataclass(frozen=True)
class OpenChatModel(OpenModel):
    """An opened model that has a tokenizer."""

    tokenizer: Tokenizer


def open_model(spec: str) -> OpenModel:
    """Open a model and check names and shapes of its weights, without reading them.
    spec: a run folder (opens its newest committed checkpoint), a folder ``<run>/checkpoints/<step>``, a Hugging Face
    folder (each a path or a URI), ``random:nano`` (seeded random weights of that recipe with a byte tokenizer), or
    ``random:nano@FOLDER`` (the same with the tokenizer of the model in that folder, so that prompts of both models have
    equal length). Raises ModelNotFound if there is no model, HuggingFaceError, TensorFileError or CheckpointError if
    its files are damaged or of an unsupported model."""
    if spec.startswith(RANDOM):
        return _random(spec)
    folder = spec.rstrip("/") if "://" in spec else str(Path(spec).expanduser().absolute())
    fs, inner = file_system(folder)
    if not fs.isdir(inner):
        raise ModelNotFound(f"no model at {folder}: expected a run folder, a checkpoint, a model folder or random:nano")
    if fs.isfile(f"{inner}/recipe.json"):
        if (newest := newest_commit(f"{folder}/{CHECKPOINTS}")) is None:
            checkpoints = f"{folder}/{CHECKPOINTS}"
            raise ModelNotFound(f"no committed checkpoint under {checkpoints}: let the run reach its first checkpoint")
        return _checkpoint(folder, newest)
    commit, run = commit_at(folder), folder.rsplit("/", 2)[0]
    if commit is not None and fs.isfile(f"{inner.rsplit('/', 2)[0]}/recipe.json"):
        return _checkpoint(run, commit)
    if fs.isfile(f"{inner}/config.json"):
        return _hugging_face(folder)
    names = ", ".join(sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in fs.ls(inner, detail=False))[:8])
    raise ModelNotFound(
        f"{folder} holds {names or 'nothing'}: expected recipe.json and checkpoints (a run), a committed checkpoint of "
        "a run, or config.json with safetensors (a Hugging Face model)"
    )


def open_chat_model(spec: str) -> OpenChatModel:
    """Open a model, with the errors of ``open_model``. Raises ModelNotFound also if it has no tokenizer."""
    model = open_model(spec)
    if model.tokenizer is None:
        raise ModelNotFound(f"no tokenizer.json in {spec}: copy the one that belongs to the model there")
    return OpenChatModel(model.source, model.tokenizer, model.name, model.version, model.recipe)


def load_tokenizer(spec: str) -> Tokenizer:
    """Tokenizer of a model, without opening it. spec: path or URI of a run, checkpoint or model folder, or
    ``random:..``. Raises ModelNotFound if it has none, ValueError if its files are damaged."""
    folder = spec
    if spec.startswith(RANDOM):
        _, at, folder = spec.partition("@")
        if not at:
            return Tokenizer.bytes_only()
    folder = folder.rstrip("/") if "://" in folder else str(Path(folder).expanduser().absolute())
    for place in (folder, folder.rsplit("/", 2)[0]):
        if (tokenizer := load_folder(place)) is not None:
            return tokenizer
    raise ModelNotFound(f"no tokenizer.json in {folder}: expected a run folder, a checkpoint or a model folder")


def _random(spec: str) -> OpenModel:
    tokenizer = load_tokenizer(spec)
    name = spec.removeprefix(RANDOM).partition("@")[0]
    recipe = get_recipe(name)
    recipe = dataclasses.replace(recipe, model=with_vocabulary(recipe, tokenizer.vocab_size).model)
    source = random_weights(recipe.model, recipe.train.seed)
    return OpenModel(source, tokenizer, f"random-{name}", f"{recipe.hash}-random", dataclasses.asdict(recipe))


def _checkpoint(run: str, commit: Commit) -> OpenModel:
    try:
        fs, inner = file_system(f"{run}/recipe.json")
        record = json.loads(fs.cat_file(inner))
        recipe = record["recipe"]
        config = from_dict(ModelConfig, recipe["model"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelNotFound(f"{run}/recipe.json is no recipe ({error!r}): copy the run again") from error
    lora = from_dict(LoraConfig, recipe.get("lora", {}))
    source: Source = (
        _merged(record, run, commit, config, lora) if lora.rank else CheckpointWeights(commit.folder, config)
    )
    tokenizer = load_folder(run)
    return OpenModel(source, tokenizer, run.rsplit("/", 1)[-1], f"{commit.step}-{commit.fingerprint}", recipe)


def _merged(record: dict[str, Any], run: str, commit: Commit, config: ModelConfig, lora: LoraConfig) -> Source:
    """Weight source of a run that trained LoRA adapters: the base model that it started from plus the adapters.
    record: content of the run's ``recipe.json``. Raises ModelNotFound if the base model is absent or has changed."""
    spec = record.get("init_from_path", "")
    recorded = str(record.get("init_from", ""))
    if (step := step_of(recorded)) is not None:
        fs, inner = file_system(spec)
        if fs.isfile(f"{inner}/recipe.json"):  # the run may have trained further since
            spec = f"{spec.rstrip('/')}/{CHECKPOINTS}/{step}"
    try:
        base = open_model(spec).source
    except (ModelNotFound, HuggingFaceError) as error:
        raise ModelNotFound(
            f"{run} holds adapters of the model in {spec}, which cannot be opened ({error}): put it back there, or "
            "change init_from_path in recipe.json to where it lies"
        ) from error
    if recorded.startswith(MODEL_FOLDER) and (current := weights_of(spec)) != recorded:
        raise ModelNotFound(
            f"{run} holds adapters of {recorded}, but in {spec} lies {current}: put the weights back that the adapters "
            "were tuned on, or change init_from_path in recipe.json to where they lie"
        )
    if base.config.vocab_size < config.vocab_size:
        base = GrownWeights(base, config.vocab_size)
    return MergedWeights(base, CheckpointWeights(commit.folder, config, adapter_shapes(config, lora)), lora)


def _hugging_face(folder: str) -> OpenModel:
    source = HuggingFaceWeights(folder)
    tokenizer = load_folder(folder)
    if tokenizer and (faults := vocabulary_faults(folder, tokenizer, source.config)):
        raise HuggingFaceError(faults[0])
    version = folder if "://" in folder else model_fingerprint(Path(folder))
    return OpenModel(source, tokenizer, folder.rsplit("/", 1)[-1], version, {})


def vocabulary_faults(folder: str, tokenizer: Tokenizer, config: ModelConfig) -> list[str]:
    """[error message] if the tokenizer does not belong to the model, else []. It does not if it has more ids than the
    model has embedding rows, or if ``config.json`` in ``folder``, or else its ``generation_config.json``, names ids as
    begin and end of a text of which none is a special token of the tokenizer, or which are end and begin there."""
    tokens, rows = tokenizer.vocab_size, config.vocab_size
    if tokens > rows:
        return [
            f"{folder}: the tokenizer has ids for {tokens} tokens, the model {rows} rows: its files and the weights do "
            "not belong together, or tokens were added to the tokenizer that the model was never given rows for"
        ]
    for raw in (raw_config(folder), json_file(tokenizer.files, GENERATION)):
        begin, end = raw.get("bos_token_id"), raw.get("eos_token_id")
        ends = end if isinstance(end, list) else [end]
        if named := sorted({i for i in (begin, *ends) if isinstance(i, int)}):
            break
    if named and not tokenizer.special_ids.intersection(named):
        why = f"of which the tokenizer ({tokens} tokens) has none as a special token"
    elif named and end is not None and tokenizer.bos_id in ends and tokenizer.eos_id == begin and begin not in ends:
        why = f"which are end and begin in the tokenizer ({tokens} tokens)"
    else:
        return []
    return [
        f"{folder}: its config names {', '.join(map(str, named))} as begin and end of a text, {why}: it is of another "
        "family than the weights, copy theirs"
    ]


class HostWeights:
    """Weight source (``param_slices.Source``) of a parameter tree of numpy arrays, or of those on a trainer's devices,
    all of this process, of which the host then holds one matrix of a layer."""

    def __init__(self, params: Params, config: ModelConfig) -> None:
        self.config = config
        self._last: tuple[str, int, np.ndarray] = ("", 0, np.zeros(0))
        self._leaves = {label(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}

    def chunk(self, label: str) -> tuple[int, ...]:
        return (1,) * self._leaves[label].ndim

    def dtype(self, label: str) -> np.dtype[Any]:
        return np.dtype(self._leaves[label].dtype)

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        leaf = self._leaves[label]
        if isinstance(leaf, jax.Array):
            own = label.startswith("layers.") and index[0].stop == index[0].start + 1
            leaf, index = (self._layer(label, index[0].start), (slice(None), *index[1:])) if own else (leaf, index)
        return np.asarray(leaf[index], dtype or self.dtype(label))

    def _layer(self, label: str, layer: int) -> np.ndarray:
        """(1, ...) one layer of a leaf on devices, from the host's copy if it is the last one asked for."""
        last = self._last
        if last[:2] != (label, layer):
            last = self._last = label, layer, np.asarray(_one_layer(self._leaves[label], np.int32(layer)))
        return last[2]


@jax.jit
def _one_layer(leaf: jax.Array, layer: jax.Array) -> jax.Array:
    """Compiled once a leaf: with the number of the layer in the program, once a layer."""
    return jax.lax.dynamic_slice_in_dim(leaf, layer, 1)


def random_weights(config: ModelConfig, seed: int) -> HostWeights:
    """Weight source of random float32 parameters of a model, the same for the same seed."""
    return HostWeights(jax.tree.map(np.asarray, init_params(config, seed)), config)
