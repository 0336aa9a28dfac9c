"""Allocation of KV cache blocks: to running sequences, pinned sessions and the prefix tree of finished sequences.

Blocks of finished sequences stay in the tree until they are needed, least recently used first, so that the next turn of
a conversation reuses its history and a common prefix is computed once. ``forget`` drops all of them when the weights
change. Knows nothing of jax: it hands out block ids, and ``compute`` reads and writes the blocks. Block 0 has no owner.
"""

import heapq
import itertools
from dataclasses import dataclass

import numpy as np

from lemur_ray.serve.engine.pins import Pin, Pins
from lemur_ray.serve.engine.prefix_tree import Node, PrefixTree
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs


@dataclass(frozen=True)
class Admission:
    """Blocks reserved for a sequence, and how much of it is cached already. ``handle`` identifies the sequence in later
    calls of ``BlockCache``."""

    handle: int
    cached: int
    """Leading tokens whose keys and values are in the cache (after the copy); at least one is left to compute"""
    copy: tuple[int, int] | None = None
    """Source and target of a block to copy: in order of admission, before any admitted sequence runs"""
    logprobs: TokenLogprobs | None = None
    """Log-probabilities of the ``cached`` tokens and the next one; None if not requested, or if none are known"""


@dataclass(eq=False)
class _Path:
    """The nodes of a running sequence, in order."""

    nodes: list[Node]
    table: np.ndarray
    recorded: int
    """Tokens whose keys and values are in the blocks"""


