"""string_match: scores an answer by comparing it with references: exactly, by inclusion, or by a judge.

After libwebarena 0.0.4, ``StringEvaluator``. With ``strict``, a reference of one character must stand alone, not within
a word or number, and a fuzzy N/A does not override a rule that failed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from envs.webarena.evaluators.judge import Judge

RULES = ("exact_match", "must_include", "fuzzy_match")
_APART = (
    (re.compile(r"[`]+"), r" \g<0> "),
    (re.compile(r'(^|[\s(\[{<])"'), r"\1 `` "),
    (re.compile(r"'(?!re|ve|ll|[mtsdn])(?=\w\b)"), "' "),
    (re.compile(r"([:,])(?!\d)"), r" \1 "),
    (re.compile(r"\.{2,}"), " ... "),
    (re.compile(r"(?<!\.)\.(?=[\])}>\"'\u00bb\u201d\u2019 ]*(?:\s|$))"), " . "),
    (re.compile(r"[;@#$%&?!*]"), r" \g<0> "),
    (re.compile(r"[\])}>\[({<\u00ab\u201c\u2018\u201e\u00bb\u201d\u2019]"), r" \g<0> "),
    (re.compile(r"--"), " -- "),
    (re.compile(r'"'), " '' "),
    (re.compile(r"(?<=\S)''"), " '' "),
    (re.compile(r"(?<=[^'\s])'(?=\s|$)"), " ' "),
    (re.compile(r"(?<=[^'\s])('s|'m|'d|'ll|'re|'ve|n't)(?=\s|$)"), r" \1 "),
)
"""Patterns that separate punctuation from words, in the order of the Penn Treebank convention. For lower-case text."""


def word_tokens(text: str) -> list[str]:
    """Split a lower-case text into words and punctuation marks."""
    for pattern, apart in _APART:
        text = pattern.sub(apart, text)
    return text.split()


def clean_answer(text: str) -> str:
    """Strip whitespace and one pair of equal quotes from an answer or reference, and convert it to lower case."""
    text = text.strip()
    if text and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return text.lower()


def exact_match(reference: str, answer: str) -> bool:
    return clean_answer(answer) == clean_answer(reference)


def must_include(reference: str, answer: str, *, as_word: bool = False, strict: bool = False) -> bool:
    """Whether the answer contains the reference; with ``as_word``, a single character only as a word of its own, and
    with ``strict`` too, not within a number either (``5`` in ``5.99`` or ``1,5``)."""
    reference, answer = clean_answer(reference), clean_answer(answer)
    if not as_word or len(reference) != 1:
        return reference in answer
    if strict:
        number = rf"(?<![\w])(?<!\d[.,]){re.escape(reference)}(?![\w])(?!,\d)(?!\.0*[1-9])"
        return re.search(number, answer) is not None
    return reference in word_tokens(answer)


def string_match(record: Mapping[str, Any], answer: str, judge: Judge, *, strict: bool = False) -> float:
    """Return 1 if ``answer`` meets all rules of ``record``, a WebArena task, else 0. ``judge`` decides rules of
    meaning; ``strict``: a reference of one character must stand alone, and a fuzzy N/A does not override a rule that
    failed. Raises ValueError for an unknown rule, and errors of the judge."""
    cleaned, score = clean_answer(answer), 1.0
    for rule, wanted in record["eval"]["reference_answers"].items():
        match rule:
            case "exact_match":
                score *= exact_match(wanted, cleaned)
            case "must_include":
                items = _list(rule, wanted)
                score *= all(must_include(one, cleaned, as_word=len(items) == 1, strict=strict) for one in items)
            case "fuzzy_match" if wanted == "N/A":
                if strict:
                    score *= float(exact_match(wanted, cleaned)) or judge.same_reason(record, cleaned)
                elif not (score := score * exact_match(wanted, cleaned)):
                    score = judge.same_reason(record, cleaned)
            case "fuzzy_match":
                for one in _list(rule, wanted):
                    score *= judge.equivalent(record, one, cleaned) if score else 0.0
            case _:
                raise ValueError(f"task {record.get('task_id')}: unknown rule {rule!r} among its reference answers")
    return float(score)


def _list(rule: str, wanted: Any) -> Sequence[str]:
    if not isinstance(wanted, list):
        raise ValueError(f"{rule}: a {type(wanted).__name__}, expected a list of texts")
    return wanted
