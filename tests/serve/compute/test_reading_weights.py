"""What an engine reads of a model: matrix by matrix, in the form it wants, never more than one at a time."""

import tracemalloc
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.serve.compute.invariant import Transposed, product
from lemur_ray.serve.compute.weights import LayerWeights, prepare
from lemur_ray.weights.open_model import HostWeights, random_weights
from lemur_ray.weights.param_slices import Index, leaves, normalised
from tests.serve.tiny import TINY
from tests.weights.whole_models import whole


class Recording(HostWeights):
    """Notes how many numbers each read asks for."""

    def __init__(self, tie: bool):
        config = replace(TINY, tie_embeddings=tie)
        source = random_weights(config, 0)
        super().__init__(whole(source), config)
        self.asked: list[int] = []

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        shape = self._leaves[label].shape
        self.asked.append(int(np.prod([len(part) for part in normalised(index, shape)])))
        # As files of the Hugging Face layout give matrices: the other way round in memory.
        return np.asarray(super().read(label, index, dtype), order="F")


@pytest.mark.parametrize("name", ["embed", "final_norm", "layers.down"])
@pytest.mark.parametrize("broken", [np.nan, -np.inf])
def test_a_model_that_diverged_is_refused_by_the_name_of_what_is_no_number(name: str, broken: float) -> None:
    source = HostWeights(whole(random_weights(TINY, 0)), TINY)
    source._leaves[name] = np.array(source._leaves[name])
    source._leaves[name].flat[-1] = broken
    with pytest.raises(ValueError, match=f"{name} of this model holds NaN or infinity"):
        prepare(source)


@pytest.mark.parametrize("tie", [False, True])
def test_every_read_is_of_one_matrix_and_all_together_of_the_model_once(tie: bool) -> None:
    source = Recording(tie)
    prepare(source)
    assert max(source.asked) <= TINY.vocab_size * TINY.dim
    again = TINY.vocab_size * TINY.dim if tie else 0  # the embeddings, as the head
    assert sum(source.asked) == source.config.num_params + again


def test_every_form_holds_the_same_matrices() -> None:
    source = Recording(tie=False)
    columns, rows = prepare(source), prepare(source, jnp.float32, form="rows")
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, TINY.dim)), jnp.float32)
    for name in ("wqkv", "gate_up"):
        plain, other = (getattr(weights.layers[1], name) for weights in (columns, rows))
        assert isinstance(other, Transposed)
        assert np.array_equal(np.asarray(plain), np.asarray(other.values).T)
        np.testing.assert_allclose(product(x, plain, 0), product(x, other, 0), rtol=1e-5, atol=1e-5)
    params = whole(source)
    names = ("wq", "wk", "wv")
    assert np.array_equal(columns.layers[1].wqkv, np.concatenate([params["layers"][n][1] for n in names], axis=1))
    assert np.array_equal(columns.head, params["head"])


class Made:
    """A model of many layers that is nowhere: every read makes its numbers."""

    def __init__(self, num_layers: int):
        self.config = replace(TINY, num_layers=num_layers, dim=128, ffn_dim=512)
        self._shapes = leaves(self.config)

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        return np.full([len(part) for part in normalised(index, self._shapes[label])], 0.5, dtype)


def test_the_host_holds_a_layer_of_a_model_whose_layers_are_stacked() -> None:
    peaks, layer = [], 4 * (128 * 4 * 16 * 2 + 2 * 128 * 2 * 16 + 3 * 128 * 512)
    for num_layers in (4, 40):
        source: Any = Made(num_layers)
        tracemalloc.start()
        weights = prepare(source, form="rows", scanned=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert isinstance(weights.layers, LayerWeights)
        assert jax.tree.leaves(weights.layers.down)[0].shape == (num_layers, 128, 512)
    assert peaks[1] < 2 * layer + 4 * 2 * 128 * 512, "one, and a copy of its largest matrix while it is read"
    assert peaks[1] < peaks[0] + layer / 4, "the host's memory does not grow with the layers"
