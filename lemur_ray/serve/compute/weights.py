"""The weights for serving, read from a source slice by slice: the host holds one matrix at a time.

Products with the same input are fused, layers are separate arrays (no slicing in a program), the head is never tied.
Matrices are cut along their outputs, wo and down along their inputs unless sums are gathered (``devices.Sums``); each
process reads what its own devices hold. Knows nothing of requests.

Legend: D model, H heads, K kv heads (of N > K devices: N), h head width, F feed-forward, V vocabulary."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.cpu.panels import pack
from lemur_ray.serve.compute.devices import AXIS, ONE, WHOLE, Devices, Sums, check_split, part_of
from lemur_ray.serve.compute.invariant import Matrix, Transposed
from lemur_ray.serve.compute.quantized import Quantized, quantize
from lemur_ray.weights.param_slices import Source, leaves, transposed

Form = Literal["columns", "rows", "int8", "packed", "packed int8"]
"""Storage of a matrix (I, O): plain, transposed (a fifth faster for XLA's bfloat16 on a CPU, and read in place by a
scan on TPU), rounded, or packed in panels for the kernels for CPUs."""


class LayerWeights(NamedTuple):
    """The weights of one layer; matrices with the same input are fused. Norm weights are float32 and include any
    offset. None: the model has no such part."""

    attn_norm: jax.Array
    wqkv: Matrix
    """(D, (H + 2K) h): query, key and value of the first device, then those of the next one"""
    wo: Matrix
    mlp_norm: jax.Array
    gate_up: Matrix
    """(D, 2F), device by device as well"""
    down: Matrix
    qkv_bias: jax.Array | None = None
    """((H + 2K) h,) float32, in the order of the columns of wqkv"""
    q_norm: jax.Array | None = None
    """(h,) float32"""
    k_norm: jax.Array | None = None
    post_attn_norm: jax.Array | None = None
    post_mlp_norm: jax.Array | None = None


class Weights(NamedTuple):
    """All parameters of a model, fused and placed for serving."""

    embed: jax.Array
    layers: tuple[LayerWeights, ...] | LayerWeights
    """One by one, or stacked in arrays with an axis of layers before the others, over which ``forward`` scans"""
    final_norm: jax.Array
    head: Matrix
    """(D, V), padded with zero columns if V does not divide over the devices"""


_COLUMNS = P(None, AXIS)


_SPECS: dict[Form, Any] = {
    "columns": _COLUMNS,
    "rows": Transposed(P(AXIS)),
    "int8": Quantized(P(AXIS), P(AXIS)),
    "packed": P(AXIS),
    "packed int8": Quantized(P(AXIS), P(AXIS)),
}
_ALONG_INPUTS: dict[Form, Any] = {
    "columns": P(AXIS),
    "rows": Transposed(P(None, AXIS)),
    "int8": Quantized(P(None, AXIS), WHOLE),
}
"""Partitions of a matrix along its inputs; packed forms are for CPUs, which gather."""


def weight_specs(
    config: ModelConfig, form: Form = "columns", sums: Sums = "gather", *, scanned: bool = False
) -> Weights:
    """PartitionSpec of every array of ``Weights``; the embedding is cut along D. sums: how products are combined, which
    decides along which axis ``wo`` and ``down`` are cut. scanned: layers are stacked. form: storage of the matrices."""
    matrix, columns, whole = _SPECS[form], _COLUMNS, WHOLE
    inner = matrix if sums == "gather" else _ALONG_INPUTS[form]
    more: Any = {"qkv_bias": P(AXIS)} if config.qkv_bias else {}
    more |= {"q_norm": whole, "k_norm": whole} if config.qk_norm else {}
    more |= {"post_attn_norm": whole, "post_mlp_norm": whole} if config.post_norms else {}
    layer = LayerWeights(whole, matrix, inner, whole, matrix, inner, **more)  # type: ignore[arg-type]
    layers = _stacked_specs(layer) if scanned else (layer,) * config.num_layers
    return Weights(columns, layers, whole, matrix)  # type: ignore[arg-type]


def _stacked_specs(layer: Any) -> Any:
    return jax.tree.map(lambda spec: P(None, *spec), layer, is_leaf=lambda x: isinstance(x, P))


Part = Callable[[int], Any]
"""Reads the arrays of device n (from 0); called once for each device of this process, in order"""


class Piece(NamedTuple):
    """One entry of ``Weights`` that can be read and placed alone. The largest is a matrix of one layer."""

    name: str
    """Field of ``Weights``, or of ``LayerWeights``"""
    layer: int
    """-1: of no layer"""
    part: Part


def prepare(
    source: Source,
    dtype: Any = jnp.float32,
    devices: Devices = ONE,
    form: Form = "columns",
    sums: Sums = "gather",
    *,
    scanned: bool = False,
    old: Weights | None = None,
) -> Weights:
    """Read a model's weights onto the devices; matrices in ``dtype``, norms in float32. form: storage of every matrix
    except the embedding, whose rows are only copied. scanned: stack the layers. old: weights of the same form, each
    freed once what replaces it is in the host's memory (stacks are overwritten), so that devices hold at most one
    matrix more; after an error they are partly gone. sums: how devices combine products. Raises ValueError if the model
    does not divide over the devices or holds NaN, and what reading the source raises."""
    whole: dict[str, Any] = {}
    layers: list[dict[str, Any]] = [{} for _ in range(source.config.num_layers)]
    stacks: dict[str, Any] = old.layers._asdict() if scanned and old is not None else {}  # type: ignore[union-attr]
    specs = weight_specs(source.config, form, sums)
    for name, i, part in pieces(source, dtype, devices, form, sums):
        spec = getattr(specs if i < 0 else specs.layers[i], name)
        if i < 0:
            whole[name] = devices.assemble(part, spec, getattr(old, name, None))
        elif scanned:
            new = devices.assemble(part, spec)
            if name not in stacks:
                stacks[name] = _zeros(devices, spec, len(layers))(new)
            stacks[name] = jax.block_until_ready(_put(devices, spec)(stacks[name], new, np.int32(i)))
            del new  # else it stays beside the next one
        else:
            layers[i][name] = devices.assemble(part, spec, old and getattr(old.layers[i], name))
    whole["layers"] = LayerWeights(**stacks) if scanned else tuple(LayerWeights(**layer) for layer in layers)
    return Weights(**whole)


def check(source: Source, dtype: Any, devices: Devices, form: Form, sums: Sums) -> None:
    """Read all that ``prepare`` would place on this process's devices, and keep nothing. form: storage of the matrices;
    sums: how devices combine products. Raises ValueError for NaN or if the model does not divide over the devices, and
    what reading the source raises."""
    for piece in pieces(source, dtype, devices, form, sums):
        for part in devices.own_parts:
            piece.part(part)


def pieces(source: Source, dtype: Any, devices: Devices, form: Form, sums: Sums) -> Iterator[Piece]:
    """Yield all pieces of a model's weights, each read when it is needed. Arguments and errors as for ``prepare``."""
    config = source.config
    check_split(config, devices.parts)
    read = _Reader(source, dtype, devices, form)
    inner = read.matrix if sums == "gather" else read.matrix_by_inputs
    norms = ["attn_norm", "mlp_norm"]
    norms += ["q_norm", "k_norm"] * config.qk_norm + ["post_attn_norm", "post_mlp_norm"] * config.post_norms
    yield Piece("embed", -1, read.embed())
    for i in range(config.num_layers):
        yield Piece("wqkv", i, read.matrix(i, "wq", "wk", "wv"))
        yield Piece("wo", i, inner(i, "wo"))
        yield Piece("gate_up", i, read.matrix(i, "gate", "up"))
        yield Piece("down", i, inner(i, "down"))
        if config.qkv_bias:
            yield Piece("qkv_bias", i, read.cut_vector(i, "bq", "bk", "bv"))
        for name in norms:
            yield Piece(name, i, read.norm(f"layers.{name}", i))
    yield Piece("final_norm", -1, read.norm("final_norm"))
    yield Piece("head", -1, read.head())


