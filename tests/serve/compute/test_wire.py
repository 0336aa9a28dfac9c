"""Lines between the processes of an engine: what arrives is what was sent, and only from who knows the secret."""

from collections.abc import Iterator
from multiprocessing import AuthenticationError
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.serve.compute.forward import empty_step
from lemur_ray.serve.compute.lockstep import Group
from lemur_ray.serve.compute.sampling import Draw, Edits, allow_all, empty_draw, empty_edits
from lemur_ray.serve.compute.wire import FollowerListener, Line, called, connect, decode, encode
from lemur_ray.serve.engine.errors import EngineClosed
from tests.serve.tiny import poll


def same(found: Any, expected: Any) -> None:
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.asarray(mine).dtype == np.asarray(theirs).dtype
        np.testing.assert_array_equal(mine, theirs)


def test_a_call_arrives_as_it_was_made() -> None:
    logits, kept = jnp.ones((2, 3)), [jnp.zeros(2), jnp.ones((2, 3))]
    kept.append(logits)
    tokens, place = empty_step(4, 32, 3)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 99, tokens.shape, np.int32)
    draw = empty_draw(8)._replace(seed=rng.integers(0, 2**32, (8, 2), np.uint32))
    given = (7, "greedy", tokens, place._replace(num_rows=np.int32(3)), draw, empty_edits(allow_all(8, 9 * 32)), logits)
    message = encode("run", given, kept)
    name, found = decode(message, kept, {form.__name__: form for form in (type(place), Draw, Edits)})
    assert (name, called(message), found[0], found[1]) == ("run", "run", 7, "greedy")
    same(found, given)
    assert found[6] is logits
    assert [type(value) for value in found[3:6]] == [type(place), Draw, Edits]


def test_what_was_not_agreed_on_is_refused() -> None:
    with pytest.raises(KeyError):
        decode(encode("run", (empty_draw(2),), []), [])
    kept = [jnp.ones(2)]
    with pytest.raises(ValueError, match="no call of this step"):
        encode("run", (jnp.ones(2),), kept)
    message = encode("run", (kept[0],), kept)
    with pytest.raises(IndexError):
        decode(message, [])
    header = b'["run", [{"array": ["|O", [1]]}]]'
    with pytest.raises(ValueError, match="OBJECT"):
        decode(len(header).to_bytes(4, "big") + header + bytes(8), [])


@pytest.fixture
def ends() -> Iterator[tuple[list[Line], list[Line]]]:
    """The ends of a leader and of its two followers."""
    exchange, followers, leader = FollowerListener("127.0.0.1", b"ours"), [], []
    for _ in range(2):
        followers.append(connect(exchange.address, b"ours"))
        leader.append(exchange.next(10))
    exchange.close()
    yield leader, followers
    for line in (*leader, *followers):
        line.close()


def test_nobody_without_the_secret_gets_a_line_and_nobody_at_all_later() -> None:
    exchange = FollowerListener("127.0.0.1", b"ours")
    with pytest.raises(AuthenticationError):
        connect(exchange.address, b"theirs")
    line = connect(exchange.address, b"ours")
    line.send(b"heard")
    other = exchange.next(10)
    assert other.receive() == b"heard"
    exchange.close()
    with pytest.raises(OSError, match=r"refused|reset"):
        connect(exchange.address, b"ours")
    other.send(b"still there")
    assert line.receive() == b"still there"
    line.close()
    other.close()


def test_a_follower_that_cannot_load_leaves_no_answer_of_another_behind(ends: tuple[list[Line], list[Line]]) -> None:
    leader, followers = ends
    group = Group(leader, "old")
    for version, failure, message in (
        ("a", "no file", "follower 1: no file"),
        ("b", None, None),
        ("c", "torn", "follower 1: torn"),
    ):
        first = encode("failed", (failure,), []) if failure else encode("staged", (version,), [])
        followers[0].send(first)
        followers[1].send(encode("staged", (version,), []))
        if message:
            with pytest.raises(ValueError, match=message):
                group.stage("spec", version, lambda: None)
        else:
            assert group.stage("spec", version, lambda: "own") == "own"
    names = [called(followers[1].receive()) for _ in range(5)]
    assert names == ["stage", "drop", "stage", "stage", "drop"]
    group.close()


def test_a_lost_follower_is_told_of_once_and_ends_every_wait(ends: tuple[list[Line], list[Line]]) -> None:
    leader, followers = ends
    group, heard = Group(leader, "old"), list[EngineClosed]()
    group.on_loss = heard.append
    followers[0].close()
    poll(lambda: heard, "the loss is told of")
    with pytest.raises(EngineClosed, match="follower 1 of 2 is lost"):
        group.wait_until_warm("columns")
    with pytest.raises(EngineClosed, match="follower 1 of 2 is lost"):
        group.send("copy", 1, 2)
    followers[1].close()
    assert len(heard) == 1
