"""Reads the answer of a written reply as a person would: a number, a word of a few, a list, brackets.

Each function takes the reply and the form of the answer, and returns the answer or None. An announced answer ("the
answer is ...", ``\\boxed{...}``, ``#### ...``) takes precedence, the last one over earlier ones; then an answer set
apart at the start or in the last line; then the only candidate that the reply does not rule out. Knows no benchmark."""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from itertools import pairwise

from lemur_ray.grading.announced_answers import CUE, SENTENCE_END, announced, plain

_DIGITS = r"-?\s?\\?[$€£]?\s?-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|-?\\?[$€£]?\.\d+"
_NUMBER = re.compile(rf"(?<![A-Za-z\d_.])(?:{_DIGITS})(?![\d])")
_LABEL = re.compile(
    r"\b(?:steps?|lines?|parts?|questions?|examples?|equations?|eq\.|problems?)\s+#?\(?\d+\)?"
    r"(?:\s*(?:to|and|-|\u2013|through|,)\s*(?:steps?\s+)?\d+)*|^\s*\d+[.)](?=\s)|\bnot\s+\\?[$€£]?-?[\d,.]*\d",
    re.IGNORECASE | re.MULTILINE,
)
"""Numbers that count the reply's own parts, or that it rules out."""
_BEFORE_NUMBER = re.compile(
    r"\b(?:but|rather|about|around|approximately|roughly|exactly|only|that|it\s+is|it's|i\s+think)\b|\b\w+\s*=",
    re.IGNORECASE,
)
"""Words that may stand between an announcement and its number."""
_DURATION = re.compile(
    r"\b(?:in|after|within|over|during|for|every)\s+(?:the\s+(?:next|last|first)\s+)?[\d,.]+\s+(?:more\s+)?"
    r"(?:second|minute|hour|day|week|month|year)s?\b",
    re.IGNORECASE,
)
_SUM = re.compile(
    r"(?:[\s\d.,$\u20ac\u00a3%()+*/^\u00d7\u00f7-]|\\(?:times|cdot|div|\$|%)"
    r"|\b(?!(?:because|since|as|not|that|which|so|for|and|or|if)\b)[a-z]+\b)+",
    re.IGNORECASE,
)
"""Numbers, signs and units of a calculation."""


def final_number(reply: str) -> str | None:
    """The number that a reply concludes with, as text without currency and thousands separators; None without any."""
    text = plain(reply)
    if marked := re.findall(rf"####\s*({_NUMBER.pattern})", text):
        return _as_number(marked[-1])
    direct: str | None = None
    mentioned: str | None = None
    for match, rest in announced(text):
        clean = _LABEL.sub(" ", rest)
        numbers = list(_NUMBER.finditer(clean))
        if not numbers:
            continue
        before = _BEFORE_NUMBER.sub("", clean[: numbers[0].start()])
        after_equals = [m for m in numbers if m.start() > clean.rfind("=")] if "=" in clean else []
        if not re.search(r"[^\W\d_]", before):
            direct = _value(clean, numbers[0])
        elif after_equals:
            direct = _signed(after_equals[0])
        elif ":" in match[0] and re.search(r"[^\W\d]{2}", before):
            direct = _signed(([*_NUMBER.finditer(_DURATION.sub(" ", clean))] or numbers)[-1])
        else:
            mentioned = _signed(numbers[0])
    if last := direct or mentioned:
        return _as_number(last)
    others = list(_NUMBER.finditer(_LABEL.sub(" ", text)))
    return _as_number(_signed(others[-1])) if others else None


def _value(text: str, first: re.Match[str]) -> str:
    """The first number of a text, or if it begins a sum that is worked out ("9 + 9 = 18") its result."""
    sides = text[first.start() :].split("=")
    if not re.search(r"[-+*/^x\u00d7\u00f7]|\\(?:times|cdot|div)", sides[0][len(first[0]) :]):
        return _signed(first)
    result = None
    for left, right in pairwise(sides):
        if not _SUM.fullmatch(left) or not (number := re.match(rf"\s*({_NUMBER.pattern})", right)):
            break
        result = number[1]
    return result or _signed(first)


def _signed(number: re.Match[str]) -> str:
    """A number's text, without a minus sign that subtracts it from a number before it."""
    subtracted = re.search(r"[\d)]\s*$", number.string[max(0, number.start() - 3) : number.start()])
    return number[0].replace("-", "") if subtracted else number[0]


def same_number(answer: str | None, reference: str) -> bool:
    """Whether ``answer`` and ``reference`` are numbers of equal value; False if one is no number or None."""
    try:
        return answer is not None and Decimal(answer) == Decimal(_as_number(reference))
    except InvalidOperation:
        return False


def _as_number(text: str) -> str:
    digits = re.sub(r"[^\d.]", "", text)
    return f"-{digits}" if "-" in text else digits


def chosen_word(reply: str, words: Sequence[str]) -> str | None:
    """The one of a few exclusive ``words`` (yes, no; in lower case) that a reply answers; None for none or several."""
    text = plain(reply).lower()
    for opposite, negated in (("invalid", "not valid"), ("no", "not yes"), ("false", "not true")):
        text = text.replace(negated, opposite) if opposite in words else text
    either = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    one = re.compile(rf"(?<![\w-])(?<!\w')({either})(?![\w-]|'\w)")
    answers = [
        m[1]
        for _, rest in announced(text)
        if (m := re.match(rf"\W*(?:that\s+it\s+is\s+)?({either})(?![\w-]|'\w)", rest))
    ]
    if answers:
        return answers[-1]
    if first := re.match(rf"\W*({either})(?![\w'-])(?=\W*$|[.,:;!]|\s*\n)", text):
        return first[1]
    if closing := re.search(rf"(?:(?:^|\n)\W*|=\s*)({either})\W*$", text):
        return closing[1]
    sentences = [part for part in SENTENCE_END.split(text) if one.search(part)]
    for part in (text, sentences[-1] if sentences else ""):
        if len(set(one.findall(part))) == 1:
            return one.findall(part)[0]
    return None


def listed_words(reply: str, count: int) -> list[str]:
    """The ``count`` words of a reply's list, in lower case, without numbering: the first ones after the last
    announcement or heading, else the last ones of the reply. Empty if the reply has fewer."""
    text = plain(reply)
    lists = [text[match.end() :] for match, _ in announced(text)] or re.split(r"\n\s*\n|:\s*\n?", text)
    for part in (lists[-1], text):
        words = re.findall(r"[a-z][\w'-]*", re.sub(r"(?m)^\s*(?:\d+[.)]|[-*•])\s*", "", part.lower()))
        if len(words) >= count:
            return words[:count] if part is not text else words[-count:]
    return []


def brackets_in(reply: str) -> str:
    """The brackets ``[](){}<>``, joined, in a reply's last announced answer, else in its last line of nothing but
    brackets; empty without any."""
    text = re.sub(r"[*`]+", "", reply)
    rests = [text[match.end() :].partition("\n")[0] for match in CUE.finditer(text)]
    lines = [line for line in text.splitlines() if re.fullmatch(r"[\s\[\](){}<>.,\"']+", line)]
    chosen = rests[-1] if rests else lines[-1] if lines else ""
    return "".join(re.findall(r"[\[\](){}<>]", chosen))
