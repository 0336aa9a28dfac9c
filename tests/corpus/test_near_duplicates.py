"""Near duplicates by MinHash bands and verified similarity, against the exact similarities of all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from near_duplicate_texts import edited_texts, later_copies_by_bands, macro_f1, true_later_copies

from lemur_ray.corpus.cleaning import minhash
from lemur_ray.corpus.cleaning.minhash import band_keys, candidate_pairs, components
from lemur_ray.corpus.cleaning.near_duplicates import later_copies, text_sets
from lemur_ray.corpus.cleaning.shingles import ngram_hashes


def words(begin: int, end: int) -> str:
    return " ".join(f"word{i}" for i in range(begin, end))


@pytest.mark.parametrize("library", ["rensa", "numpy"])
def test_verified_near_duplicates_have_macro_f1_of_099_and_no_false_ones(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "numpy":
        monkeypatch.setattr(minhash, "minhash_name", lambda: "numpy")
    else:
        pytest.importorskip("rensa")
    texts = edited_texts(80, 80, seed=1)
    truth, answer = true_later_copies(texts, 0.8), later_copies_by_bands(texts, 0.8)
    assert truth.sum() > 30
    assert macro_f1(truth, answer) >= 0.99
    assert not (answer & ~truth).any()


def test_ngrams_depend_on_words_alone_and_not_on_the_batch() -> None:
    texts = ["One two, THREE four_4 five six.", "", "too short", words(0, 400_000), "naïve café — dé jà vu œuvre"]
    hashes, counts = ngram_hashes(texts, 5)
    assert counts.tolist() == [2, 0, 0, 399_996, 3]
    apart = [ngram_hashes([text], 5)[0] for text in texts]
    np.testing.assert_array_equal(hashes, np.concatenate(apart))
    np.testing.assert_array_equal(apart[0], ngram_hashes(["one\ntwo three -- four_4 FIVE six"], 5)[0])
    assert len(np.unique(apart[3])) == 399_996


def test_a_text_without_enough_words_is_no_candidate() -> None:
    keys = band_keys(["a b c", "", words(0, 50), words(0, 50) + " "])
    assert (keys[:, :2] == 0).all()
    assert (keys[:, 2] == keys[:, 3]).all()
    assert candidate_pairs(keys[0], np.arange(4)).tolist() == [[2, 3]]


def test_texts_of_one_key_are_connected_with_bounded_stars() -> None:
    pairs = candidate_pairs(np.full(5000, 7, np.uint64), np.arange(5000))
    assert np.unique(pairs[:, 0], return_counts=True)[1].max() <= 1000
    texts, labels = components(pairs)
    assert (len(texts), labels.max()) == (5000, 0)


def test_the_first_of_texts_connected_by_similar_pairs_stays() -> None:
    # Neighbours share 95 of 105 words, the first and the last only half of them.
    chain = [words(5 * i, 5 * i + 100) for i in range(8)]
    sets = text_sets([*chain, words(1000, 1100), chain[0].upper()])
    assert later_copies(sets, 0.8).tolist() == [False, *[True] * 7, False, True]
    assert later_copies(sets, 0.95).tolist() == [False] * 9 + [True]


def test_in_a_large_component_pairs_of_one_band_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lemur_ray.corpus.cleaning.near_duplicates._ALL_PAIRS", 3)
    sets = text_sets([words(0, 100), words(500, 600), words(1, 101), words(2, 102)])
    later = later_copies(sets, 0.8, np.array([[0, 1], [0, 2], [1, 3], [2, 3]]))
    assert later.tolist() == [False, False, True, True]
