"""Which tokens lie in which blocks of the cache: a tree whose paths spell token sequences, one block of them a node.

Full blocks are shared by reference, the part of a block that fits is copied; that is what ``find`` looks for. Knows
nothing of jax or of who holds a block, nor when it is given away (``block_cache.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lemur_ray.serve.engine.scores import Scores, joined


@dataclass(eq=False)
class Node:
    """One block of tokens, behind its parent's."""

    parent: Node | None
    block: int
    tokens: np.ndarray
    """(tokens of a block,) int32; those from ``length`` on are not there yet"""
    length: int = 0
    """Tokens whose keys and values may be reused"""
    holders: int = 0
    """Running sequences that this node belongs to"""
    used_at: int = 0
    scores: Scores | None = None
    """Of its tokens, as far as somebody wanted them"""
    full: dict[bytes, Node] = field(default_factory=dict)
    """Children by their tokens; any number of sequences may hold one"""
    partial: list[Node] = field(default_factory=list)
    """Children that are not full: at most one sequence holds one, others copy from it"""

    @property
    def is_leaf(self) -> bool:
        return not self.full and not self.partial

    def children(self) -> Iterator[Node]:
        return itertools.chain(self.full.values(), self.partial)


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
        best, extra = None, 0
        for child in node.children():
            length = min(child.length, len(rest))
            if length > extra:
                differs = child.tokens[:length] != rest[:length]
                common = int(differs.argmax()) if differs.any() else length
                if common > extra:
                    best, extra = child, common
        extra = extra // self._align * self._align
        return (nodes, best, extra) if extra >= self._min_copy or self.can_be_taken(best, extra) else (nodes, None, 0)

    def known(self, tokens: np.ndarray) -> tuple[Scores | None, int]:
        """Scores of the leading tokens that have them, and how many those are; the first token needs none."""
        nodes, source, extra = self.find(tokens)
        parts: list[Scores] = []
        for node, length in [(node, self.block) for node in nodes] + ([(source, extra)] if source else []):
            if node.scores is None:
                break
            unknown = np.isnan(node.scores.logprob[:length])
            unknown[0] &= bool(parts)
            parts.append(node.scores.part(0, int(unknown.argmax()) if unknown.any() else length))
            if unknown.any():
                break
        return (joined(parts), sum(len(part.logprob) for part in parts)) if parts else (None, 0)

    def can_be_taken(self, node: Node | None, length: int) -> bool:
        """Whether a sequence may go on in the very block: nobody else does, and nothing of it would be lost."""
        return node is not None and 0 < length == node.length < self.block and not node.holders and node.is_leaf
