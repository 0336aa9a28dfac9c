"""Every implementation of attention against the plain one, values and gradients."""

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.model.attention import cudnn
from lemur_ray.model.attention import splash as splash_module
from lemur_ray.model.attention.block_skipping import reaches, skipping
from lemur_ray.model.attention.dispatch import IMPLEMENTATIONS, attention, choose
from lemur_ray.model.attention.interface import Limits
from lemur_ray.model.attention.oracle import plain
from lemur_ray.model.attention.splash import splash

ROWS, HEADS, WIDTH = 2, 4, 8
HERE = ("chunked", "skipping")
"""Implementations besides the plain one that any machine runs."""

in_small_blocks = jax.jit(partial(skipping, block=32))


def inputs(length: int, kv_heads: int, width: int = WIDTH) -> tuple[jax.Array, ...]:
    keys = jax.random.split(jax.random.key(0), 4)
    q = jax.random.normal(keys[0], (ROWS, length, HEADS, width))
    k, v = (jax.random.normal(key, (ROWS, length, kv_heads, width)) for key in keys[1:3])
    return q, k, v, jax.random.normal(keys[3], q.shape)


def segments(length: int) -> jax.Array:
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(ROWS):
        cuts = np.sort(rng.choice(np.arange(1, length), 3, replace=False))
        ids = np.repeat(np.arange(1, 5), np.diff([0, *cuts, length]))
        ids[-length // 10 :] = 0  # padding
        rows.append(ids)
    return jnp.asarray(np.stack(rows), jnp.int32)


@pytest.mark.parametrize(("length", "kv_heads"), [(200, 4), (256, 2)])
@pytest.mark.parametrize("name", HERE)
def test_values_and_gradients_equal_the_plain_ones(name: str, kv_heads: int, length: int) -> None:
    assert_equal_to_plain(partial(attention, name=name), length, kv_heads)


LIMITS = [(0, 2.0), (40, 0.0), (130, 2.0)]
"""Windows, also over more than one block, and soft caps."""


@pytest.mark.parametrize(("window", "cap"), LIMITS)
@pytest.mark.parametrize("name", HERE)
def test_windows_and_caps_equal_the_plain_ones(name: str, window: int, cap: float) -> None:
    limits = Limits(window, cap)
    values = values_and_gradients(partial(attention, name=name, limits=limits), 300, 2, WIDTH)
    for found, expected in zip(values, values_and_gradients(partial(plain, limits=limits), 300, 2, WIDTH), strict=True):
        assert jnp.abs(found - expected).max() < 1e-5


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize(("window", "cap", "width"), [(40, 0.0, 128), (130, 2.0, 64), (0, 2.0, 80)])
def test_windows_caps_and_narrow_heads_of_the_kernel_for_tpu(window: int, cap: float, width: int) -> None:
    limits = Limits(window, cap)
    values = values_and_gradients(partial(splash, interpret=True, limits=limits), 256, 2, width)
    for found, expected in zip(values, values_and_gradients(partial(plain, limits=limits), 256, 2, width), strict=True):
        assert found.shape == expected.shape
        assert jnp.abs(found - expected).max() < 2e-5


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_the_kernel_for_tpu_equals_the_plain_one(kv_heads: int) -> None:
    assert_equal_to_plain(partial(splash, interpret=True), 256, kv_heads, 128, 2e-5)


@pytest.mark.slow
def test_long_rows_take_two_kernels_for_the_gradients_on_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert splash_module.is_fused(4096, 512)
    assert not splash_module.is_fused(32_768, 2048)
    assert [splash_module.block_size(8192 + 128 * n, 2048) for n in (0, 1, 2, 4)] == [2048, 128, 256, 512]
    monkeypatch.setattr(splash_module, "MOST_FUSED_BLOCKS", 1)
    assert_equal_to_plain(partial(splash, interpret=True, limits=Limits(block=128)), 256, 2, 128, 2e-5)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_the_masked_call_of_cudnn_equals_the_plain_one(kv_heads: int) -> None:
    assert_equal_to_plain(partial(cudnn.masked, implementation="xla"), 200, kv_heads)


def test_the_masked_call_of_cudnn_knows_windows() -> None:
    values = values_and_gradients(partial(cudnn.masked, implementation="xla", limits=Limits(40)), 200, 2, WIDTH)
    for found, expected in zip(
        values, values_and_gradients(partial(plain, limits=Limits(40)), 200, 2, WIDTH), strict=True
    ):
        assert jnp.abs(found - expected).max() < 1e-5


def test_small_blocks_skip_whole_documents_and_change_nothing() -> None:
    assert_equal_to_plain(partial(skipping, block=32), 160, 2)


def assert_equal_to_plain(
    implementation: Callable[..., jax.Array], length: int, kv_heads: int, width: int = WIDTH, most: float = 1e-5
) -> None:
    values = values_and_gradients(implementation, length, kv_heads, width)
    for found, expected in zip(values, of_plain(length, kv_heads, width), strict=True):
        assert found.shape == expected.shape
        assert jnp.abs(found - expected).max() < most


def values_and_gradients(
    implementation: Callable[..., jax.Array], length: int, kv_heads: int, width: int
) -> tuple[jax.Array, ...]:
    q, k, v, g = inputs(length, kv_heads, width)
    ids = segments(length)

    @jax.jit
    def run(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
        out, pull = jax.vjp(lambda q, k, v: implementation(q, k, v, ids), q, k, v)
        return out, *pull(g)

    return run(q, k, v)


@cache
def of_plain(length: int, kv_heads: int, width: int) -> tuple[jax.Array, ...]:
    return values_and_gradients(plain, length, kv_heads, width)


def test_one_document_reaches_all_blocks_before_and_short_ones_their_own() -> None:
    whole = jnp.ones((1, 512), jnp.int32)
    assert reaches(whole, 128).tolist() == [[1, 2, 3, 4]]
    short = jnp.asarray(np.repeat([1, 2, 3], [128, 256, 128])[None], jnp.int32)
    assert reaches(short, 128).tolist() == [[1, 1, 2, 1]]
    assert reaches(whole, 128, 129).tolist() == [[1, 2, 2, 2]]
    assert reaches(whole, 128, 130).tolist() == [[1, 2, 3, 3]]


def test_segment_ids_need_not_be_in_order_nor_small() -> None:
    q, k, v, _ = inputs(64, 4)
    ids = jnp.asarray(np.tile([7, 900_000, 7, 3], 16)[None].repeat(ROWS, 0), jnp.int32)
    assert jnp.abs(in_small_blocks(q, k, v, ids) - plain(q, k, v, ids)).max() < 1e-5


def test_large_scores_do_not_overflow() -> None:
    q, k, v, _ = inputs(64, 4)
    out = in_small_blocks(q * 100, k * 100, v, segments(64))
    assert jnp.isfinite(out).all()
    assert jnp.abs(out - plain(q * 100, k * 100, v, segments(64))).max() < 1e-4


def test_bfloat16_stays_near_float32() -> None:
    q, k, v, _ = inputs(128, 2)
    ids = segments(128)
    exact = plain(q, k, v, ids)
    run = jax.jit(attention, static_argnums=4)
    for name in ("plain", *HERE):
        rounded = run(*(x.astype(jnp.bfloat16) for x in (q, k, v)), ids, name)
        assert rounded.dtype == jnp.bfloat16
        assert jnp.abs(rounded.astype(jnp.float32) - exact).max() < 2e-2


def test_an_unknown_implementation_is_named_with_the_known_ones() -> None:
    q, k, v, _ = inputs(128, 4)
    with pytest.raises(ValueError, match=r"'flash'.*plain, chunked"):
        attention(q, k, v, segments(128), "flash")


def test_the_choice_depends_on_platform_devices_and_shape() -> None:
    assert choose("cpu", 1, 64, 32, "float32") == ("skipping", "")
    assert choose("cpu", 8, 64, 32, "float32") == ("chunked", "")
    assert choose("tpu", 1, 4096, 128, "bfloat16") == ("splash", "")
    assert choose("tpu", 1, 4096, 64, "bfloat16") == ("splash", "")
    assert choose("gpu", 1, 4096, 128, "bfloat16", 50.0) == ("chunked", "cuDNN attention has no soft cap of scores")
    assert choose("gpu", 1, 4096, 128, "bfloat16") == ("cudnn", "")
    assert choose("gpu", 1, 4096, 256, "bfloat16") == ("cudnn", "")
    before_hopper = "packed rows of cuDNN need compute capability 9.0, got 8.0"
    assert choose("gpu", 1, 8192, 128, "bfloat16", capability=(8, 0)) == ("cudnn_mask", before_hopper)
    assert choose("gpu", 1, 8320, 128, "bfloat16", capability=(8, 0)) == ("chunked", before_hopper)
    assert choose("gpu", 1, 4096, 256, "bfloat16", capability=(8, 0)) == ("chunked", before_hopper)
    assert set(IMPLEMENTATIONS) == {"plain", "chunked", "skipping", "splash", "cudnn", "cudnn_mask"}


@pytest.mark.parametrize(
    ("platform", "length", "head_dim", "dtype", "reason"),
    [
        ("tpu", 4096, 32, "bfloat16", "heads of at least 64 features, got 32"),
        ("tpu", 100, 128, "bfloat16", "rows of a multiple of 128 tokens, got 100"),
        ("gpu", 4096, 128, "float32", "bfloat16 or float16, got float32"),
        ("gpu", 4096, 264, "bfloat16", "up to 256 features, got 264"),
        ("metal", 4096, 128, "bfloat16", "no kernel for platform 'metal'"),
    ],
)
def test_a_fallback_says_why(platform: str, length: int, head_dim: int, dtype: str, reason: str) -> None:
    name, why = choose(platform, 4, length, head_dim, dtype)
    assert name == "chunked"
    assert reason in why
