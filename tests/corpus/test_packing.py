"""Packing loses no token, cuts only what is longer than a row, and fills rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lemur_ray.corpus.packing import SHARD_BYTES, WINDOW, best_fit, expand, pack, shard_ends, windows
from lemur_ray.corpus.sources.specs import read_sources

lengths = st.lists(st.integers(1, 300), min_size=1, max_size=120)


@given(lengths, st.integers(16, 128), st.integers(4, 40))
@settings(max_examples=150, deadline=None)
def test_every_token_of_every_document_lies_in_exactly_one_row(lengths: list[int], capacity: int, window: int) -> None:
    packing = pack(np.array(lengths), capacity, window)
    covered = [np.zeros(n, int) for n in lengths]
    for document, start, length in zip(packing.document, packing.start, packing.length, strict=True):
        covered[document][start : start + length] += 1
    assert all((marks == 1).all() for marks in covered)
    used = np.bincount(packing.row, weights=packing.length, minlength=packing.num_rows)
    assert used.max() <= capacity
    assert used.min() > 0
    assert packing.length.sum() == sum(lengths)


@given(lengths, st.integers(16, 128))
@settings(max_examples=80, deadline=None)
def test_only_documents_longer_than_a_row_are_cut_and_only_at_row_multiples(lengths: list[int], capacity: int) -> None:
    packing = pack(np.array(lengths), capacity)
    pieces = np.bincount(packing.document, minlength=len(lengths))
    np.testing.assert_array_equal(pieces, -(-np.array(lengths) // capacity))
    assert (packing.start % capacity == 0).all()


@given(st.lists(st.integers(1, 64), min_size=1, max_size=100))
@settings(max_examples=80, deadline=None)
def test_no_two_rows_could_be_one_row(lengths: list[int]) -> None:
    rows, num_rows = best_fit(np.array(lengths), 64)
    used = np.sort(np.bincount(rows, weights=lengths, minlength=num_rows))
    assert num_rows < 2 or used[0] + used[1] > 64


def test_the_tightest_open_row_is_chosen() -> None:
    rows, _ = best_fit(np.array([60, 50, 13, 4]), 64)
    assert rows.tolist() == [0, 1, 1, 0]


def test_the_same_lengths_pack_the_same_way() -> None:
    sizes = np.random.default_rng(0).integers(1, 900, 5000)
    first, second = pack(sizes, 256), pack(sizes, 256)
    np.testing.assert_array_equal(first.row, second.row)
    np.testing.assert_array_equal(first.document, second.document)


@pytest.mark.parametrize("capacity", [1024, 4096])
def test_code_like_lengths_fill_their_rows(capacity: int) -> None:
    documents = np.maximum(1, np.random.default_rng(0).lognormal(6.6, 1.3, 60_000).astype(int))
    assert documents.sum() / (pack(documents, capacity).num_rows * capacity) >= 0.998


@given(st.integers(0, 50_000), st.integers(2, 9000))
def test_windows_cover_everything_once_and_none_is_small_or_large(count: int, window: int) -> None:
    ranges = windows(count, window)
    assert [end for _, end in ranges[:-1]] == [begin for begin, _ in ranges[1:]]
    assert sum(end - begin for begin, end in ranges) == count
    if count > window:
        assert all(window // 2 <= end - begin < 1.5 * window + 1 for begin, end in ranges)


def test_a_row_in_arrays_is_what_the_contract_says() -> None:
    tokens = np.array([[5, 6, 7, 8, 9, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8]])
    row = expand(tokens, np.array([3, 2, 8]), np.array([2, 1]))
    assert row.segment_ids.tolist() == [[1, 1, 1, 2, 2, 0, 0, 0], [1] * 8]
    assert row.positions.tolist() == [[0, 1, 2, 0, 1, 0, 1, 2], list(range(8))]
    assert row.targets.tolist() == [[6, 7, 0, 9, 0, 0, 0, 0], [2, 3, 4, 5, 6, 7, 8, 0]]
    assert row.loss_weights.tolist() == [[1, 1, 0, 1, 0, 0, 0, 0], [1] * 7 + [0]]
    assert {a.dtype for a in (row.tokens, row.targets, row.segment_ids, row.positions)} == {np.dtype(np.int32)}
    assert row.loss_weights.dtype == np.float32


def test_trained_marks_say_which_tokens_are_predicted() -> None:
    tokens = np.array([[5, 6, 7, 8, 9, 0]])
    trained = np.array([[1, 0, 1, 1, 1, 1]], bool)
    row = expand(tokens, np.array([3, 2]), np.array([2]), trained)
    assert row.loss_weights.tolist() == [[0, 1, 0, 1, 0, 0]]


def test_no_documents_are_no_rows() -> None:
    assert pack(np.zeros(0, np.int64), 8).num_rows == 0
    assert expand(np.zeros((0, 8), int), np.zeros(0, int), np.zeros(0, int)).tokens.shape == (0, 8)


def test_a_document_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="document 1 has 0 tokens"):
        pack(np.array([3, 0]), 8)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200), st.integers(1, 5000))
def test_shards_hold_all_windows_once_and_only_a_small_set_is_a_small_shard(sizes: list[int], shard: int) -> None:
    ends = shard_ends(np.array(sizes), shard)
    assert ends == sorted(set(ends))
    assert ends[-1] == len(sizes)
    in_shards = [sum(sizes[begin:end]) for begin, end in itertools.pairwise([0, *ends])]
    assert max(in_shards) <= 2 * shard + 2 * max(sizes)
    assert len(in_shards) == 1 or min(in_shards) >= shard - max(sizes)


def test_the_mixture_of_the_paper_lies_in_at_most_700_files() -> None:
    tokens = np.array([spec.tokens for spec in read_sources("lemur_ray/recipes/table8.yaml")])
    assert len(tokens) == 16
    for total in (46.1e9, 180.5e9):
        files = 0
        for of_source in tokens * total / tokens.sum():
            window = WINDOW * 700 * 2  # bytes of a window of pieces of 700 tokens
            shards = len(shard_ends(np.full(round(of_source * 2 / window), window), SHARD_BYTES))
            files += 5 * shards + 1 + 5 + 1  # a shard, the index of the set, and the same of its held-out rows
        assert files <= 700, total
