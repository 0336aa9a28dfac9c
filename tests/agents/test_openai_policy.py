"""The policy behind an endpoint: what it makes of every way in which an endpoint can misbehave."""

import email.utils
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lemur_ray.agents.api_keys import Key
from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import (
    ChatRequest,
    ContextOverflow,
    EndpointRefused,
    Message,
    PolicyUnreachable,
    Sampling,
    Usage,
)
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.host.ports import free_port
from tests.agents.misbehaving import Server, completion, refusal, serving, serving_in_turn

REQUEST = ChatRequest(
    (Message("system", "Walk."), Message("user", "Go.")),
    Sampling(max_tokens=9, temperature=0.5, top_p=0.9, seed=4, stop=("\n",)),
    episode="toy|t0",
    hints={"expert": "right"},
)


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@contextmanager
def policy_at(url: str, time_: Time | None = None, **more: Any) -> Iterator[OpenAIPolicy]:
    time_ = time_ or Time()
    more = {"clock": lambda: time_.now, "sleep": time_.sleep, "patience_s": 60.0, **more}
    policy = OpenAIPolicy(url, "toy", **more)
    try:
        yield policy
    finally:
        policy.close()


def test_a_request_says_everything_but_the_hints_and_the_reply_counts_tokens():
    with serving_in_turn(completion("go north", "length")) as server, policy_at(server.url) as policy:
        reply = policy.reply(REQUEST)
    assert (reply.text, reply.finish_reason, reply.usage) == ("go north", "length", Usage(7, 2, 5))
    asked = server.asked[0]
    assert asked["messages"] == [{"role": "system", "content": "Walk."}, {"role": "user", "content": "Go."}]
    wanted = {"model": "toy", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 4}
    assert {name: asked[name] for name in wanted} == wanted
    assert "stop" not in asked, "a server would apply it to the model's reasoning: the reply is cut here"
    assert "hints" not in str(asked)


@pytest.mark.parametrize(
    "fault",
    [
        refusal(429),
        refusal(500),
        refusal(503),
        refusal(408),
        (200, {"Content-Type": "application/json"}, b"{half a "),
        (200, {"Content-Type": "text/html"}, b"<html>proxy</html>"),
        (200, {"Content-Type": "application/json"}, b"[]"),
        (200, {"Content-Type": "application/json"}, b'{"choices": []}'),
        (
            200,
            {"Content-Type": "application/json"},
            b'{"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}',
        ),
        (200, {"Content-Type": "application/json"}, b"\xff\xfe"),
        (500, {"Content-Type": "text/plain"}, b"\xff\xfe"),
        None,
    ],
)
def test_what_may_pass_is_asked_again(fault: Any):
    time_ = Time()
    with serving_in_turn(fault, fault, completion()) as server, policy_at(server.url, time_) as policy:
        assert policy.reply(REQUEST).text == "right"
    assert len(server.asked) == 3
    assert 0.25 <= time_.slept[0] <= 0.5 <= time_.slept[1] <= 1.0


@pytest.mark.parametrize("fault", [refusal(500), None])
def test_patience_has_an_end_and_the_last_refusal_is_told(fault: Any):
    time_ = Time()
    told = pytest.raises(PolicyUnreachable, match=r"requests in 60 s of patience")
    with serving_in_turn(fault) as server, policy_at(server.url, time_) as policy, told:
        policy.reply(REQUEST)
    assert sum(time_.slept) <= 60
    assert 6 <= len(server.asked) <= 15


def test_retry_after_is_obeyed_to_the_letter():
    date = email.utils.formatdate(1_000_030, usegmt=True)
    faults = (
        refusal(429, Retry_After="7"),
        refusal(503, Retry_After=date),
        refusal(429, retry_after_ms="1500"),
        refusal(429, Retry_After="soon"),
    )
    time_ = Time()
    with (
        serving_in_turn(*faults, completion()) as server,
        policy_at(server.url, time_, wall_clock=lambda: 1e6) as policy,
    ):
        policy.reply(REQUEST)
    assert time_.slept[:3] == [7.0, 30.0, 1.5]
    assert 0 < time_.slept[3] <= 4.0


def test_a_server_that_asks_for_more_than_our_patience_is_given_up_at_once():
    time_ = Time()
    told = pytest.raises(PolicyUnreachable, match="next pause 3600")
    with serving_in_turn(refusal(429, Retry_After="3600")) as server, policy_at(server.url, time_) as policy, told:
        policy.reply(REQUEST)
    assert time_.slept == []


@pytest.mark.parametrize(
    "fault",
    [
        refusal(400, "context_length_exceeded"),
        refusal(400, message="This model's maximum context length is 1024 tokens, you asked for 1100."),
    ],
)
def test_a_conversation_that_is_too_long_is_an_overflow(fault: Any):
    with serving_in_turn(fault) as server, policy_at(server.url) as policy, pytest.raises(ContextOverflow):
        policy.reply(REQUEST)
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_that_will_not_change_is_not_asked_again(status: int):
    told = pytest.raises(PolicyUnreachable, match=f"status {status}: .*bad key")
    with serving_in_turn(refusal(status, message="bad key")) as server, policy_at(server.url) as policy, told:
        policy.reply(REQUEST)
    assert len(server.asked) == 1


