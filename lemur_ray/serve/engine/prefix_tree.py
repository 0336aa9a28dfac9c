"""Which tokens lie in which blocks of the cache: a tree whose paths spell token sequences, one block of them a node.

Full blocks are shared by reference, the part of a block that fits is copied; that is what ``find`` looks for. The
children of a node lie in the order of their tokens, so that however many conversations part at one place, the one that
agrees for the longest stands beside where the new one would. Knows nothing of jax or of who holds a block, nor when it
is given away (``block_cache.py``).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lemur_ray.serve.engine.token_logprobs import TokenLogprobs, joined

Entry = tuple[bytes, int, "Node"]
"""The tokens of a node as bytes whose order is that of the tokens, and a number, so that no two entries are equal"""

_numbers = itertools.count()


@dataclass(eq=False)
class Node:
    """One block of tokens, behind its parent's."""

    parent: Node | None
    block: int
    tokens: np.ndarray
    """(tokens of a block,) int32; those from ``length`` on are not there yet"""
    length: int = 0
    """Tokens whose keys and values may be reused. ``tokens`` and this change by ``write`` alone"""
    holders: int = 0
    """Running sequences that this node belongs to"""
    used_at: int = 0
    logprobs: TokenLogprobs | None = None
    """Of its tokens, as far as somebody wanted them"""
    full: dict[bytes, Node] = field(default_factory=dict)
    """Children by their tokens; any number of sequences may hold one"""
    partial: dict[Node, None] = field(default_factory=dict)
    """Children that are not full, a set in order: at most one sequence holds one, others copy from it"""
    ordered: list[Entry] = field(default_factory=list)
    """All children that have tokens, in the order of these"""
    entry: Entry | None = None
    """Its own in that list of its parent"""

    @property
    def is_leaf(self) -> bool:
        return not self.full and not self.partial

    def children(self) -> Iterator[Node]:
        return itertools.chain(self.full.values(), self.partial)

    def write(self, offset: int, tokens: np.ndarray) -> None:
        """These are its tokens from ``offset`` on, and its last ones."""
        self.length = offset + len(tokens)
        self.tokens[offset : self.length] = tokens
        self.move_to(self.parent)

    def move_to(self, parent: Node | None) -> None:
        """Be found among the children of that node, or of none, by the tokens that are there now."""
        if self.parent is not None and self.entry is not None:
            del self.parent.ordered[bisect_left(self.parent.ordered, self.entry)]
        self.parent, self.entry = parent, None
        if parent is not None and self.length:
            self.entry = (_spelled(self.tokens[: self.length]), next(_numbers), self)
            insort(parent.ordered, self.entry)

    def forget(self) -> None:
        """Stand alone from now on; children, if there are any, are forgotten too."""
        self.full, self.partial, self.ordered, self.parent, self.entry = {}, {}, [], None, None


class PrefixTree:
    """Nodes of ``block`` tokens each, searched by the tokens that a sequence begins with."""

    def __init__(self, block: int, align: int = 1, min_copy: int = 16):
        """align: reuse whole multiples of this many tokens; min_copy: fewer are not worth the copy of a block."""
        self.block, self._align, self._min_copy = block, align, min_copy
        self.root = Node(None, 0, np.zeros(0, np.int32))

    def clear(self) -> list[Node]:
        """Begin anew; the nodes that were there, top down."""
        old, self.root = self.root, Node(None, 0, np.zeros(0, np.int32))
        found = list(old.children())
        for node in found:  # grows while it is walked through
            found += node.children()
        return found

    def find(self, tokens: np.ndarray) -> tuple[list[Node], Node | None, int]:
        """Full blocks that begin these tokens, and the block that goes on with them for the longest, so many tokens."""
        nodes: list[Node] = []
        node, limit = self.root, len(tokens) - 1
        while (end := (len(nodes) + 1) * self.block) <= limit:
            child = node.full.get(tokens[end - self.block : end].tobytes())
            if child is None:
                break
            nodes.append(child)
            node = child
        rest = tokens[len(nodes) * self.block : min(limit, (len(nodes) + 1) * self.block)]
        best, extra = self._nearest(node, rest)
        extra = extra // self._align * self._align
        return (nodes, best, extra) if extra >= self._min_copy or self.can_be_taken(best, extra) else (nodes, None, 0)

    def _nearest(self, node: Node, rest: np.ndarray) -> tuple[Node | None, int]:
        """The child that begins with as many of these tokens as any does, and how many those are."""
        best, extra, key = None, 0, _spelled(rest)
        at = bisect_left(node.ordered, (key,))
        for _, _, child in node.ordered[max(at - 1, 0) : at + 1]:  # no other can have more in common
            length = min(child.length, len(rest))
            differs = child.tokens[:length] != rest[:length]
            common = int(differs.argmax()) if differs.any() else length
            if common > extra:
                best, extra = child, common
        # Of those with as many, one that ends there and may be gone on with saves the copy.
        shared = key[: extra * _WIDTH]
        for at in range(bisect_left(node.ordered, (shared,)), len(node.ordered) if extra else 0):
            spelled, _, child = node.ordered[at]
            if spelled != shared:
                break
            if self.can_be_taken(child, extra):
                return child, extra
        return best, extra

    def known(self, tokens: np.ndarray) -> tuple[TokenLogprobs | None, int]:
        """Log-probabilities of the leading tokens that have them, and their number; the first token needs none."""
        nodes, source, extra = self.find(tokens)
        parts: list[TokenLogprobs] = []
        for node, length in [(node, self.block) for node in nodes] + ([(source, extra)] if source else []):
            if node.logprobs is None:
                break
            unknown = np.isnan(node.logprobs.logprob[:length])
            unknown[0] &= bool(parts)
            parts.append(node.logprobs.part(0, int(unknown.argmax()) if unknown.any() else length))
            if unknown.any():
                break
        return (joined(parts), sum(len(part.logprob) for part in parts)) if parts else (None, 0)

    def can_be_taken(self, node: Node | None, length: int) -> bool:
        """Whether a sequence may go on in the very block: nobody else does, and nothing of it would be lost."""
        return node is not None and 0 < length == node.length < self.block and not node.holders and node.is_leaf


_WIDTH = 4
"""Bytes of a token in an entry."""


def _spelled(tokens: np.ndarray) -> bytes:
    """Big-endian: bytes in the order of the tokens."""
    return tokens.astype(">i4").tobytes()
