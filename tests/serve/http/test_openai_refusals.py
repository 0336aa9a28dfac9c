"""What the server refuses, and with which words: OpenAI's error body, whatever is wrong."""

import functools
import json
from typing import Any

import httpx
import openai
import pytest

from lemur_ray.serve.engine.engine import Engine
from tests.serve.protocol import ASK, CHAT, error


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"n": True}, "n"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"seed": "x"}, "seed"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stop": [str(i) for i in range(17)]}, "stop"),
        ({"stop": "x" * 1025}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [*ASK, {"role": "robot", "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"model": None}, "model"),
        ({"model": 3}, "model"),
    ],
)
def test_wrong_values_are_a_400_that_names_the_parameter(
    http: httpx.Client, change: dict[str, Any], param: str
) -> None:
    answer = http.post("/v1/chat/completions", content=json.dumps({**CHAT, **change}))
    assert answer.status_code == 400
    assert error(answer)["param"] == param
    assert error(answer)["type"] == "invalid_request_error"


@pytest.mark.parametrize("temperature", [0, 0.5])
@pytest.mark.parametrize(
    "change",
    [{"top_k": 2**31}, {"top_k": 10**12}, {"seed": 10**40}, {"seed": -(10**40)}, {"top_p": 1e-300}, {"top_k": -1}],
)
def test_numbers_of_any_size_are_answered_and_the_engine_lives(
    http: httpx.Client, change: dict[str, Any], temperature: float
) -> None:
    answer = http.post("/v1/chat/completions", json={**CHAT, **change, "temperature": temperature})
    assert answer.status_code == 200, answer.text
    assert http.get("/ready").status_code == 200


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n", "top_k", "temperature", "top_p"])
@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_numbers_beyond_every_machine_word_never_break_the_server(http: httpx.Client, name: str, value: int) -> None:
    answer = http.post("/v1/chat/completions", json={**CHAT, name: value})
    assert answer.status_code == (200 if (name, value > 0) == ("top_k", True) else 400), answer.text
    assert http.get("/ready").status_code == 200


@pytest.mark.parametrize(
    "prompt", [None, [], 5, [1, "a"], [[1], []], [[1], "a"], {"a": 1}, [1.5], [True], [-1], [10**9], [[10**12]]]
)
def test_wrong_prompts_are_a_400(http: httpx.Client, prompt: object) -> None:
    answer = http.post("/v1/completions", json={"model": "tiny", "prompt": prompt})
    assert answer.status_code == 400
    assert error(answer)["param"] == "prompt"


@pytest.mark.parametrize(
    "name_and_value",
    [
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("modalities", ["audio"]),
        ("reasoning_effort", "high"),
        ("prediction", {"type": "content", "content": "x"}),
    ],
)
def test_known_parameters_that_are_not_offered_are_refused_not_ignored(
    http: httpx.Client, name_and_value: tuple[str, object]
) -> None:
    name, value = name_and_value
    answer = http.post("/v1/chat/completions", json={**CHAT, name: value})
    assert answer.status_code == 400
    assert (error(answer)["code"], error(answer)["param"]) == ("unsupported_parameter", name)


def test_parameters_at_the_value_that_asks_for_nothing_are_accepted(http: httpx.Client) -> None:
    harmless = {
        "tools": [],
        "logprobs": False,
        "presence_penalty": 0.0,
        "response_format": {"type": "text"},
        "user": "x",
    }
    nulls = dict.fromkeys(("n", "stop", "seed", "top_p", "stream", "max_tokens", "logit_bias"))
    body = {**CHAT, **harmless, **nulls, "max_completion_tokens": 2}
    assert http.post("/v1/chat/completions", json=body).status_code == 200


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_surrogate_pair_is_a_400_because_it_is_no_text(http: httpx.Client, text: str) -> None:
    for content in (text, [{"type": "text", "text": text}]):
        answer = http.post("/v1/chat/completions", content=json.dumps({**CHAT, "messages": [*ASK, user(content)]}))
        assert (answer.status_code, error(answer)["param"]) == (400, "messages[1].content")
    for prompt in (text, ["fine", text]):
        answer = http.post("/v1/completions", content=json.dumps({"model": "tiny", "prompt": prompt}))
        assert (answer.status_code, error(answer)["param"]) == (400, "prompt")


@pytest.mark.parametrize("body", [b"{", b"", b"\xff\xfe", b"nope", b"[" * 100_000])
def test_a_body_that_is_not_json_is_a_400(http: httpx.Client, body: bytes) -> None:
    answer = http.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert error(answer)["code"] == "invalid_json"


@pytest.mark.parametrize("body", ["[]", "3", '"x"', "null"])
def test_a_body_that_is_no_object_is_a_400(http: httpx.Client, body: str) -> None:
    answer = http.post("/v1/completions", content=body)
    assert answer.status_code == 400
    assert "expected an object" in error(answer)["message"]


def test_wrong_routes_methods_and_models_have_the_same_form(http: httpx.Client) -> None:
    for path, status in (("/v1/nothing", 404), ("/v1/completions", 405), ("/v1/models/", 404)):
        answer = http.get(path)
        assert answer.status_code == status
        assert path in error(answer)["message"] or status == 404
    answer = http.post("/v1/chat/completions", json={**CHAT, "model": "gpt-4"})
    assert (answer.status_code, error(answer)["code"]) == (404, "model_not_found")


def test_what_does_not_fit_the_context_is_context_length_exceeded(client: openai.OpenAI) -> None:
    for change in ({"messages": [{"role": "user", "content": "x" * 300}]}, {"max_tokens": 250}):
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as refused:
                client.chat.completions.create(**{**CHAT, **change}, stream=stream)
            assert refused.value.code == "context_length_exceeded"
            assert refused.value.type == "invalid_request_error"
            assert "maximum context length is 256 tokens" in refused.value.message


def test_a_completion_that_does_not_fit_is_about_its_prompt(http: httpx.Client) -> None:
    for prompt in ([9] * 300, "x" * 300, "x" * 10**6, ["short", "x" * 10**6]):
        answer = http.post("/v1/completions", json={"model": "tiny", "prompt": prompt})
        assert answer.status_code == 400
        assert (error(answer)["code"], error(answer)["param"]) == ("context_length_exceeded", "prompt")
    answer = http.post("/v1/chat/completions", json={**CHAT, "messages": [user("x" * 10**6)]})
    assert (error(answer)["code"], error(answer)["param"]) == ("context_length_exceeded", "messages")


def test_more_replies_than_the_server_can_hold_are_refused_for_good(http: httpx.Client, engine: Engine) -> None:
    assert engine.capacity == 104
    for body, param in (
        ({"prompt": "a", "n": 105}, "n"),
        ({"prompt": ["a"] * 53, "n": 2}, "prompt"),
        ({"prompt": ["a"] * 10**5}, "prompt"),
    ):
        answer = http.post("/v1/completions", json={"model": "tiny", **body})
        assert (answer.status_code, error(answer)["param"]) == (400, param)
        assert "at most 104 in one request" in error(answer)["message"]


def test_the_pages_of_an_operator_answer_a_head_request(http: httpx.Client) -> None:
    for page in ("/health", "/ready"):
        answer = http.head(page)
        assert (answer.status_code, answer.content) == (200, b"")


HALF: dict[str, Any] = {"type": "object", "properties": {"\ud800": {"type": "string"}}}
DEEP: dict[str, Any] = functools.reduce(lambda inner, _: {"properties": {"a": inner}}, range(150), {})


def tool(parameters: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tools": [tool(HALF)]}, "tools[0].function.parameters"),
        ({"tools": [tool(HALF)], "tool_choice": "required"}, "tools[0].function.parameters"),
        ({"structured_outputs": {"json": HALF}}, "structured_outputs.json"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": DEEP}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_schemas_that_are_no_text_or_too_much_for_the_parser_are_a_400(
    http: httpx.Client, change: dict[str, Any], param: str
) -> None:
    answer = http.post("/v1/chat/completions", content=json.dumps({**CHAT, **change}))
    assert (answer.status_code, error(answer)["param"]) == (400, param)


@pytest.mark.parametrize("arguments", ['{"a": "\\ud800"}', "[" * 10_000, "[" * 900 + "]" * 900, "nope", '{"a": NaN}'])
def test_calls_of_earlier_turns_may_have_any_arguments(http: httpx.Client, arguments: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    spoken = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = http.post("/v1/chat/completions", json={**CHAT, "messages": [*ASK, spoken]})
    assert answer.status_code == 200 or error(answer)["code"] == "context_length_exceeded"