class BlockCache:
    """Assigns the ``num_blocks`` blocks of ``block`` tokens (block 0 is scrap and has no owner); a sequence has at most
    ``width`` blocks."""

    def __init__(
        self, num_blocks: int, block: int, width: int, align: int = 1, min_copy: int = 16, pinned_share: float = 0.5
    ):
        """align: cached tokens are reused only in whole multiples of this number. min_copy: fewer matching tokens are
        not worth the copy of a block. pinned_share: largest share of the blocks that pins hold; room for one sequence
        of full length always remains."""
        self.num_blocks, self.width, self._block = num_blocks, width, block
        self.tree = PrefixTree(block, align, min_copy)
        self._free = list(range(num_blocks - 1, 0, -1))
        self._paths: dict[int, _Path] = {}
        self._handles = itertools.count()
        self._clock = itertools.count(1)
        self._idle: list[tuple[int, int, Node]] = []  # a heap; entries that are out of date are skipped
        self._pushed = itertools.count()  # no two entries tie
        self._num_idle = 0
        most_pinned = min(int(pinned_share * (num_blocks - 1)), num_blocks - 1 - width)
        self._pins = Pins(most_pinned, self._hold, self._release_nodes)

    @property
    def available(self) -> int:
        """Number of blocks that a sequence could get: free ones, and cached ones that no sequence or pin holds."""
        return len(self._free) + self._num_idle

    @property
    def held(self) -> int:
        """Number of blocks of running sequences and of pinned sessions."""
        return self.num_blocks - 1 - self.available

    @property
    def pinned(self) -> int:
        """Number of blocks pinned for sessions; running sequences may use them as well."""
        return self._pins.blocks

    def blocks(self, num_tokens: int) -> int:
        """Number of blocks that ``num_tokens`` tokens need, rounded up."""
        return -(-num_tokens // self._block)

    def num_cached(self, tokens: np.ndarray, with_logprobs: bool = False) -> int:
        """Number of leading tokens that ``admit`` would reuse, with no effect; with_logprobs: only those whose
        log-probabilities are known."""
        nodes, _, extra = self.tree.find(tokens)
        return min(len(nodes) * self._block + extra, self.tree.known(tokens)[1] if with_logprobs else len(tokens))

    def admit(
        self, tokens: np.ndarray, spare: int = 0, with_logprobs: bool = False, session: str = ""
    ) -> Admission | None:
        """Reserve blocks for a sequence that begins with these tokens, and for one more token.
        At least one token is left to compute. Returns None if fewer blocks than that plus ``spare`` are available.
        with_logprobs: reuse only tokens whose log-probabilities are known, and return those; the token before the first
        unknown one is computed again, because its log-probability follows from it.
        session: name of the session that the sequence continues, whose pin ends."""
        pin = self._pins.take(session)  # a pinned block could only be copied, not extended
        logprobs, known = self.tree.known(tokens) if with_logprobs else (None, len(tokens))
        nodes, source, extra = self.tree.find(tokens[: max(known, 1)])
        extended = source if source is not None and self.tree.can_be_extended(source, extra) else None
        wanted = min(self.blocks(len(tokens) + 1), self.width)  # nothing follows a prompt that fills the context
        missing = wanted - len(nodes) - (extended is not None)
        reused = [*nodes, *([source] if source is not None else [])]
        self._hold(reused)
        if self.available < missing + spare and source is not None and extended is None:
            self._release_nodes([reused.pop()])  # it was only to be copied, and its block may be the one that lacks
            source, extra = None, 0
        if self.available < missing + spare:
            self._release_nodes(reused)
            if pin is not None:
                self._pins.put(session, pin)
            return None
        table = np.zeros(self.width, np.int32)
        path = _Path(nodes, table, len(nodes) * self._block + extra)
        if extended is not None:
            nodes.append(extended)
        table[: len(nodes)] = [node.block for node in nodes]
        copy = None
        for _ in range(missing):
            self._extend(path)
        if source is not None and extended is None:
            mine = nodes[path.recorded // self._block]
            mine.write(0, source.tokens[:extra])
            if source.logprobs is not None:
                mine.logprobs = TokenLogprobs(*(field.copy() for field in source.logprobs))
            copy = (source.block, mine.block)
            self._release_nodes([source])
        handle = next(self._handles)
        self._paths[handle] = path
        return Admission(handle, path.recorded, copy, logprobs.part(0, path.recorded + 1) if logprobs else None)

    def reserve(self, handle: int, num_tokens: int) -> bool:
        """Give a sequence blocks for its first ``num_tokens``; returns False, and gives none, if there are too few.
        handle: of its admission."""
        path = self._paths[handle]
        missing = self.blocks(num_tokens) - len(path.nodes)
        if missing > self.available:
            return False
        for _ in range(missing):
            self._extend(path)
        return True

    def record(self, handle: int, tokens: np.ndarray, logprobs: TokenLogprobs | None = None) -> None:
        """Append tokens whose keys and values were computed to a sequence; from now on other sequences may reuse them.
        logprobs: their log-probabilities, if they were computed. handle: of its admission."""
        path = self._paths[handle]
        while len(tokens):
            index, offset = divmod(path.recorded, self._block)
            node, part = path.nodes[index], tokens[: self._block - offset]
            node.write(offset, part)
            if logprobs is not None:
                node.logprobs = node.logprobs or TokenLogprobs.unknown(self._block, logprobs.top_ids.shape[1])
                node.logprobs.put(offset, logprobs.part(0, len(part)))
                logprobs = logprobs.part(len(part), len(tokens))
            elif node.logprobs is not None:
                node.logprobs.logprob[offset : node.length] = np.nan
            path.recorded += len(part)
            tokens = tokens[len(part) :]
            if node.length == self._block:
                self._share(path, index)

    def release(self, handle: int) -> None:
        """End a sequence; its recorded blocks stay in the tree until they are needed. handle: of its admission."""
        path = self._paths.pop(handle)
        self._release_nodes(path.nodes)

    def pin(self, handle: int, session: str, until: float) -> None:
        """Keep the blocks of a sequence for its session until ``until`` (on the clock of ``expire``), in place of the
        session's earlier pin. handle: of its admission."""
        nodes = [node for node in self._paths[handle].nodes if node.length and node.parent is not None]
        self._pins.put(session, Pin(nodes, until))

    def expire(self, now: float) -> None:
        """End the pins whose time is at most ``now``, a number on the caller's clock."""
        self._pins.expire(now)

    def table(self, handle: int) -> np.ndarray:
        """(width,) int32 block ids of a sequence, 0 for blocks it does not have yet. handle: of its admission."""
        return self._paths[handle].table

    def forget(self) -> None:
        """Drop all cached prefixes and pins, for example after new weights. Running sequences keep their blocks."""
        self._pins.clear()
        self._idle = []
        self._num_idle = 0
        for node in self.tree.clear():
            if node.holders:
                node.forget()
            else:
                self._free.append(node.block)

    def _hold(self, nodes: list[Node]) -> None:
        for node in nodes:
            self._num_idle -= not node.holders
            node.holders += 1

    def _release_nodes(self, nodes: list[Node]) -> None:
        now = next(self._clock)
        for node in reversed(nodes):
            node.holders -= 1
            if node.holders:
                continue
            if node.parent is None:  # forgotten while it ran
                self._free.append(node.block)
                continue
            self._num_idle += 1
            node.used_at = now
            if not node.length:
                self._remove(node)
            elif node.is_leaf:
                heapq.heappush(self._idle, (now, next(self._pushed), node))

    def _extend(self, path: _Path) -> None:
        """Give a sequence one more block, evicting the least recently used cached one if none is free."""
        while not self._free:
            used_at, _, node = heapq.heappop(self._idle)
            if not node.holders and node.is_leaf and node.used_at == used_at and node.parent is not None:
                self._remove(node)
        forgotten = bool(path.nodes) and path.nodes[-1].parent is None
        parent = None if forgotten else path.nodes[-1] if path.nodes else self.tree.root
        node = Node(parent, self._free.pop(), np.zeros(self._block, np.int32), holders=1)
        if parent is not None:
            parent.partial[node] = None
        path.table[len(path.nodes)] = node.block
        path.nodes.append(node)

    def _remove(self, node: Node) -> None:
        """Remove a leaf that nothing holds from the tree, and free its block."""
        parent = node.parent
        assert parent is not None
        if node in parent.partial:
            del parent.partial[node]
        else:
            del parent.full[node.tokens.tobytes()]
        node.move_to(None)
        self._num_idle -= 1
        self._free.append(node.block)
        if parent is not self.tree.root and parent.is_leaf and not parent.holders:
            heapq.heappush(self._idle, (parent.used_at, next(self._pushed), parent))

    def _share(self, path: _Path, index: int) -> None:
        """Make a full block shareable, or replace it by the shared block with the same tokens."""
        node = path.nodes[index]
        parent = node.parent
        if parent is None:
            return
        del parent.partial[node]
        same = parent.full.setdefault(node.tokens.tobytes(), node)
        if same is node:
            return
        same.logprobs = same.logprobs or node.logprobs
        self._hold([same])
        path.nodes[index], path.table[index] = same, same.block
        for child in node.partial:
            child.move_to(same)
            same.partial[child] = None
        node.move_to(None)
        self._free.append(node.block)
