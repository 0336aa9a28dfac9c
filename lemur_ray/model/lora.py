"""Low-rank adapters: W + scale x A B in place of W, where only A and B learn (Hu et al. 2021, arXiv 2106.09685).

A weight in the model's tree may be a `LowRank`: it is indexed by layer like an array, ``matmul`` multiplies by its
parts, and the product A B is never formed. B starts at zero, so adapters initially change nothing."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from lemur_ray.config import LoraConfig, ModelConfig
from lemur_ray.model.layout import spec
from lemur_ray.model.llama import Params, abstract_params, is_matrix, logical_axes
from lemur_ray.model.matmul import LowRank
from lemur_ray.model.sharding import param_shardings


def scale(lora: LoraConfig) -> float:
    """Factor alpha / rank by which the product A B is multiplied before it is added to W."""
    return lora.alpha / lora.rank


def first_adapters(config: ModelConfig, lora: LoraConfig, seed: int, base: Params) -> Params:
    """Initial adapters, {"layers": {name: {"a": (N, in, r), "b": (N, r, out)}}}, and copies of leaves ``lora.also``.
    Float32; A is normal with variance 1 / in, B is zero. seed: of A. base: source of the copies."""
    layers, shapes = {}, adapter_shapes(config, lora)
    keys = jax.random.split(jax.random.key(seed), len(lora.matrices))
    for key, name in zip(keys, sorted(lora.matrices), strict=True):
        a, b = shapes[f"layers.{name}.a"], shapes[f"layers.{name}.b"]
        layers[name] = {"a": jax.random.normal(key, a, jnp.float32) * a[1] ** -0.5, "b": jnp.zeros(b, jnp.float32)}
    return {"layers": layers, **{name: jnp.asarray(base[name], jnp.float32) for name in lora.also}}


def adapted(base: Params, adapters: Params, lora: LoraConfig) -> Params:
    """Parameter tree for ``hidden_states``: ``base`` with `LowRank` weights where ``adapters`` (as from
    ``first_adapters``) has a matrix, and with its copies of the leaves ``lora.also``. Copies no array."""
    trained = {
        name: LowRank(base["layers"][name], one["a"], one["b"], scale(lora)) for name, one in adapters["layers"].items()
    }
    return {**base, "layers": {**base["layers"], **trained}, **{name: adapters[name] for name in lora.also}}


def frozen(base: Params, config: ModelConfig, dtype: Any) -> Params:
    """Base parameters in their ``frozen_dtypes``. Arrays that are cast are freed: ``base`` must not be used afterwards.
    dtype: of matrices."""

    @partial(jax.jit, donate_argnums=0, static_argnums=1)
    def cast(array: jax.Array, to: Any) -> jax.Array:
        return array.astype(to)

    dtypes = frozen_dtypes(config, dtype)
    return jax.tree.map(lambda array, to: array if array.dtype == to else cast(array, to), base, dtypes)


def frozen_dtypes(config: ModelConfig, dtype: Any) -> Params:
    """The parameter tree with the dtype of each leaf of a frozen base: ``dtype`` for matrices, else float32."""
    return jax.tree.map(
        lambda names: jnp.dtype(dtype if is_matrix(names) else jnp.float32),
        logical_axes(config), is_leaf=lambda x: isinstance(x, tuple),
    )  # fmt: skip


def adapter_shardings(config: ModelConfig, lora: LoraConfig, mesh: Mesh) -> Params:
    """NamedSharding of every trained leaf: input and output axes as in the base matrix, rank axis unsharded."""
    shapes, axes, layers = adapter_shapes(config, lora), logical_axes(config)["layers"], {}
    for name in sorted(lora.matrices):
        _, into, out = axes[name]
        a = spec(("layers", into, "whole"), shapes[f"layers.{name}.a"], mesh, f"{name}.a")
        b = spec(("layers", "whole", out), shapes[f"layers.{name}.b"], mesh, f"{name}.b")
        layers[name] = {"a": NamedSharding(mesh, a), "b": NamedSharding(mesh, b)}
    whole = param_shardings(config, mesh)
    return {"layers": layers, **{name: whole[name] for name in lora.also}}


def adapter_shapes(config: ModelConfig, lora: LoraConfig) -> dict[str, tuple[int, ...]]:
    """Shapes by dotted path: ``layers.NAME.a`` (layers, in, rank), ``layers.NAME.b`` (layers, rank, out), and those of
    the matrices trained whole (``lora.also``)."""
    shapes = abstract_params(config)
    out: dict[str, tuple[int, ...]] = {name: shapes[name].shape for name in lora.also}
    for name in sorted(lora.matrices):
        depth, inputs, outputs = shapes["layers"][name].shape
        out |= {f"layers.{name}.a": (depth, inputs, lora.rank), f"layers.{name}.b": (depth, lora.rank, outputs)}
    return out


class MergedWeights:
    """A source of weights (``weights.param_slices.Source``) that reads base weights with adapters added to them, in
    float32 unless ``read`` is given another dtype."""

    def __init__(self, base: Any, adapters: Any, lora: LoraConfig) -> None:
        """base, adapters: weight sources; ``adapters`` has the leaves of ``adapter_shapes``."""
        self.config: ModelConfig = base.config
        self._base, self._adapters, self._lora = base, adapters, lora

    def chunk(self, label: str) -> tuple[int, ...]:
        return tuple((self._adapters if label in self._lora.also else self._base).chunk(label))

    def dtype(self, label: str) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def read(self, label: str, index: tuple[slice, ...], dtype: np.dtype[Any] | None = None) -> np.ndarray:
        float32 = np.dtype(np.float32)
        name = label.removeprefix("layers.")
        if label in self._lora.also:
            out = self._adapters.read(label, index, float32)
        else:
            out = self._base.read(label, index, float32)
            if label.startswith("layers.") and name in self._lora.matrices:
                layers, rows, columns = index
                a = self._adapters.read(f"{label}.a", (layers, rows, slice(None)), float32)
                b = self._adapters.read(f"{label}.b", (layers, slice(None), columns), float32)
                out = out + np.float32(scale(self._lora)) * np.matmul(a, b)
        return out.astype(dtype or float32, copy=False)