@functools.cache
def _put(devices: Devices, spec: Any) -> Any:
    """Program (stack, array, i) -> the stack with the array as its layer i, in place. spec: partition of the array."""

    def put(stack: Any, one: Any, i: jax.Array) -> Any:
        return jax.tree.map(lambda all_, own: all_.at[i].set(own), stack, one)

    stacked = _stacked_specs(spec)
    return devices.program(put, (stacked, spec, WHOLE), stacked, donate=(0,))


@functools.cache
def _zeros(devices: Devices, spec: Any, layers: int) -> Any:
    """Program (array) -> zeros for ``layers`` of such arrays."""

    def zeros(like: Any) -> Any:
        return jax.tree.map(lambda x: jnp.zeros((layers, *x.shape), x.dtype), like)

    return devices.program(zeros, (spec,), _stacked_specs(spec))


class _Reader:
    """Reads the leaves of one model."""

    def __init__(self, source: Source, dtype: Any, devices: Devices, form: Form):
        self._source, self._dtype, self._devices, self._form = source, dtype, devices, form
        self._shapes = leaves(source.config)

    def _read(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A part of a leaf in float32. Raises ValueError if it holds NaN or infinity: training has diverged."""
        part = self._source.read(name, index, np.dtype(np.float32))
        if not np.isfinite(part).all():
            raise ValueError(f"{name} of this model holds NaN or infinity: no text can come from it")
        return part

    def norm(self, name: str, layer: int | None = None) -> Part:
        index = (slice(None),) if layer is None else (slice(layer, layer + 1), slice(None))
        array = self._read(name, index).reshape(-1) + np.float32(self._source.config.norm_offset)
        return lambda _: array

    def matrix(self, layer: int, *names: str) -> Part:
        return lambda part: self._in_form([self._columns(name, layer, part) for name in names])

    def cut_vector(self, layer: int, *names: str) -> Part:
        """Vectors of a layer, concatenated device by device as ``matrix`` does with columns."""
        return lambda part: np.concatenate([self._columns(name, layer, part) for name in names])

    def _columns(self, name: str, layer: int, part: int) -> np.ndarray:
        """Columns of one layer's matrix or vector that device ``part`` computes, float32."""
        shape, parts, config = self._shapes[f"layers.{name}"], self._devices.parts, self._source.config
        width = shape[-1] // parts
        first = part * width
        if name in ("wk", "wv", "bk", "bv"):  # of more devices than kv heads, several hold the same one
            width = part_of(config, parts).num_kv_heads * config.head_dim
            first = part * config.num_kv_heads // parts * config.head_dim
        across = (slice(None),) * (len(shape) - 2)
        index = (slice(layer, layer + 1), *across, slice(first, first + width))
        return self._read(f"layers.{name}", index)[0]

    def _by_second_axis(self, whole: np.ndarray, first: int, width: int) -> Callable[[int], np.ndarray]:
        """Function of a device's index that cuts its part of axis 1 out of an array, which is freed by the last call.
        Arrays cut along this axis are read once: from a bucket, each part would read whole rows. All others are cut
        between rows. first: index of the array's first element in the whole axis."""
        held, last = [whole], self._devices.own_parts[-1]

        def cut(part: int) -> np.ndarray:
            piece = held[0][:, part * width - first : (part + 1) * width - first]
            if part == last:
                held.clear()
            return piece

        return cut

    def embed(self) -> Part:
        width, own = self._shapes["embed"][1] // self._devices.parts, self._devices.own_parts
        first = own.start * width
        cut = self._by_second_axis(self._read("embed", (slice(None), slice(first, own.stop * width))), first, width)
        return lambda part: _joined([cut(part)], self._dtype, 1)

    def matrix_by_inputs(self, layer: int, name: str) -> Part:
        """A matrix cut along its inputs; int8: scaled by the columns of the whole matrix, which is then read whole."""
        width, own = self._shapes[f"layers.{name}"][1] // self._devices.parts, self._devices.own_parts
        read = range(self._devices.parts) if self._form == "int8" else own
        first = read.start * width
        whole = self._read(f"layers.{name}", (slice(layer, layer + 1), slice(first, read.stop * width), slice(None)))
        largest = np.abs(whole[0]).max(axis=0) if self._form == "int8" else None
        cut = self._by_second_axis(whole, first, width)
        del whole
        return lambda part: self._in_form([cut(part)[0]], largest)

    def head(self) -> Part:
        vocab = self._shapes["embed"][0]
        width = -(-vocab // self._devices.parts)

        def columns(part: int) -> Any:
            own = slice(min(part * width, vocab), min((part + 1) * width, vocab))
            if "head" in self._shapes:
                piece = self._read("head", (slice(None), own))
            else:
                piece = self._read("embed", (own, slice(None))).T
            return self._in_form([piece, np.zeros((len(piece), width - piece.shape[1]), np.float32)])

        return columns

    def _in_form(self, pieces: Sequence[np.ndarray], largest_O: np.ndarray | None = None) -> Any:
        if self._form == "int8":
            return quantize(_joined(pieces, np.float32, 1), largest_O)
        if self._form == "packed int8":
            rounded = quantize(_joined(pieces, np.float32, 1))
            return Quantized(pack(rounded.values.T), rounded.scale)
        if self._form == "packed":
            return pack(_joined(pieces, self._dtype, 1))
        if self._form == "rows":
            return Transposed(_joined([piece.T for piece in pieces], self._dtype, 0))
        return _joined(pieces, self._dtype, 1)


def _joined(pieces: Sequence[np.ndarray], dtype: Any, axis: int) -> np.ndarray:
    """Concatenate matrices along ``axis``, in ``dtype`` and row-major; each may be stored in either order."""
    return np.concatenate([transposed(piece.T).astype(dtype, copy=False) for piece in pieces], axis)
