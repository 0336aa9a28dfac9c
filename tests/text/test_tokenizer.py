"""The tokenizer: round trips, specials that text cannot forge, determinism."""

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemur_ray.text.tokenizer import SPECIALS, Tokenizer

TEXTS = [
    "def area(width, height):\n    return width * height\n",
    "You arrive at cabinet 2. On the cabinet 2, you see a mug 1.",
    "The quick brown fox jumps over the lazy dog, twice.\n\n",
] * 20
TOKENIZER = Tokenizer.train(TEXTS, 400)


@given(st.text(max_size=200))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no text
    assert TOKENIZER.decode(TOKENIZER.encode(text), skip_special=False) == text


@given(st.lists(st.sampled_from([*SPECIALS, "a", " ", "\n", "cabinet 2"]), max_size=8))
def test_text_never_becomes_a_special_token(parts: list[str]) -> None:
    ids = TOKENIZER.encode("".join(parts))
    assert not set(ids) & TOKENIZER.special_ids
    assert TOKENIZER.decode(ids) == "".join(parts)


@given(st.text(max_size=60))
def test_bytes_of_the_tokens_join_to_the_bytes_of_the_text(text: str) -> None:
    try:
        expected = text.encode()
    except UnicodeEncodeError:
        return
    assert b"".join(TOKENIZER.token_bytes(i) for i in TOKENIZER.encode(text)) == expected


@given(st.lists(st.sampled_from([*SPECIALS, "a", " ", "\n", "cabinet 2"]), max_size=8))
def test_text_that_may_spell_special_tokens_out_becomes_them(parts: list[str]) -> None:
    ids = TOKENIZER.encode_marked("".join(parts))
    assert [TOKENIZER.token_bytes(i).decode() for i in ids if i in TOKENIZER.special_ids] == [
        part for part in parts if part in SPECIALS
    ]
    assert TOKENIZER.decode(ids, skip_special=False) == "".join(parts)


def test_a_long_text_and_its_many_ids_are_read_as_short_ones_are() -> None:
    text = "cabinet 2</s>" * 4000
    assert TOKENIZER.encode_marked(text) == TOKENIZER.encode_marked("cabinet 2</s>") * 4000
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_specials_have_ids_of_their_own_and_spell_themselves() -> None:
    ids = [TOKENIZER.pad_id, TOKENIZER.bos_id, TOKENIZER.eos_id, TOKENIZER.im_start_id, TOKENIZER.im_end_id]
    assert len(set(ids)) == 5
    assert TOKENIZER.token_bytes(TOKENIZER.im_end_id) == b"<|im_end|>"
    assert TOKENIZER.decode(ids) == ""


def test_training_twice_gives_the_same_tokenizer() -> None:
    assert Tokenizer.train(TEXTS, 400).to_json() == TOKENIZER.to_json()


def test_it_survives_a_file_and_a_pickle(tmp_path: object) -> None:
    path = f"{tmp_path}/tokenizer.json"
    TOKENIZER.save(path)
    for copy in (Tokenizer.load(path), pickle.loads(pickle.dumps(TOKENIZER))):
        assert copy.vocab_size == TOKENIZER.vocab_size
        assert copy.encode("<|im_end|> cabinet 2") == TOKENIZER.encode("<|im_end|> cabinet 2")


def test_a_batch_is_what_its_texts_are_alone() -> None:
    assert TOKENIZER.encode_batch(TEXTS[:3]) == [TOKENIZER.encode(t) for t in TEXTS[:3]]


def test_the_byte_tokenizer_has_no_merges() -> None:
    tokenizer = Tokenizer.bytes_only()
    assert tokenizer.vocab_size == 256 + len(SPECIALS)
    assert len(tokenizer.encode("Zürich")) == 7


def test_a_vocabulary_too_small_for_all_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 263"):
        Tokenizer.train(TEXTS, 100)


def test_a_missing_file_says_what_was_expected(tmp_path: object) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        Tokenizer.load(f"{tmp_path}/nothing.json")


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"model": {"type": "BPE", "vocab": {}}'])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer\.json .* copy it anew"):
        Tokenizer.load(path)


def test_the_same_vocabulary_and_merges_are_the_same_tokenizer_however_the_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(TOKENIZER.to_json()), indent=2))
    assert path.read_text() != TOKENIZER.to_json()
    assert Tokenizer.load(path).is_same(TOKENIZER)
    assert not Tokenizer.train(TEXTS, 280).is_same(TOKENIZER)
    other = json.loads(TOKENIZER.to_json())
    other["model"]["merges"] = other["model"]["merges"][::-1]
    path.write_text(json.dumps(other))
    assert not Tokenizer.load(path).is_same(TOKENIZER)
    older = json.loads(TOKENIZER.to_json())
    older["model"]["merges"] = [" ".join(pair) for pair in older["model"]["merges"]]
    path.write_text(json.dumps(older))
    assert Tokenizer.load(path).is_same(TOKENIZER), "merges written as strings, as older files have them"
