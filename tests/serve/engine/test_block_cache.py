"""The tree of blocks: what is shared, what is copied, what is thrown away, and that no block is ever lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lemur_ray.serve.engine.block_cache import Admission, BlockCache

BLOCK = 16


def ids(*pieces: range | list[int]) -> np.ndarray:
    return np.array([i for piece in pieces for i in piece], np.int32)


def admit(cache: BlockCache, tokens: np.ndarray) -> Admission:
    place = cache.admit(tokens)
    assert place is not None
    return place


def play(cache: BlockCache, tokens: np.ndarray) -> Admission:
    """A sequence from admission to its end."""
    place = admit(cache, tokens)
    cache.record(place.handle, tokens[place.cached :])
    cache.release(place.handle)
    return place


@pytest.fixture
def cache() -> BlockCache:
    return BlockCache(33, BLOCK, 8, min_copy=4)


def test_the_next_turn_goes_on_where_its_history_ends(cache: BlockCache) -> None:
    play(cache, ids(range(40)))
    play(cache, ids(range(200, 240)))
    place = play(cache, ids(range(60)))
    assert (place.cached, place.copy) == (40, None)


def test_the_last_prompt_token_is_always_computed(cache: BlockCache) -> None:
    play(cache, ids(range(64)))
    assert play(cache, ids(range(64))).cached == 63
    assert play(cache, ids(range(56))).cached == 55
    assert play(cache, ids(range(33))).cached == 32


def test_full_blocks_are_shared_and_the_rest_of_a_common_header_is_copied(cache: BlockCache) -> None:
    first = admit(cache, ids(range(40), [99] * 20))
    cache.record(first.handle, ids(range(40), [99] * 20))
    second = admit(cache, ids(range(40), [77] * 20))
    assert second.cached == 40
    ours, theirs = cache.table(first.handle), cache.table(second.handle)
    assert ours[:2].tolist() == theirs[:2].tolist()
    assert second.copy == (ours[2], theirs[2])
    assert ours[2] != theirs[2]


def test_a_block_that_two_have_computed_is_kept_once(cache: BlockCache) -> None:
    first, second = admit(cache, ids(range(30))), admit(cache, ids(range(30)))
    assert second.cached == 0
    for place in (first, second):
        cache.record(place.handle, ids(range(30)))
    assert cache.table(first.handle)[0] == cache.table(second.handle)[0]
    assert cache.held == 3


def test_what_was_idle_longest_is_thrown_away_first_and_leaves_before_their_parents() -> None:
    cache = BlockCache(9, BLOCK, 8, min_copy=4)
    old, young = ids(range(48)), ids(range(100, 148))
    play(cache, old)
    play(cache, young)
    admit(cache, ids(range(200, 248)))
    assert cache.num_cached(ids(young.tolist(), [0])) == 48
    assert cache.num_cached(ids(old.tolist(), [0])) == 16


def test_nothing_is_given_where_running_sequences_hold_everything() -> None:
    cache = BlockCache(5, BLOCK, 4)
    first, second = admit(cache, ids(range(30))), admit(cache, ids(range(100, 130)))
    assert cache.admit(ids([1, 2])) is None
    assert cache.reserve(first.handle, 32)
    assert not cache.reserve(first.handle, 33)
    cache.release(second.handle)
    assert cache.admit(ids([1, 2]), spare=2) is None
    assert cache.reserve(first.handle, 33)


def test_a_block_that_would_only_be_copied_is_given_where_it_is_the_one_that_lacks() -> None:
    cache = BlockCache(5, BLOCK, 4, min_copy=4)  # one sequence's blocks and the scrap block
    play(cache, ids(range(40)))
    place = admit(cache, ids(range(28), range(500, 530)))  # shares a block, and of the next one 12 tokens
    assert (place.cached, place.copy) == (16, None)


def test_after_forgetting_nothing_is_found_and_running_sequences_keep_their_blocks(cache: BlockCache) -> None:
    play(cache, ids(range(100, 150)))
    running = admit(cache, ids(range(60)))
    cache.record(running.handle, ids(range(60)))
    cache.forget()
    assert cache.num_cached(ids(range(61))) == cache.num_cached(ids(range(100, 151))) == 0
    assert cache.held == 4
    assert cache.reserve(running.handle, 100)
    cache.record(running.handle, ids(range(60, 100)))
    cache.release(running.handle)
    assert (cache.held, cache.available, cache.num_cached(ids(range(61)))) == (0, 32, 0)


def test_aligned_reuse_is_in_whole_tiles() -> None:
    cache = BlockCache(33, 64, 8, align=32)
    play(cache, ids(range(120)))
    assert play(cache, ids(range(200))).cached == 96


def blocks_of_the_tree(cache: BlockCache) -> list[int]:
    found, pending = [], list(cache.tree.root.children())
    while pending:
        node = pending.pop()
        found.append(node.block)
        pending += node.children()
    return found


STEP = st.tuples(
    st.sampled_from(["admit", "admit", "record", "record", "release", "pin", "expire", "forget"]),
    st.lists(st.integers(0, 1), min_size=1, max_size=50),
)


@settings(deadline=None, max_examples=100)
@given(st.lists(STEP, max_size=80))
def test_no_block_is_lost_or_given_twice_and_what_is_reused_is_the_prompt_s_own(trace: list) -> None:
    cache = BlockCache(12, 8, 8, min_copy=2)
    held: dict[int, list[int]] = {}  # what every block was filled with, as the device would have it
    running: dict[int, tuple[list[int], int]] = {}
    for what, tokens in trace:
        prompt = np.array(tokens, np.int32)
        oldest = next(iter(running), None)
        session = ("", "a", "b")[len(tokens) % 3]
        if what == "admit" and (place := cache.admit(prompt, session=session)) is not None:
            if place.copy is not None:
                held[place.copy[1]] = list(held[place.copy[0]])
            table = cache.table(place.handle)
            reused = [held[table[i // 8]][i % 8] for i in range(place.cached)]
            assert reused == tokens[: place.cached]
            assert place.cached < len(tokens)
            running[place.handle] = (tokens, place.cached)
        elif what == "record" and oldest is not None:
            own, done = running[oldest]
            piece = own[done : done + 11]
            table = cache.table(oldest)
            for i, token in enumerate(piece, done):
                content = held.setdefault(table[i // 8], [])
                held[table[i // 8]] = [*content[: i % 8], token]
            cache.record(oldest, np.array(piece, np.int32))
            running[oldest] = (own, done + len(piece))
        elif what in ("release", "pin") and oldest is not None:
            if what == "pin":
                cache.pin(oldest, session or "c", len(tokens))
            cache.release(oldest)
            del running[oldest]
        elif what == "expire":
            cache.expire(len(tokens))
        elif what == "forget":
            cache.forget()
        pinned = {node.block for pin in cache._pins._pins.values() for node in pin.nodes}
        assert pinned <= set(blocks_of_the_tree(cache))
        mine = [int(b) for h in running for b in cache.table(h) if b]
        everything = set(mine) | set(blocks_of_the_tree(cache)) | set(cache._free)
        assert everything == set(range(1, 12))
        assert not set(cache._free) & (set(mine) | set(blocks_of_the_tree(cache)))
        assert len(set(cache._free)) == len(cache._free)
        assert cache.held == len(set(mine) | pinned)
        assert len(pinned) == cache.pinned <= 3
    for handle in running:
        cache.release(handle)
    cache.expire(99)
    assert (cache.held, cache.available) == (0, 11)
