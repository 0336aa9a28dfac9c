"""Exact duplicates up to case and white space are one document: the first."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lemur_ray.corpus.documents import content_id, first_occurrences, shuffled_order


@given(st.lists(st.sampled_from("abcdefgh"), max_size=60))
@settings(max_examples=80, deadline=None)
def test_the_first_of_each_text_stays(texts: list[str]) -> None:
    keep = first_occurrences(b"".join(content_id(text) for text in texts))
    seen: set[str] = set()
    for text, kept in zip(texts, keep, strict=True):
        assert kept == (text not in seen)
        seen.add(text)


def test_case_white_space_and_unicode_form_do_not_make_a_document() -> None:
    assert content_id("A  b\n\tc") == content_id("a B c ")
    assert content_id("caf\u00e9") == content_id("cafe\u0301")
    assert content_id("a b") != content_id("ab")
    assert content_id("A b") == content_id("a  b")


def test_a_seeded_order_is_a_permutation_that_seed_and_purpose_change() -> None:
    ids = b"".join(content_id(str(i)) for i in range(500))
    order = shuffled_order(ids, 0, "heldout")
    np.testing.assert_array_equal(np.sort(order), np.arange(500))
    np.testing.assert_array_equal(order, shuffled_order(ids, 0, "heldout"))
    assert (order != shuffled_order(ids, 1, "heldout")).any()
    assert (order != shuffled_order(ids, 0, "tokenizer")).any()
