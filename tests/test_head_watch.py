"""What a driver says of a head that is gone, and when."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable

import pytest

from lemur_ray.cluster.head_watch import SILENCE_LIMIT_S, HeadWatch

RAYS_OWN_S = 60.0
"""After so long without a head Ray ends the process, without a word."""


def said_by(knows_us: Callable[[], bool], silence_limit_s: float) -> str:
    """What a watch says before it ends the process."""
    said, came = list[str](), threading.Event()

    def leave(why: str) -> None:
        said.append(why)
        came.set()

    watch = HeadWatch("10.0.0.1:6379", knows_us, silence_limit_s=silence_limit_s, interval_s=0.001, on_loss=leave)
    assert came.wait(60)
    watch.stop()
    assert len(said) == 1
    return said[0]


def answers(*known: bool | None) -> Callable[[], bool]:
    """Of a head, one after another, the last for ever; None: no answer."""
    left = itertools.chain(known, itertools.repeat(known[-1]))

    def ask() -> bool:
        if (now := next(left)) is None:
            raise TimeoutError
        return now

    return ask


def test_a_driver_whose_head_is_silent_says_what_to_do() -> None:
    assert SILENCE_LIMIT_S < RAYS_OWN_S
    said = said_by(answers(True, None), silence_limit_s=0.02)
    assert re.match(
        r"the head at 10\.0\.0\.1:6379 has not answered for \d+ s\. This job ends; run the same command again", said
    )
    assert "\n" not in said


def test_a_driver_whose_head_was_started_anew_says_so_at_once() -> None:
    said = said_by(answers(True, False), silence_limit_s=60)
    assert "10.0.0.1:6379 does not know this host any more: it was started anew, or had lost it. This job ends" in said


@pytest.mark.parametrize("last", [None, True])
def test_a_head_that_is_silent_for_a_moment_ends_nothing(last: bool | None) -> None:
    """Nor does one that goes after the job has ended."""
    said, asked = list[str](), threading.Semaphore(0)
    ask = answers(True, None, None, True, last)

    def counted() -> bool:
        asked.release()
        return ask()

    watch = HeadWatch("head:1", counted, silence_limit_s=60, interval_s=0.001, on_loss=said.append)
    for _ in range(8):
        assert asked.acquire(timeout=60)
    watch.stop()
    assert said == []
