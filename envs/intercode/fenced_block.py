"""Extracts the first fenced block of a reply in linear time.

One regular expression for the whole block would take seconds for an unclosed fence with a thousand blanks."""

import re

FENCE = "```"


def first_fenced(text: str, opening: re.Pattern[str]) -> str | None:
    """The text between the first two fences (```), without the match of ``opening`` at its start; None without two
    fences. ``opening``: pattern of the language name and whitespace; must match any text and contain no backtick."""
    begin = text.find(FENCE)
    end = text.find(FENCE, begin + len(FENCE)) if begin >= 0 else -1
    if end < 0:
        return None
    block = text[begin + len(FENCE) : end]
    match = opening.match(block)
    return block[match.end() :] if match else block
