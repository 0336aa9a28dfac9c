"""string_match: an answer against references, exactly, by inclusion, or by a judge.

After libwebarena 0.0.4, ``StringEvaluator``. ``strict`` finds a reference of one character where no other letter,
digit or part of a number touches it, and takes an exact N/A for what it is. Knows no task format.
"""

from __future__ import annotations

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
"""What the Penn Treebank's convention sets apart from words, in this order; texts are in lower case."""


def word_tokens(text: str) -> list[str]:
    """Words and marks of a text in lower case."""
    for pattern, apart in _APART:
        text = pattern.sub(apart, text)
    return text.split()


def clean_answer(text: str) -> str:
    """Without blanks around it, without one pair of equal quotes around it, in lower case."""
    text = text.strip()
    if text and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return text.lower()


def exact_match(reference: str, said: str) -> bool:
    return clean_answer(said) == clean_answer(reference)


def must_include(reference: str, said: str, *, as_word: bool = False, strict: bool = False) -> bool:
    """``as_word``: a reference of one character counts only as a word of its own."""
    reference, said = clean_answer(reference), clean_answer(said)
    if not as_word or len(reference) != 1:
        return reference in said
    if strict:
        number = rf"(?<![\w])(?<!\d[.,]){re.escape(reference)}(?![\w])(?!,\d)(?!\.0*[1-9])"
        return re.search(number, said) is not None
    return reference in word_tokens(said)


def string_match(record: Mapping[str, Any], answer: str, judge: Judge, *, strict: bool = False) -> float:
    """Score of an answer to a task. Raises ValueError for a rule that is unknown, and what the judge raises.

    ``record``: a task in WebArena's format.
    """
    said, score = clean_answer(answer), 1.0
    for rule, wanted in record["eval"]["reference_answers"].items():
        match rule:
            case "exact_match":
                score *= exact_match(_text(rule, wanted), said)
            case "must_include":
                items = _list(rule, wanted)
                score *= all(must_include(one, said, as_word=len(items) == 1, strict=strict) for one in items)
            case "fuzzy_match" if wanted == "N/A":
                if strict:
                    score *= float(exact_match(wanted, said)) or judge.same_reason(record, said)
                elif not (score := score * exact_match(wanted, said)):
                    score = judge.same_reason(record, said)
            case "fuzzy_match":
                for one in _list(rule, wanted):
                    score *= judge.equivalent(record, one, said) if score else 0.0
            case _:
                raise ValueError(f"task {record.get('task_id')}: unknown rule {rule!r} among its reference answers")
    return float(score)


def _text(rule: str, wanted: Any) -> str:
    if not isinstance(wanted, str):
        raise ValueError(f"{rule}: a {type(wanted).__name__}, expected a text")
    return wanted


def _list(rule: str, wanted: Any) -> Sequence[str]:
    if not isinstance(wanted, list):
        raise ValueError(f"{rule}: a {type(wanted).__name__}, expected a list of texts")
    return wanted
