"""Extracts the SQL statement from a model's reply, by InterCode's rule."""

import re

from envs.intercode.fenced_block import first_fenced

_OPENING = re.compile(r"\s*(?:(?:my|postgre)?sql\b|sqlite\b)?\s*", re.I)
_START = re.compile(r"\b(?:SHOW|SELECT|DESCRIBE|DESC)\b")
_START_ANY_CASE = re.compile(_START.pattern, re.I)


def parse_sql(reply: str) -> str | None:
    """The SQL statement in a reply, or None if it has none.

    It is the content of the first fenced block, else everything from the first SHOW, SELECT, DESCRIBE or DESC (one in
    capitals if there is any, since prose has these words in lower case), cut at the first semicolon. White space is
    collapsed, and ``\\_`` becomes ``_``. A text that begins with any other word, WITH too, is no statement.
    Source: princeton-nlp/intercode c3e46d8, behaviour of its SQL parser."""
    text = reply.replace("\n", " ").replace("\r", " ")
    if (fenced := first_fenced(text, _OPENING)) is not None:
        text = fenced
    elif start := _START.search(text) or _START_ANY_CASE.search(text):
        text = text[start.start() :]
    statement = " ".join(text.split(";", 1)[0].split()).replace("\\_", "_")
    return statement if _START_ANY_CASE.match(statement) else None
