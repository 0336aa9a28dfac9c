"""Collect all faults of a model's files, where opening the model reports only the first. No weights are read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lemur_ray.config import ModelConfig
from lemur_ray.storage.file_system import file_system
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import tokenizer_in
from lemur_ray.weights.hf_config import read_config
from lemur_ray.weights.hf_tensors import HuggingFaceWeights
from lemur_ray.weights.open_model import (
    MODEL_ERRORS,
    RANDOM,
    ModelNotFound,
    load_tokenizer,
    open_model,
    vocabulary_faults,
)
from lemur_ray.weights.safetensors_reader import file_faults

T = TypeVar("T")


@dataclass(frozen=True)
class ModelParts:
    """The parts of a model that can be read, and the error messages for the others."""

    config: ModelConfig | None = None
    tokenizer: Tokenizer | None = None
    faults: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Error messages about missing files, such as the tokenizer's, which not every use of a model needs."""


def inspect_model(spec: str) -> ModelParts:
    """Check every part of the model ``spec`` (see ``open_model``); errors are collected in the result, not raised."""
    faults, absent = list[str](), list[str]()

    def attempt(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except FileNotFoundError as error:
            absent.append(str(error))
        except (*MODEL_ERRORS, OSError) as error:
            faults.append(str(error))
        return None

    if spec.startswith(RANDOM):  # opening one would make its weights
        return ModelParts(None, attempt(lambda: load_tokenizer(spec)), tuple(faults))
    folder = spec.rstrip("/") if "://" in spec else str(Path(spec).expanduser().absolute())
    fs, inner = file_system(folder)
    if fs.isfile(f"{inner}/config.json") and not fs.isfile(f"{inner}/recipe.json"):
        config, tokenizer = attempt(lambda: read_config(folder)), attempt(lambda: tokenizer_in(folder))
        if not (torn := file_faults(folder)) and config is not None:
            attempt(lambda: HuggingFaceWeights(folder, config))
        faults += torn
        if config is not None and tokenizer is not None:
            faults += vocabulary_faults(folder, tokenizer, config)
        return ModelParts(config, tokenizer, tuple(faults), tuple(absent))
    model = attempt(lambda: open_model(spec))
    if model is not None:
        return ModelParts(model.source.config, model.tokenizer)
    tokenizer = None
    try:
        tokenizer = load_tokenizer(spec)
    except ModelNotFound:  # without a model no tokenizer is expected
        pass
    except ValueError as error:
        faults.append(str(error))
    return ModelParts(None, tokenizer, tuple(dict.fromkeys(faults)))