def test_an_empty_answer_is_a_reply():
    with serving_in_turn(completion(None)) as server, policy_at(server.url) as policy:
        assert policy.reply(REQUEST).text == ""


def test_silence_is_cut_at_the_time_limit_of_a_request():
    silent = [True]

    def answer(asked: dict[str, Any]) -> Any:
        if silent.pop() if silent else False:
            server.released.wait(30)
        return completion()

    with serving(answer) as server, policy_at(server.url, options=EndpointOptions(timeout_s=2.0)) as policy:
        started = time.monotonic()
        assert policy.reply(REQUEST).text == "right"
    assert time.monotonic() - started < 25
    assert len(server.asked) == 2


def test_a_server_that_dies_and_comes_back_is_waited_for():
    with (
        serving_in_turn(
            completion(), None, port=free_port()
        ) as first,  # lines that are open outlive a server that is closed here
        policy_at(first.url, clock=time.monotonic, sleep=time.sleep, patience_s=30.0) as policy,
    ):
        policy.reply(REQUEST)
        port = first.port
        first.close()
        back: list[Server] = []
        timer = threading.Timer(1.0, lambda: back.append(Server(lambda asked: completion("back"), port=port)))
        timer.start()
        try:
            assert policy.reply(REQUEST).text == "back"
        finally:
            timer.join()
            back[0].close()


def test_an_endpoint_says_what_it_serves_and_one_that_is_not_there_is_unreachable():
    with serving_in_turn(completion()) as server, policy_at(server.url) as policy:
        assert policy.served_models() == {"toy": ""}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"  # nobody listens, nor can while it is ours
        with policy_at(url) as policy, pytest.raises(PolicyUnreachable, match="is the server running"):
            policy.served_models()


def test_many_threads_share_one_policy():
    with serving(lambda asked: completion(asked["messages"][0]["content"])) as server, policy_at(server.url) as policy:
        answers: dict[int, str] = {}

        def ask(number: int) -> None:
            answers[number] = policy.reply(ChatRequest((Message("user", f"n{number}"),))).text

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert answers == {number: f"n{number}" for number in range(40)}


@pytest.mark.parametrize("text", ["", "openai", "openai:localhost:8000", "gpt-4", "random:x", "Expert"])
def test_a_policy_that_is_not_known_lists_the_known_ones(text: str):
    with pytest.raises(ValueError, match=r"openai:URL .*checkpoint.*random.*expert"):
        PolicySpec.parse(text)


def test_specs_name_their_policies():
    assert PolicySpec.parse("openai:http://h:1/v1/", "m").label == "openai:m"
    assert PolicySpec.parse("openai:http://h:1/v1/", "m").target == "http://h:1/v1"
    assert PolicySpec.parse("checkpoint:nano").target == "nano"
    assert PolicySpec.parse("random")().name == "random"
    assert PolicySpec.parse("expert")().name == "expert"
    with pytest.raises(ValueError, match="must be served"):
        PolicySpec.parse("checkpoint")()


def test_a_template_that_refuses_two_turns_of_the_user_in_a_row_is_shown_them_as_one():
    def answer(asked: dict[str, Any]) -> Any:
        roles = [message["role"] for message in asked["messages"]]
        alternating = all(a != b for a, b in itertools.pairwise(roles))
        return completion() if alternating else refusal(400, "roles must alternate")

    silent = (Message("user", "Go."), Message("user", "I don't understand."))
    with serving(answer) as server, policy_at(server.url) as policy:
        assert policy.reply(ChatRequest(silent)).text == "right"
        assert [message["content"] for message in server.asked[-1]["messages"]] == ["Go.\n\nI don't understand."]
        assert len(server.asked) == 2


@pytest.mark.parametrize("page", [b"<!doctype html><title>a web interface</title>", b"A" * 100_000, b"[" * 100_000])
def test_what_never_answers_with_a_completion_is_no_endpoint(page: bytes):
    with serving(lambda asked: (200, {"Content-Type": "text/html"}, page)) as server, policy_at(server.url) as policy:
        with pytest.raises(EndpointRefused, match="ends in /v1"):
            policy.reply(REQUEST)
        assert len(server.asked) == 5


def test_a_key_that_comes_back_in_escapes_is_hidden_too():
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in "sk-secret")
    body = completion("TOLD")[2].replace(b"TOLD", escaped.encode())
    options = EndpointOptions(key=Key("sk-secret"))
    with serving_in_turn((200, {}, body)) as server, policy_at(server.url, options=options, patience_s=None) as policy:
        assert "sk-secret" not in policy.reply(REQUEST).text
