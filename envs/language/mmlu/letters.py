"""Extracts the chosen letter from a reply, and averages over subjects and fields."""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from envs.language.mmlu.subjects import SUBJECTS
from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.question import FLEXIBLE, STRICT, Graded, by_category
from lemur_ray.grading.written_letters import chosen_letter

LETTERS = "ABCD"
_ASKED = re.compile(r"\s*\(?([ABCD])\)?[.:]?[ \t]*(?:\n|$)")
"""A reply in the form of the worked examples: a first line with nothing but the letter."""


def letter_in(reply: str) -> str | None:
    """The letter, A to D, that a reply chooses, as a person reads it; None if it chooses none or several."""
    return chosen_letter(reply, LETTERS)


def letter_asked(reply: str) -> str | None:
    """The letter of a reply that has the form of the worked examples; None for any other reply."""
    return match[1] if (match := _ASKED.match(reply)) else None


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 for the letter ``options["reference"]``, read as a person does; ``scores`` has the strict reading,
    too."""
    letter, right = letter_in(reply), options["reference"]
    score = float(letter == right)
    return Graded(score, letter, scores={STRICT: float(letter_asked(reply) == right), FLEXIBLE: score})


def means(episodes: Sequence[Episode]) -> dict[str, Any]:
    """For reports: ``subjects``, their number; ``mean_of_subjects``, the mean of their success rates; the share solved
    in each field (``share, FIELD``) and subfield (``share_of_subfield``). Over scored episodes; {} if there are
    none."""
    by_subject = by_category(episodes)
    if not by_subject:
        return {}
    by_field: dict[str, list[float]] = {}
    by_subfield: dict[str, list[float]] = {}
    for subject, solved in by_subject.items():
        field, subfield = SUBJECTS.get(subject, ("other", "other"))
        by_field.setdefault(field, []).extend(solved)
        by_subfield.setdefault(subfield, []).extend(solved)
    averages: dict[str, Any] = {"subjects": len(by_subject)}
    averages["mean_of_subjects"] = fmean(map(fmean, by_subject.values()))
    averages |= {f"share, {field}": fmean(of) for field, of in sorted(by_field.items())}
    return averages | {"share_of_subfield": {name: fmean(of) for name, of in sorted(by_subfield.items())}}
