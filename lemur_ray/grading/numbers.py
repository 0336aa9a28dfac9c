"""Parses numbers in answers and compares them with a tolerance. Pure functions; knows no benchmark."""

import math
import re

RELATIVE_TOLERANCE = 0.05
"""MINT's tolerance for answers that are numbers (mint-bench 3f7f12c)."""

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)


def as_float(text: str) -> float | None:
    """``float`` of a text, None if it is not a number. Infinity and NaN count as numbers."""
    try:
        return float(text)
    except ValueError:
        return None


def close(answer: float, reference: float, *, signed: bool = False) -> bool:
    """Whether ``answer`` is within 5 % of the absolute value of ``reference``. ``signed``: 5 % of the signed value, so
    that nothing is close to a negative reference, as upstream."""
    bound = RELATIVE_TOLERANCE * (reference if signed else abs(reference))
    return abs(reference - answer) <= bound


def plain_number(text: str) -> float | None:
    """The only number in a text, ignoring units and words; None if it has none, or several different ones.
    ``-$1,234.50``, ``25 %``, ``12 miles`` hold one number; ``3 or 4``, ``1/2`` and ``2^10`` hold two, ``x2`` none."""
    bare = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.replace("\u2212", "-"))
    bare = re.sub(r"[$€£\\]", " ", re.sub(r"([-+])\s?\\?[$€£]\s?(?=[\d.])", r" \1", bare))
    # A hyphen between words and numbers ("20-30", "4-week") is no sign.
    bare = re.sub(r"(?<=[\w.)])-(?=[\d.])", " ", bare)
    values = {value for number in _NUMBER.findall(bare) if math.isfinite(value := float(number))}
    return values.pop() if len(values) == 1 else None
