"""Multiple choice with lettered options in the prompt (MMLU in MINT), by both graders.

``choice_matches_2023`` reproduces the faults of the recorded runs (mint-bench 3f7f12c): one letter anywhere in the
answer is enough, only the letter a is ever extracted, and wrong options are removed from a list during iteration over
it. ``choice_matches`` requires one letter as a word of its own, or the text of exactly one option."""

import re

from lemur_ray.grading.short_answers import normalised

_TOKEN = re.compile(r"(?<![\w'])([a-z])(?![\w'])(\s?[,.:;)]|\s*$|\s*\n)?")
_DENIED = re.compile(r"\b(?:not|isn't|neither|nor|except)\s+(?:option\s+|choice\s+)?\(?[a-z]\s?\)?(?!\w)")
_BARE = re.compile(r"\(?([a-z])\s?[).:]*")


def options_of(prompt: str) -> dict[str, str]:
    """Options of a multiple-choice prompt: letter -> text, both in lower case, from the part after ``Options:``, else
    the whole prompt. Raises ValueError for a malformed option."""
    options: dict[str, str] = {}
    for segment in prompt.split("Options: ")[-1].split(" , "):
        letter, bracket, text = segment.strip("[]' ").partition(")")
        if not bracket:
            raise ValueError(f"option {segment!r}: expected a letter and a bracket, as in 'A ) 6'")
        options[letter.lower().strip()] = text.split(")")[0].lower().strip(".").strip()
    return options


def choice_matches_2023(answer: str, reference: str, options: dict[str, str]) -> bool:
    """Verdict by the rule of the recorded runs, faults included. ``reference``: the right letter; ``options``: texts by
    letter (``options_of``)."""
    proposal, letter = answer.lower().strip(), reference.strip().lower()
    if "a)" in proposal or "a )" in proposal:
        proposal = "a"
    if _digits_close(letter, proposal) or (not _both_digits(letter, proposal) and letter in proposal):
        return True
    right = options[letter]
    wrong = list(options.values())
    place = 0
    while place < len(wrong):  # as in the logs: the element after a removed one is skipped
        if wrong[place] in right:
            wrong.remove(wrong[place])
        place += 1
    if any(_digits_close(text, proposal) or text in proposal for text in wrong):
        return False
    return _digits_close(right, proposal) or right in proposal


def choice_matches(answer: str, reference: str, options: dict[str, str]) -> bool:
    """Strict verdict: whether the answer names one option (``named_options``), that with letter ``reference``."""
    return named_options(answer, options) == {reference.strip().lower()}


def named_options(answer: str, options: dict[str, str]) -> set[str]:
    """Letters of the options that an answer names: by its whole text, by letters as words, or by the text of one
    option; empty if it names none."""
    proposal = answer.lower().strip().strip("`*").strip()
    by_text = {
        letter
        for letter, text in options.items()
        if text and re.fullmatch(rf"(?:\(?{letter}\s?[).:,]+\s*)?{re.escape(text)}\.*", proposal)
    }
    if len(by_text) == 1:
        return by_text
    if (bare := _BARE.fullmatch(proposal)) and bare[1] in options:
        return {bare[1]}
    proposal = _DENIED.sub(" ", proposal)
    marked = {m[1] for m in re.finditer(r"(?<![\w'])\(?([a-z])\s?\)", proposal)}
    # "a" and "i" are words far more often than choices: they count only before punctuation or the end of a line.
    letters = {m[1] for m in _TOKEN.finditer(proposal) if m[1] not in "ai" or m[2] is not None}
    if named := (marked | letters) & options.keys():
        return named
    padded = f" {normalised(proposal)} "
    contained = {letter for letter, text in options.items() if normalised(text) and f" {normalised(text)} " in padded}
    # An option that is part of another named one is not named by itself.
    return {
        letter
        for letter in contained
        if not any(o != letter and normalised(options[letter]) in normalised(options[o]) for o in contained)
    }


def _both_digits(a: str, b: str) -> bool:
    return a.isdigit() and b.isdigit()


def _digits_close(reference: str, proposal: str) -> bool:
    """Whether both texts are digits only, and the proposal is within 5 % of the reference."""
    if not _both_digits(reference, proposal):
        return False
    try:
        expected, number = float(reference), float(proposal)
    except ValueError:  # digits that float refuses, such as superscripts
        return False
    return abs(expected - number) <= 0.05 * expected
