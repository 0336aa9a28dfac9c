"""How long a policy waits for an endpoint: pauses, turns, slow replies, and when nobody is answered."""

from __future__ import annotations

import email.utils
import math
import threading
import time
from typing import Any

import pytest

from lemur_ray.agents.endpoint_retries import EndpointRetryPolicy, RetryableError, requested_pause_s
from lemur_ray.agents.external_calls import CallMeter, excluded_wait, use_meter
from lemur_ray.agents.messages import ChatReply, EndpointRefused, PolicyUnreachable
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.throttle import Pressure, Silence, Verdict
from lemur_ray.rollout.calls.deadline import CompanionThread, DeadlineExceeded
from tests.agents.misbehaving import GO, Answer, ask, completion, refusal, serving, serving_in_turn


def test_an_endpoint_that_is_gone_for_good_ends_the_run_after_one_patience() -> None:
    with serving_in_turn(completion(), None) as server:
        policy = OpenAIPolicy(server.url, "toy", patience_s=2.0)
        policy.reply(GO)
    started = time.monotonic()
    with pytest.raises(EndpointRefused, match=r"answered nobody for .*run the same command again once it answers"):
        policy.reply(GO)
    assert time.monotonic() - started < 50
    policy.close()


def test_a_pause_that_is_asked_for_costs_no_patience_while_others_are_answered() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    answers = [refusal(429, Retry_After="40"), completion(), refusal(429, Retry_After="40"), completion()]
    with serving_in_turn(*(answers * 3)) as server:
        policy = OpenAIPolicy(server.url, "toy", patience_s=60.0, clock=lambda: now[0], sleep=sleep)
        replies = [policy.reply(GO) for _ in range(3)]
        policy.close()
    assert slept == [40.0] * 3
    assert [reply.waited_s for reply in replies] == [40.0] * 3, (
        "what was waited is known, so no limit of time counts it"
    )


NOW = 1_800_000_000.0
PAST, LATER = (email.utils.formatdate(NOW + seconds, usegmt=True) for seconds in (-300, 30))


@pytest.mark.parametrize(
    ("asked", "pause_s"),
    [
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": LATER}, 30.0),
        ({"retry-after-ms": "30000", "retry-after": "9"}, 30.0),
        ({"retry-after-ms": "soon", "retry-after": "30"}, 30.0),
        *[({"retry-after": text}, None) for text in ("0", "-5", "soon", "", "9" * 400, "²", "nan", PAST)],
        ({"retry-after-ms": "-1"}, None),
        ({}, None),
    ],
)
def test_a_pause_is_what_the_headers_say_unless_that_is_none(asked: dict[str, str], pause_s: float | None) -> None:
    assert requested_pause_s(asked, NOW) == pause_s


def test_an_endpoint_that_asks_for_no_pause_at_all_is_not_flooded() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with serving_in_turn(refusal(429, Retry_After="0")) as server:
        policy = OpenAIPolicy(server.url, "toy", patience_s=60.0, clock=lambda: now[0], sleep=sleep)
        with pytest.raises(PolicyUnreachable):
            policy.reply(GO)
        policy.close()
        assert 3 < len(server.asked) < 20


class Others:
    """Places at an endpoint that answers others until a moment, of which this many may be under way."""

    def __init__(self, until_s: float, under_way: int = 0, ever: bool = True) -> None:
        self.now, self.slept, self.waits = 0.0, list[float](), list[float]()
        self._until_s, self._under_way, self._ever = until_s, under_way, ever

    def enter(self, patience_s: float, *, again: bool) -> float:
        waited_s = self.waits.pop(0) if self.waits else 0.0
        self.now += waited_s
        return waited_s

    def leave(self, verdict: Verdict, entered_at: float) -> None: ...

    def silence(self) -> Silence:
        return Silence(max(0.0, self.now - self._until_s), self._ever, self._under_way)

    def pressure(self) -> Pressure:
        return Pressure()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def asking(self, *answers: ChatReply | RetryableError) -> ChatReply:
        said = iter(answers)

        def send(left_s: float) -> ChatReply:
            assert left_s > 0
            answer = next(said)
            if isinstance(answer, RetryableError):
                raise answer
            return answer

        return EndpointRetryPolicy("here", 60.0, lambda: self.now, self.sleep, places=self).ask(send, 0)


BUSY = RetryableError("too many", 600.0, refused=True)


def test_a_pause_that_is_longer_than_the_patience_is_waited_for_while_others_are_served() -> None:
    others = Others(until_s=math.inf)
    assert others.asking(BUSY, BUSY, ChatReply("at last")).text == "at last"
    assert others.now == pytest.approx(1200.0)
    waiting_for_the_first = Others(until_s=590.0, under_way=7, ever=False)
    assert waiting_for_the_first.asking(BUSY, ChatReply("at last")).text == "at last"


def test_such_a_pause_ends_the_run_once_nobody_is_served_for_as_long_as_the_patience() -> None:
    others = Others(until_s=100.0)
    with pytest.raises(
        EndpointRefused, match=r"next pause 600\.0 s: longer than --patience-s 60, and nobody is served"
    ):
        others.asking(BUSY)
    assert 160 <= others.now <= 161
    nobody = Others(until_s=0.0, ever=False)
    with pytest.raises(EndpointRefused, match="nobody is served"):
        nobody.asking(BUSY)
    assert nobody.slept == []


def test_no_wait_for_a_turn_counts_against_the_deadline_of_a_call() -> None:
    others = Others(until_s=math.inf)
    others.waits = [9000.0, 9000.0, 9000.0]
    meter = CallMeter(lambda: others.now)
    with use_meter(meter):
        others.asking(BUSY, RetryableError("too many", 30.0, refused=True), ChatReply("at last"))
        assert meter.seconds == others.now == 3 * 9000 + 600 + 30
        others.asking(RetryableError("broken"), ChatReply("at last"))
    assert meter.counts == {}, "nobody was asked"
    assert 0 < others.now - meter.seconds < 1, "a pause of our own does"
    call, over = CompanionThread("toy"), threading.Event()
    assert call(lambda: waited(1.5), 1.0, "a wait") == "at last"
    with pytest.raises(DeadlineExceeded):
        call(lambda: over.wait(60), 0.2, "a call")
    over.set()


def waited(seconds: float) -> str:
    with excluded_wait():
        time.sleep(seconds)
    return "at last"


def slow(seconds: float, patience_s: float) -> Any:
    def answer(asked: dict[str, Any]) -> Answer:
        server.released.wait(seconds)
        return completion("at last")

    with serving(answer) as server:
        reply = ask(server, patience_s=patience_s)
    return reply, len(server.asked)


def test_a_reply_may_take_as_long_as_the_patience_says_and_is_asked_for_once() -> None:
    reply, requests = slow(1.5, 6.0)
    assert (reply.text, requests) == ("at last", 1)


@pytest.mark.sweep
def test_a_model_that_thinks_for_three_minutes_is_waited_for() -> None:
    reply, requests = slow(170.0, 240.0)
    assert (reply.text, requests) == ("at last", 1)
