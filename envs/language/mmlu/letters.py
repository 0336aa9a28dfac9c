"""Extracts the chosen letter from a reply, and averages over subjects and fields."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from envs.language.mmlu.subjects import SUBJECTS
from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.question import Graded

LETTERS = "ABCD"
_SET_APART = re.compile(r"\W*([ABCD])(?=\W*$|[^\w\s',-]|\s*\n)")
"""A letter at the start that is the whole reply, or is followed by punctuation or the end of the line."""
_NAMED = re.compile(
    r"(?<!\bnot )\b(?:answer|option|choice)\b(?:\s+(?:is|would\s+be|must\s+be))?(?:\s+(?:answer|option|choice))?"
    r"\s*:?\s*[^\w\s]{0,3}\s?([ABCD])(?![\w'])",
    re.IGNORECASE,
)
_ARTICLE = r"(?:A|a)\s+(?!(?:is|as|and|or|but|because|since)\b)[a-z]"
"""The article A before a word, which is not a choice."""
_FIRST = re.compile(rf"\W*(?!{_ARTICLE})([ABCD])(?![\w'-])")
_ALONE = re.compile(rf"(?<![\w'])(?!{_ARTICLE})([ABCD])(?![\w'-])")


def letter_in(reply: str) -> str | None:
    """The letter, A to D, that a reply chooses, by the first rule that matches; None if none does.

    The rules: a separate letter at the start ("B", "(B) ...", "B. ..."); the last letter called the answer, option or
    choice; the first word, if it is a letter; the only letter in the reply. The article in "A good answer" does not
    count, nor do other letters discussed on the way ("A is wrong, so the answer is B").
    """
    text = reply.strip()
    if apart := _SET_APART.match(text):
        return apart[1]
    if named := [match[1] for match in _NAMED.finditer(text) if not re.match(_ARTICLE, text[match.start(1) :])]:
        return named[-1].upper()
    if first := _FIRST.match(text):
        return first[1]
    alone = set(_ALONE.findall(text))
    return alone.pop() if len(alone) == 1 else None


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    letter = letter_in(reply)
    return Graded(float(letter == options["reference"]), letter)


def means(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Averages of scored episodes: the mean over subjects, and the share solved in each field and subfield."""
    by_subject: dict[str, list[bool]] = {}
    for episode in episodes:
        if episode.outcome.scored:
            by_subject.setdefault(episode.category, []).append(episode.outcome is Outcome.SOLVED)
    if not by_subject:
        return {}
    by_field: dict[str, list[bool]] = {}
    by_subfield: dict[str, list[bool]] = {}
    for subject, solved in by_subject.items():
        field, subfield = SUBJECTS.get(subject, ("other", "other"))
        by_field.setdefault(field, []).extend(solved)
        by_subfield.setdefault(subfield, []).extend(solved)
    averages: dict[str, Any] = {"subjects": len(by_subject)}
    averages["mean_of_subjects"] = math.fsum(sum(of) / len(of) for of in by_subject.values()) / len(by_subject)
    averages |= {f"share, {field}": sum(of) / len(of) for field, of in sorted(by_field.items())}
    return averages | {"share_of_subfield": {name: sum(of) / len(of) for name, of in sorted(by_subfield.items())}}
