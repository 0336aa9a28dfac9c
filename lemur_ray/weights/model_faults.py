"""Everything that is wrong with a model at once, where opening one says its first fault alone. Reads no weights."""

from __future__ import annotations

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
from lemur_ray.weights.open_model import MODEL_ERRORS, RANDOM, ModelNotFound, load_tokenizer, open_model, rows_lacking
from lemur_ray.weights.safetensors_reader import file_faults

T = TypeVar("T")


@dataclass(frozen=True)
class ModelParts:
    """What of a model can be read, and what is said of the rest."""

    config: ModelConfig | None = None
    tokenizer: Tokenizer | None = None
    faults: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Said of a tokenizer that is not there: not all who read a model need one."""


def look_through(spec: str) -> ModelParts:
    """Of a spec as ``open_model`` takes it: each part is looked at whatever is wrong with the others."""
    faults, absent = list[str](), list[str]()

    def look(at: Callable[[], T]) -> T | None:
        try:
            return at()
        except FileNotFoundError as error:
            absent.append(str(error))
        except (*MODEL_ERRORS, OSError) as error:
            faults.append(str(error))
        return None

    if spec.startswith(RANDOM):  # opening one makes its weights
        return ModelParts(None, look(lambda: load_tokenizer(spec)), tuple(faults))
    folder = spec.rstrip("/") if "://" in spec else str(Path(spec).expanduser().absolute())
    fs, inner = file_system(folder)
    if fs.isfile(f"{inner}/config.json") and not fs.isfile(f"{inner}/recipe.json"):
        config, tokenizer = look(lambda: read_config(folder)), look(lambda: tokenizer_in(folder))
        if not (torn := file_faults(folder)) and config is not None:
            look(lambda: HuggingFaceWeights(folder, config))
        faults += torn
        if config is not None and tokenizer is not None:
            faults += rows_lacking(folder, tokenizer, config)
        return ModelParts(config, tokenizer, tuple(faults), tuple(absent))
    model = look(lambda: open_model(spec))
    if model is not None:
        return ModelParts(model.source.config, model.tokenizer)
    tokenizer = None
    try:
        tokenizer = load_tokenizer(spec)
    except ModelNotFound:  # where there is no model there need be no tokenizer
        pass
    except ValueError as error:
        faults.append(str(error))
    return ModelParts(None, tokenizer, tuple(dict.fromkeys(faults)))
