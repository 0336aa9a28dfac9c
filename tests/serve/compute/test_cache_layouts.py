"""Every layout of keys and values against numpy: what is written is attended to, and nothing else.

The kernel for TPU runs in Pallas' interpreter, that for CPUs as it is. Arithmetic of the plain layout:
row by row (CPU) and side by side.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.attention import BLOCK, LayerCache, Place, copy_block
from lemur_ray.serve.compute.cache_layout import PLAIN, ByToken, CacheLayout, Native
from lemur_ray.serve.compute.cpu.kernels import available
from lemur_ray.serve.compute.invariant import ACCELERATOR, EXACT_CPU, TILE, Arithmetic
from lemur_ray.serve.compute.paged_cache import Paged

pytestmark = pytest.mark.slow

WIDTH = 128
"""Of a head: the least that the kernel takes."""
ROWS = 4
"""Of every step here, so that few programs are compiled."""
NUM_BLOCKS = 12
TABLE = 3
"""Blocks of a sequence at most."""
LAYOUTS = {
    "plain, row by row": (PLAIN, EXACT_CPU),
    "plain, side by side": (PLAIN, ACCELERATOR),
    "native": (Native(), EXACT_CPU),
    "paged": (Paged(), ACCELERATOR),
    "by token": (ByToken(), ACCELERATOR),
}
HEADS = [(2, 2), (2, 1), (1, 4)]
"""Kv heads and query heads of each: GQA, MHA, MQA."""


def swept(*values: Any) -> list[Any]:
    """More values of a parameter, for `make test-all`."""
    return [pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.sweep) for v in values]


@partial(jax.jit, static_argnames=("layout", "how", "limits"), donate_argnames=("cache",))
def write_and_attend(
    cache: Any,
    k: Any,
    v: Any,
    q: Any,
    place: Place,
    layout: CacheLayout,
    how: Arithmetic,
    limits: tuple[int, float] = (0, 0.0),
) -> tuple[Any, jax.Array]:
    cache = layout.write(cache, k, v, place)
    return cache, layout.attend(cache, q, place, how, *limits)


class Pool:
    """One layer's pool of some layout beside a plain record of what it should hold."""

    def __init__(
        self,
        layout: CacheLayout,
        how: Arithmetic,
        kv_heads: int = 2,
        groups: int = 2,
        dtype: Any = jnp.float32,
        seed: int = 0,
        limits: tuple[int, float] = (0, 0.0),
    ):
        self.limits = limits
        config = ModelConfig(num_layers=1, num_heads=kv_heads * groups, num_kv_heads=kv_heads, head_dim=WIDTH)
        self.layout, self.how, self.kv_heads, self.groups, self.dtype = layout, how, kv_heads, groups, dtype
        self.rng = np.random.default_rng(seed)
        self.cache = layout.allocate(config, NUM_BLOCKS, dtype)
        # Blocks hold what others left there; the scrap block something that spoils whatever it touches.
        self.cache = jax.tree.map(lambda pool: self.spoilt(pool.shape).view(pool.dtype), self.cache)
        self.truth = np.zeros((2, NUM_BLOCKS, BLOCK, kv_heads, WIDTH))

    def spoilt(self, shape: tuple[int, ...]) -> jax.Array:
        return jnp.asarray(self.rng.normal(0, 100, shape), self.dtype).at[0].set(jnp.nan)

    def draw(self, *shape: int) -> np.ndarray:
        return np.array(jnp.asarray(self.rng.normal(size=shape), self.dtype))

    def step(self, length: int, *rows: tuple[list[int], int, int]) -> np.ndarray:
        """New random tokens of rows (table, start, count); the rest is padding. Returns what the real ones attend to.

        Fails where that is not what numpy makes of the record.
        """
        tables, starts, counts = np.zeros((ROWS, TABLE), np.int32), np.zeros(ROWS, np.int32), np.zeros(ROWS, np.int32)
        for r, (table, start, count) in enumerate(rows):
            tables[r, : len(table)], starts[r], counts[r] = table, start, count
        k, v = (self.draw(ROWS * length, self.kv_heads, WIDTH) for _ in range(2))
        q = self.draw(ROWS, self.kv_heads, self.groups, length, WIDTH)
        padding = np.arange(length) >= counts[:, None]
        k[padding.reshape(-1)] = v[padding.reshape(-1)] = np.nan
        place = Place(tables, starts, counts, np.int32(len(rows)))
        layer, got = write_and_attend(self.cache[0], k, v, q, place, self.layout, self.how, self.limits)
        self.cache = (layer,)
        for r, (table, start, count) in enumerate(rows):
            for m in range(count):
                block, offset = table[(start + m) // BLOCK], (start + m) % BLOCK
                self.truth[:, block, offset] = k[r * length + m], v[r * length + m]
        real = [np.asarray(got, np.float64)[r, :, :, : row[2]] for r, row in enumerate(rows)]
        tolerance = 2e-5 if self.dtype == jnp.float32 else 3e-2
        for r, (table, start, count) in enumerate(rows):
            for m in range(count):
                np.testing.assert_allclose(
                    real[r][:, :, m], self.attended(q[r, :, :, m], table, start + m), atol=tolerance, rtol=tolerance
                )
        return np.concatenate([part.reshape(-1) for part in real])

    def attended(self, q_KGh: np.ndarray, table: list[int], position: int) -> np.ndarray:
        """(K, G, h): softmax over the tokens of a table up to a position."""
        k, v = self.truth[:, table].reshape(2, -1, self.kv_heads, WIDTH)[:, : position + 1]
        window, cap = self.limits
        k, v = k[-window:], v[-window:]
        score = np.einsum("kgh,skh->kgs", q_KGh.astype(np.float64), k) * WIDTH**-0.5
        score = cap * np.tanh(score / cap) if cap else score
        weight = np.exp(score - score.max(-1, keepdims=True))
        return np.einsum("kgs,skh->kgh", weight / weight.sum(-1, keepdims=True), v)

    def fill(self, table: list[int], num_tokens: int) -> None:
        """A sequence of so many tokens, tile by tile, as many tiles a step as there are rows."""
        tiles = [(table, start, min(TILE, num_tokens - start)) for start in range(0, num_tokens, TILE)]
        for i in range(0, len(tiles), ROWS):
            self.step(TILE, *tiles[i : i + ROWS])


@pytest.fixture(params=LAYOUTS)
def kind(request: pytest.FixtureRequest, tpu_interpreter: None) -> tuple[CacheLayout, Arithmetic]:
    assert request.param != "native" or available(), "no C++ compiler: apt-get install -y g++"
    return LAYOUTS[request.param]


Kind = tuple[CacheLayout, Arithmetic]


@pytest.mark.parametrize("length", [1, BLOCK, BLOCK + 1, *swept(2, BLOCK - 1, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1)])
def test_a_prompt_is_read_and_continued_on_either_side_of_a_block_edge(kind: Kind, length: int) -> None:
    pool = Pool(*kind)
    pool.fill([3, 1, 7], length)
    for n in range(3):
        pool.step(1, ([3, 1, 7], length + n, 1))


@pytest.mark.parametrize(("kv_heads", "groups"), [HEADS[0], *swept(*HEADS[1:])])
def test_rows_of_different_lengths_are_decoded_side_by_side(kind: Kind, kv_heads: int, groups: int) -> None:
    pool = Pool(*kind, kv_heads, groups)
    pool.fill([4, 5, 6], 2 * BLOCK + 40)
    pool.fill([7, 8], BLOCK - 1)
    pool.step(1, ([4, 5, 6], 2 * BLOCK + 40, 1), ([9], 0, 1), ([7, 8], BLOCK - 1, 1))
    pool.step(1, ([7, 8], BLOCK, 1), ([9], 1, 1), ([4, 5, 6], 2 * BLOCK + 41, 1), ([10], 0, 1))


@pytest.mark.parametrize(("kv_heads", "groups"), [HEADS[0], *swept(*HEADS[1:])])
def test_tiles_of_several_prompts_are_read_in_one_step(kind: Kind, kv_heads: int, groups: int) -> None:
    pool = Pool(*kind, kv_heads, groups)
    pool.fill([2], 100)
    # Two tiles of one prompt, the second of which goes over the edge of a block, a whole short prompt, a longer one.
    pool.step(TILE, ([2, 3], 100, TILE), ([2, 3], 100 + TILE, 5), ([4], 0, 1), ([5], 0, TILE))


def test_the_last_tile_of_a_full_context_ends_with_its_table(kind: Kind) -> None:
    pool = Pool(*kind)
    pool.fill([1, 2, 3], TABLE * BLOCK - 7)
    pool.step(TILE, ([1, 2, 3], TABLE * BLOCK - 7, 6), ([4], 0, 3))
    pool.step(1, ([1, 2, 3], TABLE * BLOCK - 1, 1))


def test_a_tile_whose_padding_goes_over_the_edge_of_a_block_needs_no_block_there(kind: Kind) -> None:
    pool = Pool(*kind)
    pool.fill([4], 100)
    pool.step(TILE, ([4], 100, 5), ([5], 0, 3))


def test_sequences_share_the_blocks_of_a_common_beginning(kind: Kind) -> None:
    pool = Pool(*kind)
    pool.fill([6], BLOCK)
    pool.step(TILE, ([6, 1], BLOCK, 20), ([6, 2], BLOCK, 7))
    pool.step(1, ([6, 1], BLOCK + 20, 1), ([6, 2], BLOCK + 7, 1))


def test_a_copy_of_a_block_goes_its_own_way(kind: Kind) -> None:
    pool = Pool(*kind)
    pool.fill([6], 50)
    pool.cache = copy_block(pool.cache, jnp.int32(6), jnp.int32(9))
    pool.truth[:, 9] = pool.truth[:, 6]
    pool.step(TILE, ([9], 40, 10), ([5], 0, 4))
    pool.step(1, ([9], 50, 1), ([6], 50, 1))


def test_what_a_row_yields_does_not_depend_on_padding_or_on_its_neighbours(kind: Kind) -> None:
    found = []
    for neighbours in ([], [([4], 0, 1)], [([4], 0, 1), ([5], 0, 1), ([6], 0, 1)]):
        pool = Pool(*kind)
        pool.fill([2, 3], 140)
        found.append(pool.step(1, ([2, 3], 140, 1), *neighbours)[: 4 * WIDTH])
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_padding_gets_finite_numbers_and_writes_nowhere_but_to_the_scrap_block(kind: Kind) -> None:
    layout, how = kind
    pool = Pool(layout, how)
    pool.cache = jax.tree.map(lambda array: array.at[0].set(0.0), pool.cache)
    before = jax.tree.map(np.array, pool.cache)
    zeros = np.zeros(ROWS, np.int32)
    for length, num_rows in ((1, 0), (1, 2), (TILE, 0), (TILE, 2)):
        place = Place(np.zeros((ROWS, TABLE), np.int32), zeros, zeros, np.int32(num_rows))
        k, v = pool.draw(ROWS * length, 2, WIDTH), pool.draw(ROWS * length, 2, WIDTH)
        layer, got = write_and_attend(pool.cache[0], k, v, pool.draw(ROWS, 2, 2, length, WIDTH), place, layout, how)
        pool.cache = (layer,)
        assert np.isfinite(got).all()
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(pool.cache), strict=True):
        assert np.array_equal(old[1:], new[1:])


