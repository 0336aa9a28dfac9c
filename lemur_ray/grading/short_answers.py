"""Answers of a few words or one number (GSM8K, MATH and HotpotQA in MINT), by both graders.

``mint-2023`` is the rule of the recorded runs (mint-bench as of 2023-09): a tolerance that a negative reference never
meets, or any text that contains the reference. ``strict`` parses one number, or compares whole words."""

import re
import string

from lemur_ray.grading.numbers import as_float, close, plain_number

_YES_OR_NO = frozenset({"yes", "no"})
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def matches_2023(answer: str, reference: str) -> bool:
    """Verdict by the rule of the recorded runs: two numbers match within 5 % of the signed reference; other texts match
    if the reference occurs anywhere in the answer."""
    text, target = answer.strip().lower(), reference.strip().lower()
    number, expected = as_float(text), as_float(target)
    if number is not None and expected is not None:
        return close(number, expected, signed=True)
    return target in text


def number_matches(answer: str, reference: str) -> bool:
    """Whether the answer has one number, within 5 % of the reference. Raises ValueError if that is not a number."""
    expected = plain_number(reference)
    if expected is None:
        raise ValueError(f"reference {reference!r}: expected a number")
    number = plain_number(answer)
    return number is not None and close(number, expected)


def number_equals(answer: str, reference: str) -> bool:
    """Whether answer and reference each have one number, and the numbers are equal."""
    number = plain_number(answer)
    return number is not None and number == plain_number(reference)


def phrase_matches(answer: str, reference: str) -> bool:
    """Whether the answer contains the reference as whole words, after SQuAD's normalisation. Two numbers must be equal;
    an answer with both yes and no matches neither."""
    expected = plain_number(reference)
    if expected is not None:
        number = plain_number(answer)
        return number is not None and number == expected
    text, target = normalised(answer), normalised(reference)
    if target in _YES_OR_NO:
        return _YES_OR_NO & set(text.split()) == {target}
    return bool(target) and re.search(rf"(?<!\w){re.escape(target)}(?!\w)", text) is not None


def normalised(text: str) -> str:
    """The text in lower case, without punctuation and articles, with single blanks, as in SQuAD's evaluation."""
    bare = "".join(" " if c == "-" else c for c in text.lower() if c not in set(string.punctuation) - {"-"})
    return " ".join(_ARTICLES.sub(" ", bare).split())
