"""Documents as BOS, text, EOS; the tokenizer's sample takes in extra texts by their share."""

from __future__ import annotations

import numpy as np
import pytest

from lemur_ray.corpus.steps.tokenise import repeat_to, tokenise, train_tokenizer
from lemur_ray.text.tokenizer import Tokenizer


def test_every_document_stands_between_bos_and_eos_and_decodes_to_itself() -> None:
    tokenizer = Tokenizer.bytes_only()
    texts = ["one", "", "<s> is not a token </s>", "naïve"]
    flat, lengths = tokenise(texts, tokenizer, np.dtype("<u2"))
    begins = np.cumsum(lengths) - lengths
    for text, begin, length in zip(texts, begins, lengths, strict=True):
        ids = flat[begin : begin + length].tolist()
        assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
        assert tokenizer.decode(ids) == text
    assert flat.dtype == np.dtype("<u2")


def test_no_documents_give_no_tokens() -> None:
    flat, lengths = tokenise([], Tokenizer.bytes_only(), np.dtype("<u2"))
    assert (len(flat), len(lengths)) == (0, 0)


def test_extra_texts_are_repeated_or_cut_to_their_share() -> None:
    assert repeat_to(["abc", "d"], 10) == ["abc", "d", "abc", "d", "abc"]
    assert repeat_to(["abc"] * 100, 7) == ["abc"] * 3
    assert repeat_to([""], 7) == []


def test_extra_texts_tokenise_shorter_for_being_in_the_sample() -> None:
    prose = ["the quick brown fox jumps over the lazy dog and runs away " * 20]
    game = ["you open the xylophonecabinet and take the quixotickettle\n"]
    with_game = train_tokenizer(prose, game, 0.5, 500)
    without = train_tokenizer(prose, [], 0.5, 500)
    assert len(with_game.encode(game[0])) * 4 < len(without.encode(game[0]))


def test_a_share_of_nothing_leaves_the_extra_out() -> None:
    prose = ["some words that are here and there " * 9]
    assert train_tokenizer(prose, ["zzz " * 99], 0.0, 300).to_json() == train_tokenizer(prose, [], 0.0, 300).to_json()


def test_too_small_a_vocabulary_is_an_error_that_says_the_least() -> None:
    with pytest.raises(ValueError, match="use at least"):
        train_tokenizer(["x"], [], 0.0, 100)
