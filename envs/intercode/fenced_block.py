"""The first fenced block of a reply, in time that grows with the reply alone.

One pattern over the whole block would try every way to share blanks between its parts before it gives up on a fence
that is never closed: a reply of a thousand blanks took seconds. Knows no language.
"""

from __future__ import annotations

import re

FENCE = "```"


def first_fenced(text: str, opening: re.Pattern[str]) -> str | None:
    """What stands between the first two fences, without what ``opening`` matches at its beginning; None without both.

    ``opening`` (the language's name, blanks around it) has to match everywhere, an empty text too, and no backtick.
    """
    begin = text.find(FENCE)
    end = text.find(FENCE, begin + len(FENCE)) if begin >= 0 else -1
    if end < 0:
        return None
    block = text[begin + len(FENCE) : end]
    found = opening.match(block)
    return block[found.end() :] if found else block
