"""Extracts the shell action from a model's reply, by InterCode's rules."""

import re

from envs.intercode.fenced_block import first_fenced

_OPENING = re.compile(r"\s*(?:(?:bash|sh|shell|console)\b)?\s*", re.I)


def parse_bash(reply: str, *, compat: bool) -> str:
    """The command in a reply: the first fenced block, else the whole reply; line breaks become blanks. ``compat``: a
    block's text in lower case, as upstream."""
    text = reply.replace("\r", " ").replace("\n", " ")
    fenced = first_fenced(text, _OPENING)
    if fenced is None:
        return text.strip()
    return fenced.strip().lower() if compat else fenced.strip()


def parse_ctf(reply: str) -> str:
    """The action in a reply: all text after an initial ``Action:``, if any; line breaks become blanks."""
    return re.sub(r"^\s*Action:\s*", "", reply.replace("\r", " ").replace("\n", " ")).strip()
