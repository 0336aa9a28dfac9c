"""Parses a reply into a proposal, code to run, or neither.

``tags`` is MINT's own strategy (mint-bench 3f7f12c): ``<solution>`` anywhere makes the reply a proposal, blocks of one
kind are joined, ``<thought>`` and code fences are ignored. ``lenient`` also accepts, in a reply without MINT's tags,
fenced Python blocks and CodeLlama's ``[PYTHON]`` as code to run."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

_SOLUTION = ("<solution>", "</solution>")
_EXECUTE = ("<execute>", "</execute>")
_FENCE = re.compile(r"```([^\n`]*)\n(.*?)```", re.DOTALL)
_PYTHON = ("python", "py", "")
_CODELLAMA = ("[PYTHON]", "[/PYTHON]")


@dataclass(frozen=True)
class ParsedReply:
    """A parsed reply. ``content``: the proposed answer or the code; None for kind nothing and for an empty proposal."""

    kind: Literal["propose", "execute", "nothing"]
    content: str | None = None


def tags(reply: str) -> ParsedReply:
    """Parse as mint-bench does: any ``<solution>`` makes a proposal, else ``<execute>`` blocks are code."""
    if "<solution>" in reply:
        return ParsedReply("propose", _join_blocks(_blocks_between(reply, *_SOLUTION)))
    code = _join_blocks(_blocks_between(reply, *_EXECUTE))
    return ParsedReply("nothing") if code is None else ParsedReply("execute", code)


def lenient(reply: str) -> ParsedReply:
    """Parse as ``tags`` does; if that finds nothing, code is CodeLlama's blocks, else Python's and unmarked fences."""
    understood = tags(reply)
    if understood.kind != "nothing":
        return understood
    fenced = [block for language, block in _FENCE.findall(reply) if language.strip() in _PYTHON]
    code = _join_blocks(_blocks_between(reply, *_CODELLAMA)) or _join_blocks(fenced)
    return understood if code is None else ParsedReply("execute", code)


def _blocks_between(reply: str, begin: str, end: str) -> list[str]:
    """The texts between each ``begin`` and the first ``end`` after it. A regular expression would search for the end of
    each unclosed block, in time quadratic in the reply's length."""
    blocks = []
    at = reply.find(begin)
    while at >= 0 and (close := reply.find(end, at + len(begin))) >= 0:
        blocks.append(reply[at + len(begin) : close])
        at = reply.find(begin, close + len(end))
    return blocks


def _join_blocks(blocks: Sequence[str]) -> str | None:
    return "\n".join(block.strip() for block in blocks) or None


PARSERS: Mapping[str, Callable[[str], ParsedReply]] = {"tags": tags, "lenient": lenient}
