"""Which of four letters a reply chooses, and averages over subjects and fields."""

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
"""A letter at the beginning that is all of the reply, or that a sign or the line's end sets apart from what follows."""
_NAMED = re.compile(
    r"(?<!\bnot )\b(?:answer|option|choice)\b(?:\s+(?:is|would\s+be|must\s+be))?(?:\s+(?:answer|option|choice))?"
    r"\s*:?\s*[^\w\s]{0,3}\s?([ABCD])(?![\w'])",
    re.IGNORECASE,
)
_ARTICLE = r"(?:A|a)\s+(?!(?:is|as|and|or|but|because|since)\b)[a-z]"
"""An A that a word follows is no letter."""
_FIRST = re.compile(rf"\W*(?!{_ARTICLE})([ABCD])(?![\w'-])")
_ALONE = re.compile(rf"(?<![\w'])(?!{_ARTICLE})([ABCD])(?![\w'-])")


def letter_in(reply: str) -> str | None:
    """The letter that a reply answers with, by the first of these rules that finds one.

    It begins with a letter that is set apart ("B", "(B) ...", "B. ..."); the last letter that it calls the answer, the
    option or the choice; the letter that it begins with; the only letter in it. The article in "A good answer" is no
    letter, and what a reply says of other letters on the way ("A is wrong, so the answer is B") is not its answer.
    """
    said = reply.strip()
    if apart := _SET_APART.match(said):
        return apart[1]
    if named := [found[1] for found in _NAMED.finditer(said) if not re.match(_ARTICLE, said[found.start(1) :])]:
        return named[-1].upper()
    if first := _FIRST.match(said):
        return first[1]
    alone = set(_ALONE.findall(said))
    return alone.pop() if len(alone) == 1 else None


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    said = letter_in(reply)
    return Graded(float(said == options["reference"]), said)


def means(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Mean over subjects, and shares of all questions of each field and subfield."""
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
    found: dict[str, Any] = {"subjects": len(by_subject)}
    found["mean_of_subjects"] = math.fsum(sum(of) / len(of) for of in by_subject.values()) / len(by_subject)
    found |= {f"share, {field}": sum(of) / len(of) for field, of in sorted(by_field.items())}
    return found | {"share_of_subfield": {name: sum(of) / len(of) for name, of in sorted(by_subfield.items())}}
