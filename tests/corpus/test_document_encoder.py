"""Encoding of documents by gigatoken: equal ids, or the tokenizers library in its place."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from lemur_ray.corpus.steps import document_encoder as encoders
from lemur_ray.corpus.steps import stages
from lemur_ray.corpus.steps.document_encoder import IdsDiffer, document_encoder
from lemur_ray.corpus.steps.tokenise import tokenise
from lemur_ray.text.tokenizer import Tokenizer as OurTokenizer
from lemur_ray.text.tokenizer_folder import save_folder

WORDS = ["the", "river", "def", "return", "naïve", "ﬁsh", "你好", "🦊", "x=1", "<s>", "</s>", "...", "\n\t"]
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def drawn_texts(number: int) -> list[str]:
    rng = np.random.default_rng(number)
    return [" ".join(rng.choice(WORDS, int(rng.integers(0, 40))).tolist()) for _ in range(number)]


def trained(vocab_size: int = 400) -> OurTokenizer:
    """A byte-level tokenizer with the words of GPT-2, which gigatoken knows, and special tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(GPT2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(drawn_texts(100), trainer)
    return OurTokenizer.from_json(backend.to_str())


def test_the_fast_library_gives_equal_ids_and_never_a_special_token() -> None:
    pytest.importorskip("gigatoken")
    tokenizer, texts = trained(), drawn_texts(300)
    encoder = document_encoder(tokenizer)
    assert (encoder.library[:9], encoder.fallback_reason) == ("gigatoken", "")
    for fast, plain in zip(
        tokenise(texts, tokenizer, np.dtype("<u2"), encoder), tokenise(texts, tokenizer, np.dtype("<u2")), strict=True
    ):
        np.testing.assert_array_equal(fast, plain)
    assert not tokenizer.special_ids & set(np.concatenate(encoder.encode(["a<s>b</s>"])).tolist())


def test_without_the_library_or_for_another_word_pattern_the_slow_one_encodes(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OurTokenizer.train(drawn_texts(50), 300)
    assert document_encoder(own).library.startswith("tokenizers ")
    assert document_encoder(own).fallback_reason
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    assert "pip install 'lemur-ray[corpus]'" in document_encoder(own).fallback_reason


def test_one_document_of_many_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gigatoken")
    monkeypatch.setattr(encoders, "_EVERY", 100)
    tokenizer = trained()
    encoder = document_encoder(tokenizer)
    correct, wrong = encoder.fast, {"number 101": [1]}
    assert correct is not None
    encoder.fast = lambda text: np.array(wrong[text]) if text in wrong else correct(text)
    encoder.encode([f"number {number}" for number in range(100)])
    encoder.encode(["number 100"])
    encoder.encode(["number 101"])  # not compared
    with pytest.raises(IdsDiffer, match="'number 101'"):
        encoder.encode(["number 101"] * 100)


def test_an_encoder_forgets_words_after_some_text(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gigatoken")
    monkeypatch.setattr(encoders, "_RENEWED", 1000)
    tokenizer, texts = trained(), drawn_texts(300)
    encoder = document_encoder(tokenizer)
    first = encoder.fast
    ids = [encoder.encode([text])[0].tolist() for text in texts]  # type: ignore[union-attr]
    assert encoder.fast is not first
    assert ids == [tokenizer.encode(text) for text in texts]


def test_a_part_with_a_difference_is_encoded_again_by_the_slow_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, tokenizer = drawn_texts(40), trained()
    for name in ("clean", "keep", "tokens", "tokenizer/T"):
        (tmp_path / name).mkdir(parents=True)
    save_folder(tokenizer, tmp_path / "tokenizer/T")
    pq.write_table(pa.table({"text": texts}), tmp_path / "clean/C.parquet")
    keep = np.arange(40) % 3 > 0
    np.save(tmp_path / "keep/K.npy", keep)

    def wrong_later(tokenizer: OurTokenizer) -> encoders.DocumentEncoder:
        encoder = encoders.DocumentEncoder(tokenizer, "fast", fast=lambda text: np.array(tokenizer.encode(text)[:9]))
        encoder._until_compared = 20
        return encoder

    monkeypatch.setattr(stages, "document_encoder", wrong_later)
    about = stages.tokenise_part(tmp_path, "N", "C", "K", "T")
    assert about["library"].startswith("tokenizers ")
    assert "other ids" in about["reason"]
    flat, lengths = tokenise([t for t, k in zip(texts, keep, strict=True) if k], tokenizer, np.dtype("<u2"))
    assert (tmp_path / "tokens/N.bin").read_bytes() == flat.tobytes()
    assert (tmp_path / "tokens/N.lengths").read_bytes() == lengths.tobytes()
    assert json.loads((tmp_path / "tokens/N.json").read_bytes())["files"][".bin"] == len(flat.tobytes())
    assert stages.tokenise_part(tmp_path, "N", "C", "K", "T") == {}
