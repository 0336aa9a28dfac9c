"""What a reply asks for: a proposal, code to run, or nothing that is understood. Named strategies; knows no episode.

``tags`` is MINT's own (mint-bench 3f7f12c): ``<solution>`` anywhere makes the reply a proposal, blocks of one kind are
joined, ``<thought>`` and code fences mean nothing. ``lenient`` takes in addition, where there is no tag of MINT's,
fenced Python blocks and CodeLlama's ``[PYTHON]`` for code to run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

_SOLUTION = ("<solution>", "</solution>")
_EXECUTE = ("<execute>", "</execute>")
_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
_CODELLAMA = ("[PYTHON]", "[/PYTHON]")


@dataclass(frozen=True)
class Understood:
    """``content`` is None where the reply has the opening of a proposal, or nothing, but no content."""

    kind: Literal["propose", "execute", "nothing"]
    content: str | None = None


def tags(reply: str) -> Understood:
    """The protocol of the recorded runs."""
    if "<solution>" in reply:
        return Understood("propose", _joined(_between(reply, *_SOLUTION)))
    code = _joined(_between(reply, *_EXECUTE))
    return Understood("nothing") if code is None else Understood("execute", code)


def lenient(reply: str) -> Understood:
    """As ``tags``; where that finds nothing, fenced blocks or CodeLlama's tag are code."""
    understood = tags(reply)
    if understood.kind != "nothing":
        return understood
    code = _joined(_between(reply, *_CODELLAMA)) or _joined(_FENCE.findall(reply))
    return understood if code is None else Understood("execute", code)


def _between(reply: str, begin: str, end: str) -> list[str]:
    """The texts between each ``begin`` and the first ``end`` behind it.

    A pattern would look for the end of each of many that are never closed, in time that grows with the reply's square.
    """
    found = []
    at = reply.find(begin)
    while at >= 0 and (close := reply.find(end, at + len(begin))) >= 0:
        found.append(reply[at + len(begin) : close])
        at = reply.find(begin, close + len(end))
    return found


def _joined(blocks: Sequence[str]) -> str | None:
    """All blocks, each stripped, joined by line breaks; None where there is none, or nothing in them."""
    return "\n".join(block.strip() for block in blocks) or None


PARSERS: Mapping[str, Callable[[str], Understood]] = {"tags": tags, "lenient": lenient}
