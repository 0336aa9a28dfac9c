"""Requests at once at an endpoint: fewer while it refuses, more again as it answers, nobody worse off for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import ChatRequest, Message, PolicyUnreachable, Sampling
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.throttle import EndpointSilent, Pressure, Throttle
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool
from tests.agents.misbehaving import Answer, completion, refusal, serving
from tests.rollout.toy import toy_task


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def sent(throttle: Throttle, number: int, clock: Time) -> list[float]:
    """That many requests on their way; when each was sent."""
    times = []
    for _ in range(number):
        throttle.enter(1.0, again=False)
        times.append(clock())
    return times


def test_without_a_refusal_there_is_no_limit():
    clock = Time()
    throttle = Throttle(clock)
    for at in sent(throttle, 500, clock):
        throttle.leave("answered", at)
    assert throttle.pressure() == Pressure()


def test_a_burst_of_refusals_is_one_cut_and_answers_take_the_limit_up_again():
    clock = Time()
    throttle = Throttle(clock)
    for at in sent(throttle, 10, clock):
        throttle.leave("answered", at)
    burst = sent(throttle, 100, clock)
    for at in burst:
        throttle.leave("refused", at)
    assert throttle.pressure() == Pressure(limit=70, refused=100)
    (late,) = sent(throttle, 1, clock)
    throttle.leave("refused", late)
    assert throttle.pressure().limit == 1
    grown = []
    while throttle.pressure().limit:
        (at,) = sent(throttle, 1, clock)
        throttle.leave("answered", at)
        grown.append(throttle.pressure().limit)
        assert len(grown) < 5000
    assert grown[:60] == list(range(2, 62)), "below what the endpoint bore before, every answer lets one more in"
    assert grown[-2] == 99, "what it bears again is no limit any more"


def test_never_more_at_once_than_the_limit_and_who_was_refused_goes_first():
    throttle = Throttle()
    throttle.enter(60.0, again=False)
    throttle.leave("refused", time.monotonic())
    throttle.enter(60.0, again=False)  # the limit is one
    order: list[str] = []

    def wait(name: str, again: bool) -> None:
        throttle.enter(60.0, again=again)
        order.append(name)

    waiting = []
    for number, (name, again) in enumerate([("a", False), ("b", False), ("refused", True)], 1):
        waiting.append(threading.Thread(target=wait, args=(name, again), daemon=True))
        waiting[-1].start()
        poll(lambda number=number: throttle.pressure().waiting == number)
    for number in range(1, 4):
        throttle.leave("failed", time.monotonic())  # a failure is no refusal, and no answer either
        poll(lambda number=number: len(order) == number)
        assert throttle.pressure().limit == 1
    assert order == ["refused", "a", "b"]


def test_waiting_ends_where_the_endpoint_answers_nobody():
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    throttle.enter(10.0, again=False)
    throttle.leave("refused", 0.0)
    throttle.enter(10.0, again=False)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            throttle.enter(10.0, again=False)
        except EndpointSilent as error:
            ended.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    poll(lambda: throttle.pressure().waiting == 1)
    now[0] = 11.0
    thread.join(60)
    assert "no request was answered for 11 s" in str(ended[0])
    assert throttle.pressure().waiting == 0


def poll(what: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Narrow:
    """An endpoint that bears ``most`` requests at once and refuses the others, with 429 and 503 in turn."""

    def __init__(self, most: int, latency_s: float) -> None:
        self.most, self.latency_s = most, latency_s
        self.there = self.busiest = self.refused = self.answered = 0
        self.closed = False
        self.lock = threading.Lock()

    def __call__(self, asked: dict[str, Any]) -> Answer:
        with self.lock:
            self.there += 1
            self.busiest = max(self.busiest, self.there)
            too_many = self.closed or self.there > self.most
            self.refused += too_many
        if not too_many:
            time.sleep(self.latency_s)
        with self.lock:
            self.there -= 1
            self.answered += not too_many
            number = self.refused
        return completion("right") if not too_many else refusal((429, 503)[number % 2], Retry_After="0.1")


@contextmanager
def asking(model: Any, threads: int, turns: int, patience_s: float = 60.0) -> Any:
    """``threads`` threads that ask ``turns`` times each; yields policy, threads and what went wrong."""
    with serving(model) as server:
        policy = OpenAIPolicy(server.url, "toy", options=EndpointOptions(timeout_s=10.0), patience_s=patience_s)
        wrong: list[BaseException] = []

        def ask(number: int) -> None:
            try:
                for turn in range(turns):
                    policy.reply(ChatRequest((Message("user", "Go."),), Sampling(seed=number * 100 + turn)))
            except PolicyUnreachable as error:
                wrong.append(error)

        workers = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(threads)]
        for worker in workers:
            worker.start()
        yield policy, workers, wrong
        for worker in workers:
            worker.join(60)
        policy.close()


def test_a_narrow_endpoint_is_soon_asked_no_more_at_once_than_it_bears_and_everybody_is_answered():
    model = Narrow(most=4, latency_s=0.02)
    with asking(model, threads=40, turns=10) as (policy, workers, wrong):
        for worker in workers:
            worker.join(60)
        assert not wrong
        assert model.answered == 400
        assert policy.pressure().refused == model.refused
        # Asked as often as it refuses, without any limit, there would be thousands.
        assert model.refused < 200


def test_an_endpoint_that_refuses_everybody_for_a_while_is_asked_by_one_and_then_by_many_again():
    model = Narrow(most=1000, latency_s=0.02)
    with asking(model, threads=40, turns=30) as (policy, workers, wrong):
        poll(lambda: model.answered >= 200)
        model.closed = True
        poll(lambda: policy.pressure().limit == 1)
        model.closed = False
        for worker in workers:
            worker.join(60)
        assert not wrong
        assert model.answered == 1200
        assert policy.pressure().limit == 0 or policy.pressure().limit > 10


def test_no_episode_is_worse_off_and_the_progress_line_says_what_happens(tmp_path: Path):
    model = Narrow(most=3, latency_s=0.01)
    lines: list[str] = []

    class Told(Progress):
        def show(self, in_flight: int, waiting: int, pressure: Pressure | None = None) -> None:
            lines.append(self.line(in_flight, waiting, pressure))

    with serving(model) as server, Ledger(tmp_path / "episodes.jsonl") as ledger, open(tmp_path / "err", "w") as err:
        policy = OpenAIPolicy(server.url, "toy", options=EndpointOptions(timeout_s=10.0), patience_s=60.0)
        plan = EpisodePlan(
            [toy_task(f"t{i}", length=5) for i in range(30)],
            epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits(),
        )  # fmt: skip
        episodes = run_episodes(
            plan, ThreadPool(policy, 30), ledger,
            retries=RetryPolicy(), progress=Told(err, time.monotonic), clock=time.monotonic,
        )  # fmt: skip
        policy.close()
    assert [(e.outcome, e.score, e.attempts) for e in episodes] == [(Outcome.SOLVED, 1.0, 1)] * 30
    assert model.refused > 0
    assert any("endpoint refuses: " in line and "requests at once" in line for line in lines)
    assert f"{model.refused} refused" in lines[-1]


@pytest.mark.parametrize("drips", ["body", "endless"])
def test_an_endpoint_that_streams_for_ever_is_cut_off(drips: str):
    """Bytes keep coming, slowly or as fast as they can, so that no read ever times out."""
    import socket

    closed = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while not closed.is_set():
            try:
                line, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(line,), daemon=True).start()

    def drip(line: socket.socket) -> None:
        with line:
            line.recv(65536)
            line.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            piece = b" " * (1 if drips == "body" else 2**20)
            try:
                while not closed.is_set():
                    line.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                    if drips == "body":
                        closed.wait(0.02)
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    slept: list[float] = []
    if drips == "body":
        policy = OpenAIPolicy(url, "toy", options=EndpointOptions(timeout_s=0.5), patience_s=2.0)
    else:  # only pauses pass: however slow the machine is, an answer is too long before its time is over
        clock = {"clock": lambda: sum(slept), "sleep": slept.append}
        policy = OpenAIPolicy(url, "toy", options=EndpointOptions(timeout_s=60.0), patience_s=20.0, **clock)
    started = time.monotonic()
    told = "its time was over" if drips == "body" else "an answer without an end"
    try:
        with pytest.raises(PolicyUnreachable, match=told):
            policy.reply(ChatRequest((Message("user", "Go."),)))
    finally:
        closed.set()
        listener.close()
        policy.close()
    assert time.monotonic() - started < 50
