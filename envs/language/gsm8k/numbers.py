"""Extracts and compares numeric answers of a solution.

``strict``: the number of the sentence "The answer is ..." or after ``####``, as the worked examples have it.
``flexible``: the number that the solution concludes with. ``released``: as in the scripts released with Lemur, in which
whole numbers have no sign and the decimal point is removed before comparing, so that 3.6 equals 36. The score is the
flexible verdict in mode standard and the released one in mode lemur."""

import re
import string
from collections.abc import Mapping
from typing import Any

from lemur_ray.benchmarks.question import FLEXIBLE, RELEASED, STRICT, Graded
from lemur_ray.grading.written_answers import final_number as standard_answer
from lemur_ray.grading.written_answers import same_number as equal

CALCULATOR = re.compile(r"<<[^>]*>>")
"""Calculator annotations in the data set's solutions, such as ``<<48/2=24>>``."""
_ASKED = re.compile(r"(?:[Tt]he\s+answer\s+is|####)\s*(-?\$?-?[\d,.]*\d)")
_LEMUR_COMMA = re.compile(r"(\d),(\d)")
_LEMUR_NUMBER = re.compile(r"[-+]?\d*\.\d+|\d+")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def final_answer(solution: str) -> str:
    """The answer after ``####`` in a solution of the data set. Raises ValueError if there is no ``####``."""
    _, mark, answer = solution.rpartition("####")
    if not mark:
        raise ValueError(f"a solution without ####: {solution[-80:]!r}")
    return answer.strip()


def answer_asked(text: str) -> str | None:
    """The last number in the form of the worked examples, without currency and separators; None without any."""
    numbers = _ASKED.findall(text)
    return re.sub(r"[$,]", "", numbers[-1]) if numbers else None


def lemur_answer(text: str) -> str | None:
    """The last number of a text by the scripts released with Lemur (no sign of whole numbers); None without."""
    numbers = _LEMUR_NUMBER.findall(_LEMUR_COMMA.sub(r"\1\2", text))
    return numbers[-1] if numbers else None


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if a solution's number equals ``options["reference"]["answer"]``; ``scores``: by each reading."""
    reference, rule = options["reference"]["answer"], options["reference"]["rule"]
    answer = standard_answer(reply)
    readings = {STRICT: answer_asked(reply), FLEXIBLE: answer}
    scores = {name: float(equal(number, reference)) for name, number in readings.items()}
    if rule != "lemur":
        return Graded(scores[FLEXIBLE], answer, scores=scores)
    answer = lemur_answer(reply)
    score = float(answer is not None and _normalised(answer) == _normalised(lemur_answer(reference) or ""))
    return Graded(score, answer, scores={**scores, RELEASED: score})


def _normalised(text: str) -> str:
    """An answer without case and punctuation, as the scripts released with Lemur compare it."""
    return text.lower().translate(_NO_PUNCTUATION)
