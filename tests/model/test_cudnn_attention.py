"""Packed rows of cuDNN, whose kernel runs on GPUs alone: what it is given, and what the traced program holds."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.model.attention import cudnn
from lemur_ray.model.attention.interface import Limits
from lemur_ray.model.attention.oracle import plain
from lemur_ray.model.remat import named, rematerialised

LENGTH, HEADS, KV_HEADS, WIDTH = 192, 4, 2, 8


def by_offsets(q: jax.Array, k: jax.Array, v: jax.Array, documents: cudnn.Documents, window: int) -> jax.Array:
    """What the kernel computes, from lengths and offsets alone: attention within each range of the flat arrays."""
    lengths, query_offsets, key_offsets = (np.asarray(x).reshape(-1) for x in documents)
    assert len(query_offsets) > len(lengths)
    real = int((lengths > 0).sum())
    assert not lengths[real:].any(), "documents of length 0 are last"
    tokens = q.shape[0] * q.shape[1]
    ranges = []
    for offsets, x in ((query_offsets, q), (key_offsets, k)):
        firsts, rest = np.divmod(offsets[: real + 1], np.prod(x.shape[2:]))
        assert not rest.any()
        assert firsts.tolist() == [0, *np.cumsum(lengths[:real])], "a document begins where the one before it ends"
        ranges.append(np.repeat(np.arange(real), lengths[:real]))
    assert all(len(of_token) == tokens for of_token in ranges)
    flat = (x.reshape(1, tokens, *x.shape[2:]) for x in (q, k, v))
    return plain(*flat, jnp.asarray(ranges[0])[None], Limits(window)).reshape(q.shape)


def row(*lengths: int) -> list[int]:
    """Segment ids of a row with documents of these lengths and padding."""
    ids = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    return [*ids.tolist(), *[0] * (LENGTH - len(ids))]


@pytest.mark.parametrize(
    ("rows", "window"),
    [
        ([row(LENGTH), row(LENGTH)], 0),
        ([row(*[3] * 63), row(100, 1, 50)], 0),
        ([row(), row(90, 80)], 0),
        ([row(100, 92), row(7)], 20),
    ],
    ids=["one document", "64 documents", "an empty row", "a window"],
)
def test_values_and_gradients_by_lengths_and_offsets_equal_the_plain_ones(
    rows: list[list[int]], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cudnn, "_kernel", by_offsets)
    keys, ids = jax.random.split(jax.random.key(0), 4), jnp.asarray(rows, jnp.int32)
    shapes = [(len(rows), LENGTH, heads, WIDTH) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    q, k, v, slope = (jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True))
    limits = Limits(window)
    results = []
    for implementation in (cudnn.packed_rows, plain):
        out, pull = jax.vjp(lambda q, k, v: implementation(q, k, v, ids, limits), q, k, v)  # noqa: B023
        results.append((out, *pull(slope)))
    for actual, expected in zip(*results, strict=True):
        assert jnp.abs(actual - expected).max() < 1e-5


def test_a_row_with_more_documents_than_the_limit_comes_out_as_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "_kernel", lambda q, k, v, documents, window: q)
    x = jnp.ones((2, LENGTH, HEADS, WIDTH))
    out = cudnn.packed_rows(x, x, x, jnp.asarray([row(*[40] * 4), row(*[40] * 3)]), Limits(max_documents=4))
    assert jnp.isnan(out).all(axis=(1, 2, 3)).tolist() == [True, False]
    assert not jnp.isnan(out[1]).any()


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a traced program, those of inner programs too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "eqns"):
                yield from equations(inner)
            elif hasattr(inner, "jaxpr"):
                yield from equations(inner.jaxpr)


def traced(policy: str, length: int = 32_768) -> list[Any]:
    """Equations of values and gradients of attention under a remat policy, for a row of 32 heads."""

    def block(q: jax.Array, k: jax.Array, v: jax.Array, ids: jax.Array) -> jax.Array:
        return jnp.sum(cudnn.packed_rows(named(q, "query"), named(k, "key"), named(v, "value"), ids))

    q, k = (jax.ShapeDtypeStruct((1, length, heads, 128), jnp.bfloat16) for heads in (32, 8))
    ids = jax.ShapeDtypeStruct((1, length), jnp.int32)
    gradients = jax.grad(rematerialised(block, policy), argnums=(0, 1, 2))
    return list(equations(jax.make_jaxpr(gradients)(q, k, k, ids).jaxpr))


def test_no_array_of_the_traced_attention_has_the_size_of_length_times_length() -> None:
    shapes = {tuple(value.aval.shape) for equation in traced("none") for value in equation.outvars}
    assert (1, 32_768, 32, 128) in shapes
    assert not [shape for shape in shapes if sum(size >= 32_768 for size in shape) > 1]


@pytest.mark.parametrize(("policy", "times"), [("none", 1), ("save_dots", 1), ("save:attention", 1), ("full", 2)])
def test_the_forward_kernel_runs_again_only_where_its_values_are_not_saved(policy: str, times: int) -> None:
    kernels = Counter(equation.primitive.name for equation in traced(policy, 1024))
    assert kernels["dot_product_attention_fwd"] == times
    assert kernels["dot_product_attention_bwd"] == 1
