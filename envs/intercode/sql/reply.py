"""Extracts the SQL statement from a model's reply, by InterCode's rule."""

import re

from envs.intercode.fenced_block import first_fenced

_OPENING = re.compile(r"\s*(?:(?:my|postgre)?sql\b|sqlite\b)?\s*", re.I)
_START = re.compile(r"\b(?:SHOW|SELECT|DESCRIBE|DESC)\b")
_START_ANY_CASE = re.compile(_START.pattern, re.I)


def parse_sql(reply: str) -> str | None:
    """The SQL statement in a reply, or None if it has none.

    Line breaks are blanks; the first fenced block, else everything from the first SHOW, SELECT, DESCRIBE or DESC
    (written in capitals if there is one: in prose those words are common in lower case); cut at the first semicolon;
    white space collapsed; ``\\_`` is ``_``. A statement that begins with any other word, WITH too, is not code.
    Source: princeton-nlp/intercode c3e46d8, behaviour of its SQL parser."""
    text = reply.replace("\n", " ").replace("\r", " ")
    if (fenced := first_fenced(text, _OPENING)) is not None:
        text = fenced
    elif start := _START.search(text) or _START_ANY_CASE.search(text):
        text = text[start.start() :]
    statement = " ".join(text.split(";", 1)[0].split()).replace("\\_", "_")
    return statement if _START_ANY_CASE.match(statement) else None
