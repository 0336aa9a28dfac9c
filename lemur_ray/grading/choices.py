"""Multiple choice with lettered options in the prompt (MMLU in MINT), by both graders.

``choice_matches_2023`` keeps every leak of the recorded runs (mint-bench 3f7f12c): one letter anywhere in the answer is
enough, only the letter a is ever extracted, and the list of wrong options is shortened while it is walked through.
``choice_matches`` wants one letter as a word of its own, or exactly one option's text.
"""

from __future__ import annotations

import re

from lemur_ray.grading.short_answers import normalised

_TOKEN = re.compile(r"(?<![\w'])([a-z])(?![\w'])(\s?[,.:;)]|\s*$|\s*\n)?")
_DENIED = re.compile(r"\b(?:not|isn't|neither|nor|except)\s+(?:option\s+|choice\s+)?\(?[a-z]\s?\)?(?!\w)")
_BARE = re.compile(r"\(?([a-z])\s?[).:]*")


def options_of(prompt: str) -> dict[str, str]:
    """Letter -> text of the options after ``Options:``, both in lower case. Raises ValueError where there are none."""
    options: dict[str, str] = {}
    for segment in prompt.split("Options: ")[-1].split(" , "):
        letter, bracket, text = segment.strip("[]' ").partition(")")
        if not bracket:
            raise ValueError(f"option {segment!r}: expected a letter and a bracket, as in 'A ) 6'")
        options[letter.lower().strip()] = text.split(")")[0].lower().strip(".").strip()
    return options


def choice_matches_2023(answer: str, reference: str, options: dict[str, str]) -> bool:
    """The verdict of the recorded runs. ``reference`` is the right letter."""
    said, letter = answer.lower().strip(), reference.strip().lower()
    if "a)" in said or "a )" in said:
        said = "a"
    if _digits_close(letter, said) or (not _both_digits(letter, said) and letter in said):
        return True
    right = options[letter]
    wrong = list(options.values())
    place = 0
    while place < len(wrong):  # as logged: the element after a removed one is never looked at
        if wrong[place] in right:
            wrong.remove(wrong[place])
        place += 1
    if any(_digits_close(text, said) or text in said for text in wrong):
        return False
    return _digits_close(right, said) or right in said


def choice_matches(answer: str, reference: str, options: dict[str, str]) -> bool:
    """Whether exactly one option is named, and it is the right one; naming two is wrong."""
    return named_options(answer, options) == {reference.strip().lower()}


def named_options(answer: str, options: dict[str, str]) -> set[str]:
    """Letters of the options that an answer names: by its whole text, by letters as words, or by one option's text."""
    said = answer.lower().strip().strip("`*").strip()
    by_text = {
        letter
        for letter, text in options.items()
        if text and re.fullmatch(rf"(?:\(?{letter}\s?[).:,]+\s*)?{re.escape(text)}\.*", said)
    }
    if len(by_text) == 1:
        return by_text
    if (bare := _BARE.fullmatch(said)) and bare[1] in options:
        return {bare[1]}
    said = _DENIED.sub(" ", said)
    marked = {m[1] for m in re.finditer(r"(?<![\w'])\(?([a-z])\s?\)", said)}
    # "a" and "i" are words far more often than choices: they count only before punctuation or the end of a line.
    letters = {m[1] for m in _TOKEN.finditer(said) if m[1] not in "ai" or m[2] is not None}
    if named := (marked | letters) & options.keys():
        return named
    padded = f" {normalised(said)} "
    held = {letter for letter, text in options.items() if normalised(text) and f" {normalised(text)} " in padded}
    # An option that is part of another named one is not named by itself.
    return {
        letter
        for letter in held
        if not any(o != letter and normalised(options[letter]) in normalised(options[o]) for o in held)
    }


def _both_digits(a: str, b: str) -> bool:
    return a.isdigit() and b.isdigit()


def _digits_close(reference: str, said: str) -> bool:
    """Both are digits and within 5 % of the reference."""
    if not _both_digits(reference, said):
        return False
    try:
        expected, number = float(reference), float(said)
    except ValueError:  # digits that float refuses, such as superscripts
        return False
    return abs(expected - number) <= 0.05 * expected
