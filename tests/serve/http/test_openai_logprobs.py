"""Log-probabilities, echo and the settings of a draw, through the official client."""

import math
from typing import Any

import httpx
import openai
import pytest

from tests.serve.protocol import ASK, error
from tests.serve.tiny import TOKENIZER

PROMPT = [TOKENIZER.bos_id, *TOKENIZER.encode("the cat sat on the m")]


def completion(client: openai.OpenAI, **settings: Any) -> Any:
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 6, "temperature": 0, **settings}
    return client.completions.create(**asked)


def test_a_chat_names_every_token_with_its_alternatives(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": ASK, "temperature": 0, "max_tokens": 8, "logprobs": True}
    whole = client.chat.completions.create(**asked, top_logprobs=3).choices[0]
    assert whole.logprobs is not None
    content = whole.logprobs.content or []
    assert len(content) == len(whole.model_dump()["token_ids"]) == 8
    assert b"".join(bytes(t.bytes or []) for t in content).decode(errors="replace") == whole.message.content
    for token in content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == token.top_logprobs[0].logprob  # greedy
        assert [t.logprob for t in token.top_logprobs] == sorted((t.logprob for t in token.top_logprobs), reverse=True)
        assert token.logprob < 0
    chunks = [chunk.choices[0].logprobs for chunk in client.chat.completions.create(**asked, stream=True)]
    streamed = [token for logprobs in chunks if logprobs is not None for token in logprobs.content or []]
    assert [(t.token, t.logprob, t.top_logprobs) for t in streamed] == [(t.token, t.logprob, []) for t in content]


def test_a_chat_that_ends_at_once_has_an_empty_list_of_log_probabilities(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": ASK, "max_tokens": 8, "logprobs": True}
    silent = client.chat.completions.create(**asked, logit_bias={str(TOKENIZER.im_end_id): 100}).choices[0]
    assert (silent.message.content, silent.finish_reason) == ("", "stop")
    assert silent.logprobs is not None
    assert silent.logprobs.content == []


def test_a_scored_prompt_has_an_entry_for_each_token_and_the_generated_one(client: openai.OpenAI) -> None:
    answer = completion(client, max_tokens=1, logprobs=1, echo=True, seed=1234).choices[0]
    scored = answer.logprobs
    assert len(scored.tokens) == len(scored.token_logprobs) == len(scored.top_logprobs) == len(PROMPT) + 1
    assert (scored.token_logprobs[0], scored.top_logprobs[0]) == (None, None)
    for token, logprob, top in zip(scored.tokens[1:], scored.token_logprobs[1:], scored.top_logprobs[1:], strict=True):
        assert top[token] == logprob <= max(top.values())
        assert len(top) in (1, 2)
    assert max(scored.top_logprobs[-1].values()) == scored.token_logprobs[-1]
    assert answer.text.startswith("the cat sat on the m")
    for token, offset in zip(scored.tokens[1:-1], scored.text_offset[1:-1], strict=True):
        assert answer.text[offset:].startswith(token)


def test_scores_are_the_same_from_the_cache_in_a_stream_and_beside_others(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"logprobs": 5, "echo": True}
    whole = completion(client, **asked).choices[0]
    again, other = completion(client, prompt=[PROMPT, PROMPT[:9]], **asked).choices
    assert again.logprobs == whole.logprobs
    assert other.logprobs.token_logprobs[:9] == whole.logprobs.token_logprobs[:9]
    chunks = [chunk.choices[0] for chunk in completion(client, stream=True, **asked)]
    assert "".join(chunk.text for chunk in chunks) == whole.text
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        parts = [getattr(chunk.logprobs, name) for chunk in chunks if chunk.logprobs is not None]
        assert [entry for part in parts for entry in part] == getattr(whole.logprobs, name)


def test_a_prompt_can_be_scored_without_a_reply(client: openai.OpenAI) -> None:
    answer = completion(client, max_tokens=0, logprobs=0, echo=True)
    assert answer.choices[0].text == "the cat sat on the m"
    assert len(answer.choices[0].logprobs.token_logprobs) == len(PROMPT)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 0)


def test_echo_alone_puts_the_prompt_in_front(client: openai.OpenAI) -> None:
    bare = completion(client, prompt="Añb", n=2).choices[0].text
    assert [c.text for c in completion(client, prompt="Añb", echo=True, n=2).choices] == [f"Añb{bare}"] * 2


def test_a_bias_and_penalties_reach_the_engine(client: openai.OpenAI) -> None:
    (star,) = TOKENIZER.encode("*")
    stars = client.chat.completions.create(
        model="tiny", messages=ASK, max_tokens=5, logit_bias={str(star): 100}, seed=1
    )
    assert stars.choices[0].message.content == "*****"
    varied = completion(client, max_tokens=40, frequency_penalty=2, presence_penalty=2, logit_bias={str(star): 5})
    assert varied.choices[0].text.count("*") < 6


def test_min_p_of_one_is_greedy(client: openai.OpenAI) -> None:
    greedy, drawn = completion(client), completion(client, temperature=2, seed=3, extra_body={"min_p": 1})
    assert greedy.choices[0].text == drawn.choices[0].text


@pytest.mark.parametrize(
    ("path", "change", "param"),
    [
        ("chat/completions", {"top_logprobs": 2}, "top_logprobs"),
        ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("chat/completions", {"logprobs": 1}, "logprobs"),
        ("completions", {"logprobs": 21}, "logprobs"),
        ("completions", {"logprobs": True}, "logprobs"),
        ("completions", {"max_tokens": 0}, "max_tokens"),
        ("completions", {"echo": "yes"}, "echo"),
        ("completions", {"logit_bias": False}, "logit_bias"),
        ("completions", {"logit_bias": {"x": 1}}, "logit_bias"),
        ("completions", {"logit_bias": {"5": 101}}, "logit_bias.5"),
        ("completions", {"logit_bias": {"999999": 1}}, "logit_bias"),
        ("completions", {"presence_penalty": 2.5}, "presence_penalty"),
        ("completions", {"frequency_penalty": math.nan}, "frequency_penalty"),
        ("completions", {"min_p": -0.1}, "min_p"),
    ],
)
def test_values_out_of_range_are_a_400_that_names_them(
    http: httpx.Client, path: str, change: dict[str, Any], param: str
) -> None:
    import json

    body = {"model": "tiny", "messages": ASK} if path.startswith("chat") else {"model": "tiny", "prompt": "x"}
    answer = http.post(f"/v1/{path}", content=json.dumps({**body, **change}))
    assert (answer.status_code, error(answer)["param"]) == (400, param)
