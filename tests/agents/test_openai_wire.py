"""Bodies and answers of the protocol: what the official client makes of the same, and what strange servers send."""

from __future__ import annotations

import json
import time
from typing import Any

import openai
import pytest

from lemur_ray.agents.endpoint import EndpointOptions, parse_json_object
from lemur_ray.agents.messages import ChatRequest, Message, Sampling
from lemur_ray.agents.openai_wire import Refusal, as_one_text, parse_refusal, parse_reply, request_body, split_thoughts
from tests.agents.misbehaving import completion, serving_in_turn

TALK = (Message("system", "Walk."), Message("user", "Go."), Message("assistant", "north"), Message("user", "A wall."))
REQUEST = ChatRequest(TALK, Sampling(9, 0.5, 0.9, 0, 4, ("\n", "Task:")), "e1", thoughts={2: "Where am I?"})


def body(options: EndpointOptions | None = None, form: Any = None, request: ChatRequest = REQUEST) -> dict[str, Any]:
    return request_body("toy", request, options or EndpointOptions(), "max_tokens", form)


def test_the_official_client_sends_the_same_body() -> None:
    with (
        serving_in_turn(completion()) as server,
        openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
    ):
        client.chat.completions.create(
            model="toy", messages=[m.to_json() for m in TALK], max_tokens=9, temperature=0.5,  # type: ignore[misc]
            top_p=0.9, seed=4, user="e1",
        )  # fmt: skip
    assert server.asked[0] == body()


def test_further_fields_join_and_null_takes_one_out() -> None:
    found = body(EndpointOptions(body='{"top_k": 20, "chat_template_kwargs": {"thinking": true}, "seed": null}'))
    assert (found["top_k"], found["chat_template_kwargs"]) == (20, {"thinking": True})
    assert "seed" not in found
    for wrong in ("[1]", "{", "7", "[" * 100_000):
        with pytest.raises(ValueError, match="expected a JSON object"):
            parse_json_object(wrong, "--policy-body")


def test_thoughts_are_sent_back_only_in_the_form_that_is_asked_for() -> None:
    assert "Where am I?" not in json.dumps(body())
    assert body(form="reasoning_content")["messages"][2] == {
        "role": "assistant", "content": "north", "reasoning_content": "Where am I?",
    }  # fmt: skip
    assert body(form="tags")["messages"][2]["content"] == "<think>Where am I?</think>\n\nnorth"


def test_a_base_model_is_shown_one_text_and_stops_before_the_other_side() -> None:
    assert as_one_text(REQUEST) == "Walk.\n\nHuman: Go.\n\nAssistant: north\n\nHuman: A wall.\n\nAssistant:"
    many = ChatRequest(TALK, Sampling(stop=("a", "b", "c", "d")))
    found = body(EndpointOptions(api="completions"), request=many)
    assert "messages" not in found
    assert found["stop"] == ["\nHuman:", "a", "b", "c"], "endpoints take four; the others are cut here"


@pytest.mark.parametrize(
    ("message", "thoughts", "text"),
    [
        ({"content": "go"}, "", "go"),
        ({"content": "go", "reasoning_content": "hm"}, "hm", "go"),
        ({"content": "go", "reasoning": "hm"}, "hm", "go"),
        ({"content": "go", "reasoning": {"summary": 1}}, "", "go"),
        ({"content": None, "reasoning_content": "hm"}, "hm", ""),
        ({"content": "<think>\nopen <execute>1</execute>\n</think>\n\ngo"}, "open <execute>1</execute>", "go"),
        ({"content": "open <execute>1</execute></think>go"}, "open <execute>1</execute>", "go"),
        ({"content": "<think>for ever <execute>1</execute>"}, "for ever <execute>1</execute>", ""),
        ({"content": "a<think>x</think>b<think>y</think>c"}, "x\n\ny", "abc"),
        ({"content": "say <think> and go"}, "", "say <think> and go"),
        ({"content": "<think></think>go"}, "", "go"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                      {"type": "text", "text": "go"}]}, "hm", "go"),
        ({"content": None, "refusal": "I will not."}, "", "I will not."),
    ],
)  # fmt: skip
def test_thoughts_come_apart_from_the_text_in_whatever_form(message: Any, thoughts: str, text: str) -> None:
    reply, _ = parse_reply({"choices": [{"message": message}]})
    assert (reply.reasoning, reply.text) == (thoughts, text)


@pytest.mark.parametrize("piece", ["<think>", "</think>", "<think></think>", "</think><think>", "<", "<think>x"])
def test_thoughts_are_split_in_linear_time(piece: str) -> None:
    text = piece * (2_000_000 // len(piece))
    started = time.process_time()
    split_thoughts(text)
    assert time.process_time() - started < 2.0


def test_a_stop_string_ends_the_text_where_the_endpoint_went_on() -> None:
    reply, _ = parse_reply(
        {"choices": [{"message": {"content": "one\nObservation: two\nTask: three"}}]}, ("\nTask:", "\nObs")
    )
    assert reply.text == "one"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "no", "code": "context_length_exceeded"}),
        (400, {"message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"}),
        (400, {"message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."}),
        (400, {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"}),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"),
        (400, {"message": "prompt is too long: 210000 tokens > 200000 maximum"}),
        (400, {"message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"}),
        (500, {"message": "input is too long for the model's context window"}),
    ],
)
def test_servers_say_in_many_ways_that_a_conversation_is_too_long(status: int, error: Any) -> None:
    assert parse_refusal(status, json.dumps({"error": error}).encode()).is_overflow


@pytest.mark.parametrize(
    "said", [b"", b"\xff\xfe", b"[]", b"[" * 60_000, b"7", b'{"error": 7}', b'{"error": {"code": 7}}']
)
def test_a_refusal_may_say_anything(said: bytes) -> None:
    found = parse_refusal(400, said)
    assert isinstance(found, Refusal)
    assert not any((found.is_overflow, found.is_spent, found.unknown_field, found.wants_completion_tokens))
    assert len(found.message) <= 2000
