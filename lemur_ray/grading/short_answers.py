"""Answers of a few words or one number (GSM8K, MATH and HotpotQA in MINT), by both graders.

``mint-2023`` is the rule of the recorded runs (mint-bench as of 2023-09): a tolerance that a negative reference never
meets, and any text that contains the reference. ``strict`` reads one number, or compares words at their borders.
"""

from __future__ import annotations

import re
import string
from collections import Counter

from lemur_ray.grading.numbers import as_float, close, plain_number

_YES_OR_NO = frozenset({"yes", "no"})
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def matches_2023(answer: str, reference: str) -> bool:
    """Both numbers: within 5 % of the signed reference. Else: the reference occurs anywhere in the answer."""
    said, meant = answer.strip().lower(), reference.strip().lower()
    number, expected = as_float(said), as_float(meant)
    if number is not None and expected is not None:
        return close(number, expected, signed=True)
    return meant in said


def number_matches(answer: str, reference: str) -> bool:
    """The answer is one number within 5 % of the reference's size. Raises ValueError where that is no number."""
    expected = plain_number(reference)
    if expected is None:
        raise ValueError(f"reference {reference!r}: expected a number")
    number = plain_number(answer)
    return number is not None and close(number, expected)


def number_equals(answer: str, reference: str) -> bool:
    """The answer is exactly the number of the reference."""
    number = plain_number(answer)
    return number is not None and number == plain_number(reference)


def phrase_matches(answer: str, reference: str) -> bool:
    """Equal after SQuAD's normalisation, or the reference stands in the answer between borders of words.

    Of yes and no, an answer with both is neither.
    """
    expected = plain_number(reference)
    if expected is not None:
        number = plain_number(answer)
        return number is not None and number == expected
    said, meant = normalised(answer), normalised(reference)
    if meant in _YES_OR_NO:
        return _YES_OR_NO & set(said.split()) == {meant}
    return bool(meant) and re.search(rf"(?<!\w){re.escape(meant)}(?!\w)", said) is not None


def f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall of words (SQuAD), from 0 to 1."""
    said, meant = normalised(answer).split(), normalised(reference).split()
    shared = sum((Counter(said) & Counter(meant)).values())
    return 2 * shared / (len(said) + len(meant)) if shared else 0.0


def normalised(text: str) -> str:
    """Lower case, no punctuation, no articles, single blanks (the normalisation of SQuAD's evaluation)."""
    bare = "".join(" " if c == "-" else c for c in text.lower() if c not in set(string.punctuation) - {"-"})
    return " ".join(_ARTICLES.sub(" ", bare).split())