@pytest.mark.parametrize("limits", [(50, 0.0), (BLOCK + 1, 2.0)])
def test_windows_and_caps_limit_what_is_attended_to(kind: Kind, limits: tuple[int, float]) -> None:
    pool = Pool(*kind, limits=limits)
    pool.fill([3, 1, 7], 2 * BLOCK + 20)
    pool.fill([4, 5], BLOCK - 2)
    pool.step(1, ([3, 1, 7], 2 * BLOCK + 20, 1), ([9], 0, 1), ([4, 5], BLOCK - 2, 1))
    pool.step(TILE, ([3, 1, 7], 2 * BLOCK + 21, TILE), ([4, 5], BLOCK - 1, 9))


def test_bfloat16_is_attended_to_as_well_as_it_can_be(kind: Kind) -> None:
    pool = Pool(*kind, dtype=jnp.bfloat16)
    pool.fill([3, 1], 140)
    pool.step(1, ([3, 1], 140, 1), ([5], 0, 1))


def test_attention_of_more_layers_takes_no_more_memory() -> None:
    def temporaries(layers: int) -> int:
        def attend(cache: Any, q: jax.Array, place: Place) -> jax.Array:
            for layer in cache:
                q = PLAIN.attend(layer, q, place, ACCELERATOR)
            return q

        q, at = jnp.zeros((16, 1, 8, 1, WIDTH)), jnp.zeros(16, jnp.int32)
        pool = LayerCache(jnp.zeros((NUM_BLOCKS, 1, WIDTH, BLOCK)), jnp.zeros((NUM_BLOCKS, 1, BLOCK, WIDTH)))
        place = Place(jnp.zeros((16, TABLE), jnp.int32), at, at, at[0])
        return jax.jit(attend).lower((pool,) * layers, q, place).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(4) < temporaries(1) + 16 * 8 * WIDTH * 4, "what a layer's softmax begins with is kept for all"
