"""Filters of the tuning data: what falls, what must not, and that near-duplicates do not depend on how they are cut."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lemur_ray.agents.messages import Message
from lemur_ray.instruct.clean import character_run, instruction, with_instruction, without_foreign_sentences
from lemur_ray.instruct.near_duplicates import any_similar, encoder, hash_vectors, keep_first


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("plain English, digits 123 and x = y ** 2", 0),
        ("the angle \u03b1 is small", 1),
        ("\u043f\u0440\u0438", 3),
        ("ab \u043f\u0440\u0438 cd", 3),
        ("\u043f \u0440 \u0438", 1),
        ("\u201cquotes\u201d \u2014 na\u00efve caf\u00e9, Stra\u00dfe, \U0001f642\U0001f389\u26a1", 0),
        ("\u2211\u222b\u2264 \u211d\u2102\u2115 \U0001d400\U0001d401\U0001d6fc\U0001d6fd", 0),
        ("\u00aa\u00ba \u00b5\u03a9", 1),
        ("\u65e5\u672c\u8a9e", 3),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", 3),
        ("\uff46\uff55\uff4c\uff4c \u02b0\u02b2\u02b7", 0),
    ],
)
def test_runs_of_foreign_letters_are_counted_and_symbols_are_none(text: str, run: int) -> None:
    assert character_run(text) == run


def test_a_foreign_sentence_can_fall_by_itself() -> None:
    text = "Translate this. \u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440! What does it say?\nThanks."
    assert without_foreign_sentences(text, 3) == "Translate this. What does it say?\nThanks."
    assert without_foreign_sentences("\u041f\u0440\u0438\u0432\u0435\u0442", 3) == ""


@settings(max_examples=40)
@given(st.text(max_size=60))
def test_a_text_without_foreign_sentences_is_itself(text: str) -> None:
    if character_run(text) < 3:
        assert without_foreign_sentences(text, 3) == text.strip()


def test_the_instruction_is_the_first_user_turn_behind_a_system_turn_too() -> None:
    talk = (Message("system", "s"), Message("user", "u"), Message("assistant", "a"), Message("user", "v"))
    assert instruction(talk) == "u"
    assert with_instruction(talk, "w") == (talk[0], Message("user", "w"), *talk[2:])


def test_languages_are_told_apart_the_same_way_every_time() -> None:
    pytest.importorskip("langdetect", reason="the extra [instruct] is not installed")
    from lemur_ray.instruct.clean import detected_language

    assert detected_language("How do I sort a list of numbers in place?") == "en"
    assert detected_language("Bonjour, comment allez-vous aujourd'hui mon ami?") == "fr"
    assert detected_language("12345 + 678 = ?") is None
    assert detected_language("```python\nfor i in range(3):\n    print(i)\n```") is None
    doubtful = "Hola hello bonjour ciao"
    assert len({detected_language(doubtful) for _ in range(20)}) == 1


@pytest.mark.parametrize(("module", "spec"), [("langdetect", ""), ("sentence_transformers", "sentence-transformers:m")])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, module: str, spec: str) -> None:
    from lemur_ray.instruct.clean import detected_language

    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=r"lemur-ray\[instruct\]"):
        encoder(spec) if spec else detected_language("x")


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_an_encoder_that_cannot_be_loaded_is_named_with_the_other_choices(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def unreachable(model: str) -> None:
        raise kind(f"no connection for {model}\nsee a page of the library")

    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=unreachable))
    message = r"^--encoder sentence-transformers:own/m cannot be loaded \(no connection for own/m\): .* hashing:1024 "
    with pytest.raises(OSError, match=message):
        encoder("sentence-transformers:own/m")


# 19 / 20 = 0.95 exactly: the norm of (19, 6, 1, 1, 1) is 20.
AXIS, AT_THRESHOLD = (1.0, 0, 0, 0, 0), (19.0, 6, 1, 1, 1)


def test_a_cosine_of_exactly_the_threshold_stays_and_a_hair_more_falls() -> None:
    above = (np.nextafter(np.float32(19), np.float32(20)), 6, 1, 1, 1)
    assert keep_first(np.array([AXIS, AT_THRESHOLD], np.float32), 0.95).tolist() == [True, True]
    assert keep_first(np.array([AXIS, above], np.float32), 0.95).tolist() == [True, False]
    assert keep_first(np.array([AXIS, above], np.float32), 0.95, block=1).tolist() == [True, False]


def test_only_rows_that_stay_make_others_fall() -> None:
    angles = np.deg2rad([0.0, 15.0, 30.0])  # neighbours are 0.966 alike, the ends 0.866
    assert keep_first(np.stack([np.cos(angles), np.sin(angles)], axis=1), 0.95).tolist() == [True, False, True]


def crowd(seed: int = 0, rows: int = 600, dim: int = 24) -> np.ndarray:
    """Vectors in bunches, with many cosines near 0.95 and some exactly there."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(40, dim))[rng.integers(0, 40, rows)] + 0.22 * rng.normal(size=(rows, dim))
    vectors[::50] = 0
    vectors[::50, :5] = np.where(rng.random((len(vectors[::50]), 1)) < 0.5, AXIS, AT_THRESHOLD)
    return vectors.astype(np.float32)


