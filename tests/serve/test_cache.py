"""Slots: what is reused, what is copied, what is thrown away."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lemur_ray.serve.cache import Admission, SlotCache


def admit(cache: SlotCache, tokens: list[int]) -> Admission:
    place = cache.admit(np.array(tokens, np.int32))
    assert place is not None
    return place


def play(cache: SlotCache, tokens: list[int]) -> Admission:
    """A sequence from admission to its end."""
    place = admit(cache, tokens)
    cache.record(place.slot, np.array(tokens[place.cached :], np.int32))
    cache.release(place.slot)
    return place


def test_the_next_turn_finds_its_history_in_place() -> None:
    cache = SlotCache(4, 512, 128)
    first = play(cache, list(range(100)))
    play(cache, list(range(200, 300)))
    assert play(cache, list(range(150))) == Admission(first.slot, 100)


def test_the_last_prompt_token_is_always_computed() -> None:
    cache = SlotCache(2, 512, 128)
    play(cache, list(range(100)))
    assert play(cache, list(range(100))).cached == 99
    assert play(cache, list(range(50))).cached == 49


def test_a_common_header_is_copied_and_the_other_history_stays() -> None:
    cache = SlotCache(3, 512, 128)
    header = list(range(60))
    first = play(cache, header + list(range(100, 400)))
    second = admit(cache, header + list(range(500, 600)))
    assert second == Admission(second.slot, 60, first.slot)
    assert second.slot != first.slot
    assert play(cache, header + list(range(100, 420))) == Admission(first.slot, 360)


def test_a_header_can_be_copied_from_a_sequence_that_is_still_running() -> None:
    cache = SlotCache(2, 512, 128)
    header = list(range(60))
    first = admit(cache, [*header, 99])
    cache.record(first.slot, np.array([*header, 99], np.int32))
    assert admit(cache, [*header, 77]).copy_from == first.slot


def test_the_slot_that_was_idle_longest_is_given_away_first() -> None:
    cache = SlotCache(2, 512, 128)
    old = play(cache, list(range(100)))
    play(cache, list(range(100, 200)))
    assert play(cache, list(range(300, 400))).slot == old.slot


def test_nothing_is_given_when_all_slots_run() -> None:
    cache = SlotCache(2, 512, 128)
    admit(cache, [1, 2])
    admit(cache, [3, 4])
    assert cache.admit(np.array([5, 6], np.int32)) is None


def test_aligned_reuse_is_in_whole_tiles() -> None:
    cache = SlotCache(2, 512, 128, align=32)
    play(cache, list(range(100)))
    assert play(cache, list(range(150))).cached == 96


@given(st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=80), st.booleans()), max_size=60))
def test_reused_tokens_are_always_the_prompt_s_own(trace: list[tuple[list[int], bool]]) -> None:
    cache = SlotCache(3, 128, 16, min_copy=4)
    held: dict[int, list[int]] = {}
    running: list[int] = []
    for prompt, finish in trace:
        place = cache.admit(np.array(prompt, np.int32))
        if place is None:
            assert len(running) == 3
        else:
            source = place.slot if place.copy_from is None else place.copy_from
            assert place.slot not in running
            assert place.cached < len(prompt)
            assert held.get(source, [])[: place.cached] == prompt[: place.cached]
            held[place.slot] = prompt
            cache.record(place.slot, np.array(prompt[place.cached :], np.int32))
            running.append(place.slot)
        if finish and running:
            cache.release(running.pop(0))
    while (place := cache.admit(np.array([1, 2], np.int32))) is not None:
        running.append(place.slot)
    assert sorted(running) == [0, 1, 2]
    tables = np.concatenate([cache.table(s) for s in range(3)])
    assert len(set(tables.tolist())) == len(tables)
    assert 0 not in tables
