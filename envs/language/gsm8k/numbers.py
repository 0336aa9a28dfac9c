"""Extracts and compares numeric answers in the last sentence of a solution.

``standard``: the last number, compared as a number. ``lemur``: as in the scripts released with Lemur, in which whole
numbers have no sign and the decimal point is removed before comparing, so that 3.6 equals 36.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from lemur_ray.benchmarks.question import Graded

CALCULATOR = re.compile(r"<<[^>]*>>")
"""Calculator annotations in the data set's solutions, such as ``<<48/2=24>>``."""
_COMMA = re.compile(r"(?<=\d),(?=\d)")
_NUMBER = re.compile(r"(?:(?<![\w.)])[-+])?(?:\d+(?:\.\d+)?|\.\d+)")
_LEMUR_COMMA = re.compile(r"(\d),(\d)")
_LEMUR_NUMBER = re.compile(r"[-+]?\d*\.\d+|\d+")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def final_answer(solution: str) -> str:
    """The answer after ``####`` in a solution of the data set. Raises ValueError if there is no ``####``."""
    _, mark, answer = solution.rpartition("####")
    if not mark:
        raise ValueError(f"a solution without ####: {solution[-80:]!r}")
    return answer.strip()


def standard_answer(text: str) -> str | None:
    """The last number of a text with its sign, without currency and thousands separators; None without a number."""
    plain = _COMMA.sub("", re.sub(r"[$%]", "", text.replace("\u2212", "-")))
    numbers = _NUMBER.findall(plain)
    return numbers[-1] if numbers else None


def lemur_answer(text: str) -> str | None:
    """The last number of a text by the scripts released with Lemur (no sign of whole numbers); None without."""
    numbers = _LEMUR_NUMBER.findall(_LEMUR_COMMA.sub(r"\1\2", text))
    return numbers[-1] if numbers else None


def equal(answer: str, reference: str) -> bool:
    """Whether two texts are numbers of equal value."""
    try:
        return Decimal(answer) == Decimal(reference)
    except InvalidOperation:
        return False


def lemur_equal(answer: str, reference: str) -> bool:
    """Whether two answers are equal without case and punctuation, as in the scripts released with Lemur."""
    return _normalised(answer) == _normalised(reference)


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    reference, rule = options["reference"]["answer"], options["reference"]["rule"]
    if rule == "lemur":
        answer = lemur_answer(reply)
        return Graded(float(answer is not None and lemur_equal(answer, lemur_answer(reference) or "")), answer)
    answer = standard_answer(reply)
    return Graded(float(answer is not None and equal(answer, standard_answer(reference) or "")), answer)


def _normalised(text: str) -> str:
    return text.lower().translate(_NO_PUNCTUATION)
