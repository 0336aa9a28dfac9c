"""Texts to go on with, replies that are begun, choices that are weighed: what is asked, what the answers mean."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from lemur_ray.agents.choice_scores import parse_choice_scores
from lemur_ray.agents.messages import ChatReply, ChatRequest, EndpointRefused, Message, Sampling
from lemur_ray.agents.openai_policy import OpenAIPolicy
from tests.agents.misbehaving import Answer, completion, serving


def replied(url: str, request: ChatRequest) -> ChatReply:
    with contextlib.closing(OpenAIPolicy(url, "toy", patience_s=60.0)) as policy:
        return policy.reply(request)


CHOICES = (" A", " B", " long one")
VALUES = {" A": -1.5, " B": -0.25, " long one": -3.0}


def echoing(asked: dict[str, Any]) -> Answer:
    """An endpoint whose tokens are characters, with one before the prompt and one behind it."""
    given = []
    for index, prompt in reversed(list(enumerate(asked["prompt"]))):
        choice = next(choice for choice in CHOICES if prompt.endswith(choice))
        tokens = ["<s>", *prompt, "!"]
        each = [None, *[-9.0] * (len(prompt) - len(choice)), *[VALUES[choice] / len(choice)] * len(choice), -7.0]
        logprobs = {"tokens": tokens, "token_logprobs": each}
        given.append({"index": index, "text": f"{prompt}!", "logprobs": logprobs, "finish_reason": "length"})
    body = {"choices": given, "usage": {"prompt_tokens": 40, "completion_tokens": 3}}
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


def text_completion(text: str) -> Answer:
    body = {"choices": [{"index": 0, "text": text, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


def test_choices_are_weighed_in_one_request_and_the_likeliest_is_the_reply() -> None:
    request = ChatRequest((Message("user", "Q?\nAnswer:"),), raw=True, choices=CHOICES)
    with serving(echoing) as server:
        reply = replied(server.url, request)
        (asked,) = server.asked
    assert reply.text == " B"
    assert reply.choices == pytest.approx([VALUES[choice] for choice in CHOICES])
    assert reply.usage.prompt_tokens == 40
    assert asked["prompt"] == [f"Q?\nAnswer:{choice}" for choice in CHOICES]
    assert (asked["echo"], asked["logprobs"], asked["max_tokens"]) == (True, 1, 1)
    assert server.paths[-1].endswith("/completions")


def test_a_text_is_gone_on_with_as_it_is_and_its_reply_keeps_its_blanks() -> None:
    request = ChatRequest((Message("user", "def f():\n"),), Sampling(stop=("\ndef",)), raw=True)
    with serving(lambda asked: text_completion("    return 1\n\ndef g(): pass")) as server:
        reply = replied(server.url, request)
        (asked,) = server.asked
    assert reply.text == "    return 1\n"
    assert asked["prompt"] == "def f():\n"
    assert "messages" not in asked
    assert server.paths[-1].endswith("/v1/completions")


def test_a_reply_may_be_begun() -> None:
    with serving(lambda asked: completion(" 4")) as server:
        reply = replied(server.url, ChatRequest((Message("user", "2+2?"),), prefill="It is"))
        (asked,) = server.asked
    assert reply.text == " 4"
    assert asked["messages"][-1] == {"role": "assistant", "content": "It is"}
    assert asked["continue_final_message"] is True
    assert asked["add_generation_prompt"] is False


def test_a_conversation_weighs_nothing() -> None:
    with serving(echoing) as server, pytest.raises(EndpointRefused, match="weighs no choices"):
        replied(server.url, ChatRequest((Message("user", "?"),), choices=CHOICES))


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": []},
        {"choices": [{"index": 0, "logprobs": None}]},
        {"choices": [{"index": 0, "logprobs": {"tokens": ["A", "!"], "token_logprobs": [-1.0, -1.0]}}]},
        {"choices": [{"index": 0, "logprobs": {"tokens": [" A", "!"], "token_logprobs": [None, -1.0]}}]},
    ],
)
def test_an_answer_without_these_numbers_is_no_answer(answer: Any) -> None:
    with pytest.raises(ValueError, match=r"log-probabilities|completions|echo ends|log-probability"):
        parse_choice_scores(answer, (" A",))


def test_an_endpoint_that_gives_no_numbers_ends_the_run() -> None:
    request = ChatRequest((Message("user", "?"),), raw=True, choices=(" A",))
    with (
        serving(lambda asked: text_completion("A")) as server,
        pytest.raises(EndpointRefused, match="echo and logprobs"),
    ):
        replied(server.url, request)
