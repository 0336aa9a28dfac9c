"""Detects feedback of a simulated user that gives the solution away, and removes the solution from it.

A short solution counts as given away if it occurs in the feedback and nowhere before, or if the feedback calls it the
answer and the assistant never did; a program, if one of its longer lines occurs. A word like "yes" or a single digit is
only given away by being called the answer.
"""

from __future__ import annotations

import contextlib
import re

WITHHELD = "[withheld]"
SHORTEST_LINE = 16
"""Minimum characters, without whitespace, of a program line that counts; a shorter one may occur by chance."""
_CALLED = r"(?:answer|solution|option|choice)\W+(?:is|was|be|equals|should be|would be)?\W*"
_EVERYDAY = frozenset({"yes", "no", "true", "false"})


def without_solution(feedback: str, solution: str, before: str, replies: str) -> str:
    """The feedback with "[withheld]" for the solution, or unchanged if it does not give the solution away.

    ``before`` is everything the assistant has read or written so far, ``replies`` only what it has written.
    """
    solution = solution.strip()
    if not solution:
        return feedback
    if "\n" in solution or solution.startswith("assert "):
        return _without_lines(feedback, solution, before)
    for form in _forms(solution):
        alone = rf"(?<![\w.]){re.escape(form)}(?!\w|\.\d)"
        telling = rf"({_CALLED}){re.escape(form)}(?!\w|\.\d)"
        if len(form) > 1 and form.lower() not in _EVERYDAY and not re.search(alone, before, re.IGNORECASE):
            feedback = re.sub(alone, WITHHELD, feedback, flags=re.IGNORECASE)
        elif not re.search(alone, replies, re.IGNORECASE):
            feedback = re.sub(telling, rf"\g<1>{WITHHELD}", feedback, flags=re.IGNORECASE)
    return feedback


def _forms(solution: str) -> list[str]:
    """Spellings of a solution, longest first: itself and, if it is a number, others without trailing zeros."""
    forms = [solution]
    with contextlib.suppress(ValueError, OverflowError):
        number = float(solution.replace(",", ""))
        forms += [f"{number:g}", f"{number:,.0f}"] if number == int(number) else [f"{number:g}"]
    return sorted(set(forms), key=len, reverse=True)


def _without_lines(feedback: str, program: str, before: str) -> str:
    lines = {_squeezed(line) for line in program.splitlines() if len(_squeezed(line)) >= SHORTEST_LINE}
    lines = {line for line in lines if line not in _squeezed(before)}
    return "\n".join(WITHHELD if any(line in _squeezed(f) for line in lines) else f for f in feedback.split("\n"))


def _squeezed(text: str) -> str:
    return "".join(text.split())
