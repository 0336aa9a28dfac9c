"""Placement of arrays on a mesh: the axes, the table from logical axes to mesh axes, and placements of activations.

Parameters declare logical axes (``llama.logical_axes``), activations are placed by a ``Layout``; no other module names
a mesh axis. Between layers the residual stream is split along the sequence over tp; inside a layer heads and features
are. Every placement also gives the placement of the gradient, so that the gradient of a gather is a reduce-scatter and
never an all-reduce.

Legend: B rows, L length, D dim, H heads, h head width, F feed-forward."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from lemur_ray.model.matmul import LowRank

MESH_AXES = ("dcn", "fsdp", "tp")
"""Axes of the device mesh. dcn: data parallel over slices; fsdp: batch and parameters split; tp: each matmul split."""
ROWS = ("dcn", "fsdp")
"""Mesh axes over which the rows of a batch are split."""
RULES: dict[str, str | tuple[str, ...] | None] = {
    "layers": None, "dim": "fsdp", "norm": None, "heads": "tp", "kv_heads": "tp", "ffn": "tp", "vocab": "tp",
    "rows": ROWS, "rows of a slice": ROWS[1:], "sequence": "tp", "whole": None,
}  # fmt: skip
"""Mesh axis (or axes) over which each logical axis is split; None: replicated."""


def spec(axes: tuple[str, ...], shape: tuple[int, ...], mesh: Mesh, name: str = "array") -> P:
    """PartitionSpec of an array with these logical axes and shape. name: of the array, for messages.
    Raises ValueError for a logical axis without a rule, a mesh axis used twice, or a dimension that does not divide."""
    used: dict[str, str] = {}
    out: list[str | tuple[str, ...] | None] = []
    for axis, size in zip(axes, shape, strict=True):
        if axis not in RULES:
            raise ValueError(f"{name}: logical axis {axis!r} has no rule: add it to RULES in model/layout.py")
        rule = RULES[axis]
        parts = 1
        for mesh_axis in (rule,) if isinstance(rule, str) else rule or ():
            if mesh_axis in used:
                raise ValueError(
                    f"{name}: logical axes {used[mesh_axis]!r} and {axis!r} both use mesh axis {mesh_axis!r}: "
                    "give one of them another rule"
                )
            used[mesh_axis] = axis
            parts *= mesh.shape[mesh_axis]
        if size % parts:
            raise ValueError(
                f"{name}: axis {axis!r} of size {size} does not divide over {parts} devices of mesh axis {rule!r}: "
                f"choose a mesh axis that divides {size}"
            )
        out.append(rule)
    return P(*out)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _place(x: jax.Array, there: NamedSharding, back: NamedSharding) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, there)


def _place_forward(x: jax.Array, there: NamedSharding, back: NamedSharding) -> tuple[jax.Array, None]:
    return jax.lax.with_sharding_constraint(x, there), None


def _place_backward(there: NamedSharding, back: NamedSharding, _: None, slope: jax.Array) -> tuple[jax.Array]:
    return (jax.lax.with_sharding_constraint(slope, back),)


_place.defvjp(_place_forward, _place_backward)


def scattered(x_BLD: jax.Array) -> jax.Array:
    """Sum of (B, L, D) over mesh axis tp, of which each device gets its part of the sequence, (B, L / tp, D). For use
    inside ``Layout.local``."""
    rows, _, dim = x_BLD.shape
    # Parts get an axis of their own: for a split axis the TPU compiler emits an all-reduce, twice the bytes, and a
    # slice.
    parts = x_BLD.reshape(rows, jax.lax.axis_size("tp"), -1, dim)
    return jax.lax.psum_scatter(parts, "tp", scatter_dimension=1)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Placement of activations and of a layer's weights on a mesh; without a mesh, placing methods change nothing."""

    mesh: Mesh | None = None
    within_slice: bool = False
    """True inside a ``per_slice`` function: rows and sums stay within the slice."""

    @property
    def rows(self) -> tuple[str, ...]:
        """Mesh axes over which the rows of a batch are split."""
        return ROWS[1:] if self.within_slice else ROWS

    @property
    def platform(self) -> str:
        """Platform of the mesh's devices, or without a mesh of jax's default: cpu, gpu or tpu."""
        return str(self.mesh.devices.flat[0].platform) if self.mesh is not None else jax.default_backend()

    def _at(self, x: jax.Array, there: tuple[str, ...], back: tuple[str, ...], name: str) -> jax.Array:
        if self.mesh is None:
            return x
        return _place(x, *(self._sharding(x.shape, axes, name) for axes in (there, back)))

    def _sharding(self, shape: tuple[int, ...], axes: tuple[str, ...], name: str) -> NamedSharding:
        assert self.mesh is not None
        if not self.within_slice:
            return NamedSharding(self.mesh, spec(axes, shape, self.mesh, name))
        axes = tuple("rows of a slice" if axis == "rows" else axis for axis in axes)
        there: Any = jax.sharding.get_abstract_mesh()  # the mesh of the enclosing shard_map
        return NamedSharding(there, spec(axes, shape, self.mesh, name))

    def split(self, x_BLD: jax.Array) -> jax.Array:
        """Split the residual stream (B, L, D) along the sequence over tp: a sum over tp becomes a reduce-scatter. The
        gradient gets the whole sequence. Raises ValueError if tp does not divide L."""
        return self._at(x_BLD, ("rows", "sequence", "whole"), ("rows", "whole", "whole"), "residual stream")

    def whole(self, x_BLD: jax.Array) -> jax.Array:
        """Gather the whole sequence of (B, L, D) for products with weights split over tp; the gradient is
        reduce-scattered."""
        return self._at(x_BLD, ("rows", "whole", "whole"), ("rows", "sequence", "whole"), "residual stream")

    def heads(self, x_BLHh: jax.Array) -> jax.Array:
        """Split heads of queries, keys or values (B, L, H, h) over tp. Raises ValueError if tp does not divide H."""
        axes = ("rows", "whole", "heads", "whole")
        return self._at(x_BLHh, axes, axes, "attention heads")

    def per_head(self, function: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[..., jax.Array]:
        """``function`` of heads (B, L, H, h) and a vector (h,), which on a mesh each device applies to its heads."""
        heads = P(self.rows, None, "tp", None)
        return function if self.mesh is None else self.local(function, (heads, P(None)), heads)

    def features(self, x_BLF: jax.Array) -> jax.Array:
        """Split features of feed-forward activations (B, L, F) over tp. Raises ValueError if tp does not divide F."""
        axes = ("rows", "whole", "ffn")
        return self._at(x_BLF, axes, axes, "feed-forward features")

    def added_up(self, slopes: tuple[jax.Array, ...], weights: tuple[jax.Array, ...]) -> jax.Array:
        """Gradient (B, L, D), split along the sequence, of the common input of several products.
        slopes: gradients of the results (B, L, O_i), O_i over tp. weights: (D, O_i), sharded over tp only. Each device
        sums its parts of all products before a single reduce-scatter. Needs a mesh."""

        def local(slopes: tuple[jax.Array, ...], weights: tuple[jax.Array, ...]) -> jax.Array:
            parts = [jax.lax.dot_general(g, w, (((2,), (1,)), ((), ()))) for g, w in zip(slopes, weights, strict=True)]
            return scattered(functools.reduce(jnp.add, parts))

        inputs = (P(self.rows, None, "tp"), P(None, "tp"))
        return self.local(local, inputs, P(self.rows, "tp", None))(slopes, weights)

    def gathered(self, w: Any, axes: tuple[str, ...], dtype: Any) -> Any:
        """Weight (or `LowRank`) with logical ``axes``, rounded to ``dtype`` and then gathered over fsdp, for one
        product. Unchanged without a mesh, and for vectors."""
        if isinstance(w, LowRank):
            base = self.gathered(w.base, axes, dtype)
            a, b = (self.gathered(w.a, (axes[0], "whole"), dtype), self.gathered(w.b, ("whole", axes[1]), dtype))
            return LowRank(base, a, b, w.scale)
        if self.mesh is None or w.ndim < 2:
            return w
        together = tuple("whole" if RULES[axis] == "fsdp" else axis for axis in axes)
        w = self._at(w.astype(dtype), axes, axes, "weight")
        if RULES[axes[-1]] != "fsdp":
            return self._at(w, together, axes, "weight")
        # Transposed, so that shards are rows: for bfloat16 columns the TPU compiler emits an all-reduce.
        return self._at(w.T, together[::-1], axes[::-1], "weight").T

    def local(self, function: Callable[..., Any], inputs: tuple[P, ...], outputs: Any) -> Callable[..., Any]:
        """Function that applies ``function`` to each device's shards: jax.shard_map with these PartitionSpecs of its
        arguments and results. Needs a mesh. inputs, outputs: those specs."""
        assert self.mesh is not None, "without a mesh there are no parts"
        if self.within_slice:
            inner = {*MESH_AXES[1:]}
            return jax.shard_map(function, in_specs=inputs, out_specs=outputs, axis_names=inner, check_vma=False)
        return jax.shard_map(function, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)

    def per_slice(self, function: Callable[..., Any], inputs: tuple[P, ...], outputs: Any) -> Callable[..., Any]:
        """Function that applies ``function`` to each slice of the mesh; ``function`` uses a layout with
        ``within_slice``. inputs, outputs: PartitionSpecs, which may only name dcn. Needs a mesh."""
        assert self.mesh is not None, "without a mesh there are no slices"
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=inputs, out_specs=outputs, axis_names={"dcn"}, check_vma=False
        )
