"""Sessions that come back: their blocks outlast other traffic, for a while and up to a share of the cache."""

from collections.abc import Callable

import numpy as np
import openai
import pytest

from lemur_ray.serve.compute.attention import block_bytes
from lemur_ray.serve.engine.block_cache import BlockCache
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.generation import Generation
from tests.serve.engine.test_block_cache import BLOCK, admit, ids, play
from tests.serve.offline import generate
from tests.serve.tiny import TINY, Waiter, poll, prompts

Make = Callable[..., Engine]


def leave(cache: BlockCache, tokens: np.ndarray, session: str, until: float = 10.0) -> None:
    """One turn of a session."""
    place = cache.admit(tokens, session=session)
    assert place is not None
    cache.record(place.handle, tokens[place.cached :])
    cache.pin(place.handle, session, until)
    cache.release(place.handle)


def flood(cache: BlockCache) -> None:
    """Others use every block that they can get."""
    for start in range(1000, 2000, 100):
        play(cache, ids(range(start, start + 40)))


def test_a_pinned_history_outlasts_other_traffic_until_its_time_is_over() -> None:
    cache = BlockCache(13, BLOCK, 4, min_copy=4)
    leave(cache, ids(range(40)), "a")
    play(cache, ids(range(100, 140)))
    flood(cache)
    assert cache.num_cached(ids(range(60))) == 40
    assert cache.num_cached(ids(range(100, 160))) == 0
    assert (cache.held, cache.pinned) == (3, 3)
    cache.expire(9.9)
    assert cache.pinned == 3
    cache.expire(10.0)
    assert (cache.held, cache.pinned) == (0, 0)
    flood(cache)
    assert cache.num_cached(ids(range(60))) == 0


def test_the_next_turn_goes_on_in_the_very_blocks_and_its_pin_takes_the_place_of_the_last() -> None:
    cache = BlockCache(13, BLOCK, 4, min_copy=4)
    leave(cache, ids(range(40)), "a")
    place = cache.admit(ids(range(60)), session="a")
    assert place is not None
    assert (place.cached, place.copy, cache.pinned) == (40, None, 0)
    cache.record(place.handle, ids(range(40, 60)))
    cache.pin(place.handle, "a", 20.0)
    cache.release(place.handle)
    assert (cache.pinned, cache.held) == (4, 4)


def test_another_session_copies_what_is_pinned_and_cannot_change_it() -> None:
    cache = BlockCache(25, BLOCK, 8, min_copy=4)
    leave(cache, ids(range(40)), "a")
    other = admit(cache, ids(range(60)))
    assert other.cached == 40
    assert other.copy is not None
    cache.record(other.handle, ids(range(40, 60)))
    assert cache.num_cached(ids(range(40), [7])) == 40


def test_the_oldest_pins_go_where_there_are_too_many_and_a_shared_header_counts_once() -> None:
    cache = BlockCache(13, BLOCK, 4, min_copy=4)  # six blocks at most
    header = list(range(32))
    for number in range(5):
        leave(cache, ids(header, [100 + number] * 16), f"s{number}")
    assert cache.pinned == 6
    flood(cache)
    assert [cache.num_cached(ids(header, [100 + number] * 16, [0])) for number in range(5)] == [32, 48, 48, 48, 48]


def test_pins_never_keep_a_sequence_of_full_length_out_and_new_weights_end_them() -> None:
    cache = BlockCache(6, BLOCK, 4, pinned_share=1.0)
    leave(cache, ids(range(40)), "a")
    assert cache.pinned <= 1
    assert cache.admit(ids(range(500, 560))) is not None
    cache = BlockCache(13, BLOCK, 4)
    leave(cache, ids(range(40)), "a")
    cache.forget()
    assert (cache.held, cache.pinned, cache.available) == (0, 0, 12)


def test_where_there_is_no_room_the_pin_stays() -> None:
    cache = BlockCache(9, BLOCK, 4, min_copy=4)
    leave(cache, ids(range(40)), "a")
    running = admit(cache, ids(range(100, 160)))
    assert cache.admit(ids(range(41)), spare=3, session="a") is None
    assert cache.pinned == 3
    cache.release(running.handle)
    place = cache.admit(ids(range(41)), session="a")
    assert place is not None
    assert place.cached == 40


@pytest.mark.slow
@pytest.mark.parametrize("pin_s", [0.0, 60.0])
def test_an_episode_finds_its_history_after_others_have_filled_the_cache(small_engine: Make, pin_s: float) -> None:
    engine = small_engine(max_slots=2, max_queue=60, cache_bytes=4 * block_bytes(TINY), pin_s=pin_s)
    assert engine.num_blocks - 1 == 4
    history = prompts(1, seed=1, low=100, high=101)[0]
    first = Waiter(engine, Generation(history, 5, session_id="a"))
    first.end()
    generate(engine, [Generation(p, 3) for p in prompts(20, seed=2, low=100)])
    again = Waiter(engine, Generation((*history, *first.tokens, 50), 2, session_id="a"))
    assert (again.end().cached > 90) == bool(pin_s)


def test_the_key_of_a_session_comes_in_the_body_or_in_a_header(client: openai.OpenAI, engine: Engine) -> None:
    asked = {"model": "tiny", "prompt": [9] * 20, "max_tokens": 2}
    client.completions.create(**asked, extra_body={"prompt_cache_key": "a"})  # type: ignore[call-overload]
    poll(lambda: engine.stats.blocks_pinned == 1, "the session is pinned")
    client.completions.create(  # type: ignore[call-overload]
        **{**asked, "prompt": [8] * 20}, extra_headers={"X-Session-Id": "b"}
    )
    poll(lambda: engine.stats.blocks_pinned == 2, "the other one too")
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**asked, extra_body={"prompt_cache_key": 7})  # type: ignore[call-overload]
    assert refused.value.param == "prompt_cache_key"
