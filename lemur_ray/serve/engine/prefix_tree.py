"""Prefix tree of cached tokens: each node is one block of the cache, each path a token sequence.

``find`` returns full blocks, which sequences share, and the block whose first tokens match, which is copied. Children
are sorted by their tokens, so the longest match is next to the insertion point, however many there are. Knows nothing
of jax, of the holders of a block or of eviction (``block_cache.py``)."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lemur_ray.serve.engine.token_logprobs import TokenLogprobs, joined

Entry = tuple[bytes, int, "Node"]
"""Sort key of a node: its tokens as bytes in the order of the tokens, and a number that makes entries distinct"""
_numbers = itertools.count()


@dataclass(eq=False)
class Node:
    """A block of tokens in the tree, which follow those of its parent (None: the root, or removed from the tree)."""

    parent: Node | None
    block: int
    tokens: np.ndarray
    """(tokens of a block,) int32, of which the first ``length`` are set"""
    length: int = 0
    """Tokens whose keys and values may be reused. Only ``write`` changes ``tokens`` and ``length``"""
    holders: int = 0
    """Number of running sequences and pins that hold this node"""
    used_at: int = 0
    """Count of releases when its last holder released it: nodes with lower counts are evicted first"""
    logprobs: TokenLogprobs | None = None
    """Log-probabilities of its tokens, NaN where they were not requested"""
    full: dict[bytes, Node] = field(default_factory=dict)
    """Full children by their tokens; any number of sequences may hold one"""
    partial: dict[Node, None] = field(default_factory=dict)
    """Other children, an ordered set: at most one sequence holds each, others copy from it"""
    ordered: list[Entry] = field(default_factory=list)
    """All children with tokens, sorted by them"""
    entry: Entry | None = None
    """Its entry in ``ordered`` of its parent"""

    @property
    def is_leaf(self) -> bool:
        return not self.full and not self.partial

    def children(self) -> Iterator[Node]:
        return itertools.chain(self.full.values(), self.partial)

    def write(self, offset: int, tokens: np.ndarray) -> None:
        """Replace the node's tokens from index ``offset`` on; ``tokens`` become its last ones."""
        self.length = offset + len(tokens)
        self.tokens[offset : self.length] = tokens
        self.move_to(self.parent)

    def move_to(self, parent: Node | None) -> None:
        """Set the parent (None: no parent), and enter this node into its ``ordered`` children by the current tokens."""
        if self.parent is not None and self.entry is not None:
            del self.parent.ordered[bisect_left(self.parent.ordered, self.entry)]
        self.parent, self.entry = parent, None
        if parent is not None and self.length:
            self.entry = (_sort_key(self.tokens[: self.length]), next(_numbers), self)
            insort(parent.ordered, self.entry)

    def forget(self) -> None:
        """Drop the links to the parent and to all children."""
        self.full, self.partial, self.ordered, self.parent, self.entry = {}, {}, [], None, None


class PrefixTree:
    """Tree of nodes of ``block`` tokens each, searched by the first tokens of a sequence."""

    def __init__(self, block: int, align: int = 1, min_copy: int = 16):
        """align: reuse whole multiples of this many tokens; min_copy: fewer are not worth the copy of a block."""
        self.block, self._align, self._min_copy = block, align, min_copy
        self.root = Node(None, 0, np.zeros(0, np.int32))

    def clear(self) -> list[Node]:
        """Empty the tree; returns its former nodes, parents first."""
        old, self.root = self.root, Node(None, 0, np.zeros(0, np.int32))
        nodes = list(old.children())
        for node in nodes:  # grows during the loop
            nodes += node.children()
        return nodes

    def find(self, tokens: np.ndarray) -> tuple[list[Node], Node | None, int]:
        """Longest reusable prefix of ``tokens`` (int32), which leaves at least one token over: (full nodes that match
        its first tokens; node that matches most tokens after them, None if too few; how many it matches)."""
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
        is_worth_it = extra >= self._min_copy or self.can_be_extended(best, extra)
        return (nodes, best, extra) if is_worth_it else (nodes, None, 0)

    def _nearest(self, node: Node, rest: np.ndarray) -> tuple[Node | None, int]:
        """The child that matches most of the tokens ``rest`` from their start, if any, and how many it matches."""
        best, extra, key = None, 0, _sort_key(rest)
        at = bisect_left(node.ordered, (key,))
        for _, _, child in node.ordered[max(at - 1, 0) : at + 1]:  # no other child matches more tokens
            length = min(child.length, len(rest))
            differs = child.tokens[:length] != rest[:length]
            common = int(differs.argmax()) if differs.any() else length
            if common > extra:
                best, extra = child, common
        # Among equal matches, a child that ends there and can be extended saves the copy.
        shared = key[: extra * _WIDTH]
        for at in range(bisect_left(node.ordered, (shared,)), len(node.ordered) if extra else 0):
            spelled, _, child = node.ordered[at]
            if spelled != shared:
                break
            if self.can_be_extended(child, extra):
                return child, extra
        return best, extra

    def known(self, tokens: np.ndarray) -> tuple[TokenLogprobs | None, int]:
        """Cached log-probabilities of the leading tokens, and the number of these tokens; (None, 0) if there are none.
        The first token needs none."""
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

    def can_be_extended(self, node: Node | None, length: int) -> bool:
        """Whether a sequence whose next ``length`` tokens match may append to this block itself: the block has no other
        tokens, is not full, and has neither holders nor children. node None: False."""
        return node is not None and 0 < length == node.length < self.block and not node.holders and node.is_leaf


_WIDTH = 4
"""Bytes of a token in an entry."""


def _sort_key(tokens: np.ndarray) -> bytes:
    """Big-endian bytes, which sort as the tokens do."""
    return tokens.astype(">i4").tobytes()
