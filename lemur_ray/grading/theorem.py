"""TheoremQA in MINT: parses answers into typed values and compares them by answer type, by both graders.

The parsing rules are those of the recorded runs (mint-bench 3f7f12c), with a safe evaluator in place of ``eval``.
``legacy`` and ``head`` are its two rules for options: the recorded runs used the first; since 2023-10-11 "(b)" is
accepted too."""

import re
from fractions import Fraction
from typing import Any, Literal

from lemur_ray.grading.arithmetic import MATH_NAMES, NotArithmetic, evaluate
from lemur_ray.grading.numbers import plain_number

OptionRule = Literal["legacy", "head"]

_NUMBER = r"(?:[\d,]*(?:\d|\.+\d+))"
_PLAIN = re.compile(r"[-+]?(\d{1,3}(,\d{3})*|\d+)(\.\d+)?")
_UNITS = (
    re.compile(rf"([-+]?{_NUMBER}) [^0-9 ]+$"),
    re.compile(rf"[^0-9 ]+ ([-+]?{_NUMBER})$"),
    re.compile(rf"([-+]?{_NUMBER})[^\d]{{1,2}}$"),
    re.compile(rf"[^-+\d]{{1,2}}({_NUMBER})$"),
)
_OPTION = re.compile(r"(?<!\w)([a-z])\s?\)|^\W*([a-z])\W*$|\bor ([a-z])$|^([a-z])(?= or\b)")
_TRUTH = {"true": "True", "yes": "True", "false": "False", "no": "False"}
_TOLERANCE = 0.04


def theorem_matches_2023(answer: str, reference: Any, answer_type: str, rule: OptionRule = "legacy") -> bool:
    """Verdict by the rule of the recorded runs. ``reference``: a JSON value of type ``answer_type`` (bool, option,
    integer, float, list of ...). ``rule``: head also accepts an option in brackets, legacy does not. Raises ValueError
    for an unknown type."""
    return _matches(_read(_cleaned(answer)), reference, answer_type.lower(), rule)


def theorem_matches(answer: str, reference: Any, answer_type: str) -> bool:
    """Strict verdict on an answer to a TheoremQA question; ``reference``: a JSON value of type ``answer_type``. Accepts
    both spellings of an option, ``pi``, and one number with its unit. An empty answer is not 0, a boolean is not a
    number, and two answers count as none."""
    kind = answer_type.lower()
    if kind == "option":
        named = {letter for pair in _OPTION.findall(answer.strip().lower()) for letter in pair if letter}
        return named == {str(reference).strip().strip("()").lower()}
    words = set(re.findall(r"\w+", answer.lower()))
    if not words or "or" in words or (kind == "bool" and len(words & _TRUTH.keys()) != 1):
        return False
    value = _read(_cleaned(answer), MATH_NAMES)
    if isinstance(value, Fraction):
        value = float(value)
    if value is None and kind in ("integer", "float"):
        value = plain_number(answer)
    if kind == "bool":
        return isinstance(value, bool) and "not" not in words and value is (str(reference).strip().lower() == "true")
    if isinstance(value, bool):
        return False
    return _matches(value, reference, kind, "head")


def _cleaned(text: str) -> str:
    """The part of an answer to evaluate, with units and separators removed."""
    for mark in ("=", "≈"):
        if mark in text:
            text = text.split(mark)[-1].strip()
    for mark in "`$°":
        text = text.replace(mark, "")
    text = _TRUTH.get(text, text)
    if "True" in text or "False" in text:
        text = "True" if "True" in text else "False"
    if "approximately" in text:
        text = text.replace("approximately", "").strip()
    text = text.split(" or ")[0]
    for pattern in _UNITS:
        if match := pattern.match(text):
            text = match[1]
    text = re.sub(r"10\^(-?\d+)", r"math.pow(10, \1)", text).replace(" x ", "*").replace(" \u00d7 ", "*")
    if _PLAIN.fullmatch(text):
        text = text.replace(",", "")
    for letter in "abcd":
        if f"{letter})" in text or f"{letter} )" in text or text.lower().strip() == letter:
            text = f"({letter})"
    if match := re.search(r"\([a-d]\)", text):
        text = repr(match[0])
    return text or "0"


def _read(text: str, names: Any = None) -> Any:
    """The value of a cleaned answer, None if it cannot be evaluated; complex numbers become real, sets become lists."""
    try:
        value = evaluate(text, names)
    except NotArithmetic:
        return None
    if isinstance(value, set | tuple):
        value = list(value)
    return value.real if isinstance(value, complex) else value


def _matches(value: Any, reference: Any, kind: str, rule: OptionRule) -> bool:
    if kind in ("bool", "option"):
        return bool(value == reference) or (rule == "head" and value == f"({reference})")
    if kind in ("integer", "float"):
        return _near(value, reference)
    if kind not in ("list of integer", "list of float"):
        raise ValueError(f"answer type {kind!r}: expected bool, option, integer, float, or a list of numbers")
    if not isinstance(value, list) or len(value) != len(reference):
        return False
    if not all(_is_number(x) for x in value):
        return False
    return all(_near(x, y) for x, y in zip(sorted(value), sorted(reference), strict=True))


def _near(value: Any, reference: Any) -> bool:
    if not _is_number(value) or value != value:
        return False
    if isinstance(reference, float):
        try:
            return bool(abs(value - reference) <= abs(reference) * _TOLERANCE)
        except OverflowError:  # a whole number beyond all floats
            return False
    return abs(value) != float("inf") and round(value) == reference


def _is_number(value: Any) -> bool:
    # Truth values are numbers here, as they are to Python and were in the recorded runs; fractions were not.
    return isinstance(value, int | float)
