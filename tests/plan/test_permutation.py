"""The permutation is a bijection at every size, differs by key, and shuffles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lemur_ray.plan.permutation import derive_key, permute


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1))
@settings(max_examples=150, deadline=None)
def test_every_size_and_key_gives_a_permutation(size: int, seed: int) -> None:
    image = permute(np.arange(size), size, derive_key(seed))
    np.testing.assert_array_equal(np.sort(image), np.arange(size))


@given(st.integers(1, 10**12), st.lists(st.integers(0, 10**12), min_size=1, max_size=50), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_points_are_mapped_one_by_one_as_together(size: int, points: list[int], seed: int) -> None:
    indices = np.array(sorted({point % size for point in points}))
    key = derive_key(seed, 1, 2)
    together = permute(indices, size, key)
    assert [int(permute(np.array([i]), size, key)[0]) for i in indices] == together.tolist()
    assert len(set(together.tolist())) == len(indices)
    assert together.min() >= 0
    assert together.max() < size


def test_parts_of_a_key_matter_and_so_does_their_order() -> None:
    keys = [derive_key(*parts)[0] for parts in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (0, 1, 3), (0, 1, -1))]
    assert len(set(keys)) == len(keys)


def test_a_key_per_index_equals_calls_with_one_key_each() -> None:
    epochs = np.array([0, 1, 2, 0, 1])
    indices = np.array([5, 5, 5, 9, 9])
    together = permute(indices, 100, derive_key(7, 3, epochs))
    alone = [
        int(permute(np.array([i]), 100, derive_key(7, 3, int(e)))[0]) for i, e in zip(indices, epochs, strict=True)
    ]
    assert together.tolist() == alone


def test_the_image_of_a_run_of_neighbours_is_spread_evenly() -> None:
    size, buckets = 1_000_003, 100
    counts = np.bincount(permute(np.arange(20_000), size, derive_key(1)) * buckets // size, minlength=buckets)
    chi_square = ((counts - 200) ** 2 / 200).sum()
    assert 50 < chi_square < 170  # 99 degrees of freedom: outside this about once in 10^5 keys


def test_neighbours_do_not_stay_neighbours() -> None:
    image = permute(np.arange(100_000), 100_000, derive_key(2))
    assert (np.abs(np.diff(image)) == 1).sum() < 20
    assert (image == np.arange(100_000)).sum() < 10


def test_an_index_outside_the_domain_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 0 to 9"):
        permute(np.array([10]), 10, derive_key(0))
