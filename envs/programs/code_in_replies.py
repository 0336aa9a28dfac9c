"""Extracts the program from a reply: a chat model's fenced block, or a base model's completion."""

from __future__ import annotations

import re

_FENCED = re.compile(r"```[ \t]*([\w+#.-]*)[^\n]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)


def code_in(reply: str, defined: str = "") -> str:
    """The last fenced block that matches ``defined``, else the longest block; a reply without fences unchanged.

    ``defined`` is a regular expression. A block without an end extends to the end of the reply.
    """
    blocks = [block for _, block in _FENCED.findall(reply)]
    if not blocks:
        return reply
    right = [block for block in blocks if defined and re.search(defined, block, re.MULTILINE)]
    return right[-1] if right else max(blocks, key=len)
