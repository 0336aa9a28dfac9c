"""The search for a prefix: what it finds is what looking at every child would find, and it looks at few."""

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lemur_ray.serve.engine.block_cache import BlockCache
from lemur_ray.serve.engine.prefix_tree import Node, PrefixTree

BLOCK = 8


def in_common(one: np.ndarray, other: np.ndarray) -> int:
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length


def scanned(tree: PrefixTree, tokens: np.ndarray) -> int:
    """Leading tokens that a search finds which looks at all children there are."""
    node, found = tree.root, 0
    while found + BLOCK < len(tokens) and (child := node.full.get(tokens[found : found + BLOCK].tobytes())):
        node, found = child, found + BLOCK
    rest = tokens[found : min(found + BLOCK, len(tokens) - 1)]
    children = [(in_common(child.tokens[: child.length], rest), child) for child in node.children()]
    most = max((length for length, _ in children), default=0)
    worth_it = most >= 2 or any(tree.can_be_extended(child, most) for length, child in children if length == most)
    return found + most if most and worth_it else found


def spelled(node: Node) -> list[list[int]]:
    return sorted(child.tokens[: child.length].tolist() for child in node.children() if child.length)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=30), st.integers(0, 30)), max_size=30))
def test_a_search_finds_what_looking_at_every_child_would(asked: list[tuple[list[int], int]]) -> None:
    cache = BlockCache(24, BLOCK, 8, min_copy=2)
    for number, (prompt, recorded) in enumerate(asked):
        tokens = np.array(prompt, np.int32)
        assert cache.num_cached(tokens) == scanned(cache.tree, tokens)
        if (place := cache.admit(tokens)) is not None:
            cache.record(place.handle, tokens[place.cached : place.cached + recorded])
            if number % 3:
                cache.release(place.handle)
        pending = [cache.tree.root]
        for node in pending:
            assert [entry[2].tokens[: entry[2].length].tolist() for entry in node.ordered] == spelled(node)
            pending += node.children()


def test_of_equal_prefixes_the_one_that_may_be_gone_on_with_is_found() -> None:
    tree = PrefixTree(BLOCK, min_copy=2)
    for tokens in ([1, 2, 3, 9], [1, 2, 3], [1, 2, 3, 4]):
        child = Node(tree.root, len(tree.root.partial) + 1, np.zeros(BLOCK, np.int32))
        tree.root.partial[child] = None
        child.write(0, np.array(tokens, np.int32))
    _, source, extra = tree.find(np.array([1, 2, 3, 7, 7, 7], np.int32))
    assert source is not None
    assert (source.block, extra) == (2, 3)


def test_a_search_among_thousands_of_conversations_takes_microseconds() -> None:
    rng = np.random.default_rng(0)
    cache = BlockCache(3000, 128, 4)
    header = rng.integers(7, 3000, 40)
    for _ in range(2500):
        prompt = np.concatenate([header, rng.integers(7, 3000, 60)]).astype(np.int32)
        place = cache.admit(prompt)
        assert place is not None
        cache.record(place.handle, prompt[place.cached :])
        cache.release(place.handle)
    asked = [np.concatenate([header, rng.integers(7, 3000, 60)]).astype(np.int32) for _ in range(100)]
    begin = time.process_time()
    assert all(cache.num_cached(prompt) >= 40 for prompt in asked)
    # One that compares every child needs 9 ms for a search, a hundred times as long.
    assert (time.process_time() - begin) / len(asked) < 0.001
