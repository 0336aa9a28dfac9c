"""Bodies and their description: what the page says is what is checked, and errors name the field in our words."""

from typing import Any

import pytest

from lemur_ray.serve.openai.body_fields import described
from lemur_ray.serve.openai.checked_requests import parse_chat, parse_completion
from lemur_ray.serve.openai.errors import ApiError
from lemur_ray.serve.openai.request_models import Body, ChatBody, CompletionBody, DetokenizeBody, TokenizeBody

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "logprobs": True}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "hi", "echo": True}
NUMBERS = ("integer", "number")


def properties(body: type[Body]) -> dict[str, Any]:
    page = described(body, "m")["requestBody"]["content"]["application/json"]["schema"]
    found: dict[str, Any] = page["properties"]
    return found


@pytest.mark.parametrize("body", [ChatBody, CompletionBody])
def test_every_bound_on_the_page_is_the_one_that_is_checked(body: type[Body]) -> None:
    whole, parse = (CHAT, parse_chat) if body is ChatBody else (COMPLETION, parse_completion)
    bounded = {name: schema for name, schema in properties(body).items() if schema.get("type") in NUMBERS}
    assert bounded["n"]["maximum"] == 128
    for name, schema in bounded.items():
        for bound, step in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", 0)):
            if bound not in schema:
                continue
            if step:
                parse({**whole, name: schema[bound]})
            with pytest.raises(ApiError) as refused:
                parse({**whole, name: schema[bound] + step})
            assert (refused.value.status, refused.value.param, refused.value.code) == (400, name, "invalid_value")
    assert sum(bool({"minimum", "exclusiveMinimum"} & schema.keys()) for schema in bounded.values()) >= 8


@pytest.mark.parametrize("body", [ChatBody, CompletionBody, TokenizeBody, DetokenizeBody])
def test_the_page_names_the_model_and_nothing_that_is_not_offered(body: type[Body]) -> None:
    page = properties(body)
    assert page["model"] == {"enum": ["m"]}
    assert not {"functions", "best_of", "suffix", "audio"} & page.keys()
    assert "$ref" not in str(page), "a page has no other place for definitions"


def test_a_null_is_the_default_and_says_the_same_as_nothing_where_there_is_none() -> None:
    nulls = dict.fromkeys(name for name in ChatBody.model_fields if name not in CHAT)
    assert ChatBody.of({**CHAT, **nulls}) == ChatBody.of(CHAT)
    for missing in ({"messages": CHAT["messages"]}, {**CHAT, "model": None}):
        with pytest.raises(ApiError, match="model must be the name of a model") as refused:
            parse_chat(missing)
        assert refused.value.param == "model"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 3}, "temperature is 3: must be at least 0 and at most 2"),
        ({"top_p": 0}, "top_p is 0: must be above 0 and at most 1"),
        ({"top_k": -2}, "top_k is -2: must be at least -1"),
        ({"temperature": True}, "temperature must be a number"),
        ({"n": 1.0}, "n must be an integer"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5 is 101: must be at least -100 and at most 100"),
        (
            {"stream": True, "stream_options": {"include_usage": 1}},
            "stream_options.include_usage must be true or false",
        ),
        ({"messages": [*CHAT["messages"], 3]}, r"messages\[1\] must be an object with role and content"),
        ({"reasoning_effort": "high"}, "reasoning_effort is not supported by this server"),
    ],
)
def test_errors_say_what_was_found_and_what_was_expected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError, match=f"^{message}$"):
        parse_chat({**CHAT, **change})


def test_prompts_keep_their_form() -> None:
    ids = list(range(1000))
    for prompt, found in (
        ("x", ("x",)),
        (["x", "y"], ("x", "y")),
        (ids, (tuple(ids),)),
        ([ids, [1]], (tuple(ids), (1,))),
    ):
        assert parse_completion({"model": "m", "prompt": prompt}).prompts == found
