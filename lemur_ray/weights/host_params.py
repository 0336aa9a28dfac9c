"""A weight source of parameters in host memory, for example random ones."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import Params, init_params
from lemur_ray.weights.param_slices import Index, label


class HostWeights:
    """Weight source (``param_slices.Source``) of a parameter tree of numpy arrays."""

    def __init__(self, params: Params, config: ModelConfig) -> None:
        self.config = config
        self._leaves = {label(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}

    def chunk(self, label: str) -> tuple[int, ...]:
        return (1,) * self._leaves[label].ndim

    def dtype(self, label: str) -> np.dtype[Any]:
        return np.dtype(self._leaves[label].dtype)

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        return np.asarray(self._leaves[label][index], dtype or self.dtype(label))


def random_weights(config: ModelConfig, seed: int) -> HostWeights:
    """Weight source of random float32 parameters of a model, the same for the same seed."""
    return HostWeights(jax.tree.map(np.asarray, init_params(config, seed)), config)
