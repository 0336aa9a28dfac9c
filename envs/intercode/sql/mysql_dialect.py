"""Detects statements that SQLite runs and MySQL 8 rejects, for replays on SQLite of recordings made on MySQL.

| rejected | rule of the MySQL 8.0 manual |
|---|---|
| ``FROM (SELECT ...)`` without a name | every derived table must have its own alias |
| ``COUNT (*)`` with a blank, likewise MIN, MAX, SUM | function name parsing without IGNORE_SPACE |
| a table or column named SHOW, RANK, GROUPS, not quoted | reserved words |
| ``IN (SELECT ... LIMIT n)``, likewise ANY, ALL, SOME | restrictions on subqueries |
| ``x IN (SELECT a, b ...)`` | an operand has one column |

Works on the tokens of a statement and never fails: it rejects nothing that it cannot parse."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|\w+|\S", re.S)
_NO_BLANK = frozenset({"count", "min", "max", "sum", "group_concat", "cast", "substr", "substring", "now", "trim"})
_RESERVED = frozenset({"show", "rank", "groups"})
_CONTINUES = frozenset(
    {"where", "group", "order", "limit", "having", "union", "join", "inner", "left", "right", "on", "except", "and"}
    | {"intersect", "cross", "natural", ")", ",", ";", "or"}
)


class Token(NamedTuple):
    """A word, a quoted text or a sign: its text in lower case, and its start and end in the statement."""

    word: str
    start: int
    end: int


def mysql_refuses(query: str) -> str | None:
    """The error with which MySQL 8 would reject ``query``; None if no reason is known."""
    tokens = [Token(m[0].lower(), m.start(), m.end()) for m in _TOKEN.finditer(query)]
    return next(_objections(tokens, _brackets(tokens)), None)


def _brackets(tokens: list[Token]) -> dict[int, int]:
    """Index of each opening bracket -> index of its closing one; unbalanced brackets are left out."""
    pairs, opened = {}, []
    for i, token in enumerate(tokens):
        if token.word == "(":
            opened.append(i)
        elif token.word == ")" and opened:
            pairs[opened.pop()] = i
    return pairs


def _objections(tokens: list[Token], brackets: dict[int, int]) -> Iterator[str]:
    words = [token.word for token in tokens] + ["", ""]
    for i, token in enumerate(tokens):
        before = words[i - 1] if i else ""
        after = words[i + 1]
        if token.word in _RESERVED and i and before != "." and after != "(":
            yield f"You have an error in your SQL syntax near '{token.word}'"
        if token.word in _NO_BLANK and after == "(" and tokens[i + 1].start > token.end:
            yield f"FUNCTION {token.word} does not exist: a blank stands before its bracket"
        if token.word != "(" or i not in brackets or after != "select":
            continue
        close = brackets[i]
        if before in ("from", "join") and (close + 1 == len(tokens) or words[close + 1] in _CONTINUES):
            yield "Every derived table must have its own alias"
        if before in ("in", "any", "all", "some"):
            inside = list(_own_words(words, brackets, i + 1, close))
            if "limit" in inside:
                yield "This version of MySQL doesn't yet support 'LIMIT & IN/ALL/ANY/SOME subquery'"
            columns = inside[: inside.index("from")] if "from" in inside else inside
            left = words[i - 3] if i > 2 and words[i - 2] == "not" else words[i - 2] if i > 1 else ""
            if before == "in" and "," in columns and left != ")":
                yield "Operand should contain 1 column(s)"


def _own_words(words: list[str], brackets: dict[int, int], start: int, end: int) -> Iterator[str]:
    """Yield the words from index ``start`` up to, not including, ``end``, skipping brackets and everything in them."""
    i = start
    while i < end:
        if i in brackets:
            i = brackets[i]
        else:
            yield words[i]
        i += 1