def plain(vectors: np.ndarray, threshold: float) -> list[bool]:
    """The rule in so many words, with numbers of any size."""
    from fractions import Fraction

    exact = [[Fraction(float(x)) for x in row] for row in vectors]
    kept: list[int] = []
    for i, row in enumerate(exact):

        def above(j: int, row: list[Fraction] = row) -> bool:
            dot = sum(a * b for a, b in zip(row, exact[j], strict=True))
            norms = sum(a * a for a in row) * sum(b * b for b in exact[j])
            return dot > 0 and dot * dot > Fraction(str(threshold)) ** 2 * norms

        if not any(above(j) for j in kept):
            kept.append(i)
    return [i in set(kept) for i in range(len(vectors))]


def test_what_falls_is_what_exact_arithmetic_says_whatever_the_blocks() -> None:
    vectors = crowd(rows=150, dim=6)
    expected = plain(vectors, 0.95)
    assert 20 < sum(expected) < 130
    for block in (1, 7, 64, 1000):
        assert keep_first(vectors, 0.95, block=block).tolist() == expected


def test_the_result_is_the_same_for_every_block_size_and_place_of_computing() -> None:
    vectors = crowd()
    calls = []

    def elsewhere(rows: np.ndarray, blocks: list, limit: float) -> list[np.ndarray]:
        calls.append(len(blocks))
        return [any_similar(rows.copy(), block, limit) for block in reversed(blocks)]

    keeps = [keep_first(vectors, 0.95, block=b, compare=elsewhere).tolist() for b in (50, 128, 600)]
    assert keeps[0] == keeps[1] == keeps[2]
    assert max(calls) == 11


def test_rows_of_nothing_are_like_nothing_and_broken_vectors_are_an_error() -> None:
    assert keep_first(np.zeros((3, 4), np.float32), 0.95).all()
    broken = np.ones((3, 4), np.float32)
    broken[1, 2] = np.nan
    with pytest.raises(ValueError, match="row 1"):
        keep_first(broken, 0.95)


def test_the_hashing_encoder_finds_near_duplicates_just_above_and_not_just_below() -> None:
    words = [f"word{i}" for i in range(60)]
    encode: Callable = encoder("hashing:4096")
    changed = [" ".join(words[:-n] + [f"other{i}" for i in range(n)]) for n in (1, 10)]
    vectors = encode([" ".join(words), *changed])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert unit[0] @ unit[1] > 0.95 > unit[0] @ unit[2]
    assert keep_first(vectors, 0.95).tolist() == [True, False, True]
    assert np.array_equal(hash_vectors([" ".join(words)], 4096)[0], vectors[0])
