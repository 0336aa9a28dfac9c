"""Replies of the protocol, through the official client and through bare HTTP, under uvicorn."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from lemur_ray.agents.messages import Message
from lemur_ray.serve.text_engine import TextEngine
from tests.serve.protocol import ASK, CHAT
from tests.serve.tiny import TOKENIZER
from tests.text.prompts import encode_prompt


def test_a_chat_reply_has_text_tokens_and_counts(client: openai.OpenAI, served: TextEngine) -> None:
    raw = client.chat.completions.with_raw_response.create(**CHAT, extra_body={"return_token_ids": True})
    reply = raw.parse()
    prompt = tuple(encode_prompt(served.tokenizer, [Message("user", "héllo")]))
    choice = reply.choices[0]
    assert raw.headers["x-request-id"].startswith("req_")
    assert (reply.object, reply.model, reply.system_fingerprint) == ("chat.completion", "tiny", "tiny-0")
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    assert choice.model_extra is not None
    assert choice.message.content == TOKENIZER.decode(choice.model_extra["token_ids"])
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == len(prompt)
    assert reply.usage.completion_tokens == len(choice.model_extra["token_ids"])
    assert reply.model_extra is not None
    assert tuple(reply.model_extra["prompt_token_ids"]) == prompt


def test_a_second_turn_reports_what_came_from_the_cache(client: openai.OpenAI) -> None:
    def ask(text: str) -> Any:
        usage = client.chat.completions.create(**{**CHAT, "messages": [{"role": "user", "content": text}]}).usage
        return usage and usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens

    assert ask("a conversation that nobody had before") < 30
    assert ask("a conversation that nobody had before, and then more") > 30


def test_streams_give_the_same_text_as_whole_replies(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**CHAT)
    chunks = list(client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))
    choices = [c.choices[0] for c in chunks[:-1]]
    assert choices[0].delta.role == "assistant"
    assert "".join(c.delta.content or "" for c in choices) == whole.choices[0].message.content
    assert [c.finish_reason for c in choices if c.finish_reason] == [whole.choices[0].finish_reason]
    assert choices[-1].finish_reason
    assert len({(c.id, c.created, c.model, c.system_fingerprint) for c in chunks}) == 1
    assert all(c.usage is None for c in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_the_wire_format_of_a_stream_is_server_sent_events(http: httpx.Client) -> None:
    answer = http.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(e.startswith("data: {") for e in events[:-2])
    assert "usage" not in json.loads(events[0][6:])


def test_the_async_client_streams_many_replies_at_once(url: str, client: openai.OpenAI) -> None:
    async def one(async_client: openai.AsyncOpenAI, n: int) -> str:
        body = {**CHAT, "messages": [{"role": "user", "content": f"number {n}"}]}
        return "".join(
            [
                c.choices[0].delta.content or ""
                async for c in await async_client.chat.completions.create(**body, stream=True)
            ]
        )

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=url, api_key="any") as async_client:
            return await asyncio.gather(*(one(async_client, n) for n in range(8)))

    for n, text in enumerate(asyncio.run(all_of_them())):
        alone = client.chat.completions.create(**{**CHAT, "messages": [{"role": "user", "content": f"number {n}"}]})
        assert text == alone.choices[0].message.content


def test_completions_take_text_and_token_ids_one_or_many(client: openai.OpenAI) -> None:
    ids = [[TOKENIZER.bos_id, *TOKENIZER.encode(text)] for text in ("one", "two!")]
    settings: dict[str, Any] = {"model": "tiny", "max_tokens": 6, "temperature": 0}
    by_text = client.completions.create(prompt=["one", "two!"], **settings)
    by_ids = client.completions.create(prompt=ids, **settings)
    single = client.completions.create(prompt=ids[1], **settings)
    assert [c.text for c in by_text.choices] == [c.text for c in by_ids.choices]
    assert single.choices[0].text == by_ids.choices[1].text
    assert by_ids.usage is not None
    assert by_ids.usage.prompt_tokens == sum(map(len, ids))
    streamed = list(client.completions.create(prompt=ids, stream=True, **settings))
    for index in (0, 1):
        assert "".join(c.choices[0].text for c in streamed if c.choices[0].index == index) == by_ids.choices[index].text


def test_several_choices_are_numbered_by_prompt_then_choice(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="tiny", prompt=["ab", "cd"], n=3, max_tokens=8, temperature=1, seed=5)
    assert [c.index for c in reply.choices] == list(range(6))
    assert len({c.text for c in reply.choices[:3]}) == 3
    greedy = client.chat.completions.create(**CHAT, n=3)
    assert len({c.message.content for c in greedy.choices}) == 1
    assert greedy.usage is not None
    assert greedy.usage.completion_tokens == 3 * len(greedy.choices[0].model_extra["token_ids"])  # type: ignore[index]


def test_the_same_seed_gives_the_same_reply_alone_and_under_load(client: openai.OpenAI) -> None:
    def drawn(seed: int | None) -> str | None:
        return client.chat.completions.create(**{**CHAT, "temperature": 1.2, "seed": seed}).choices[0].message.content

    alone = drawn(11)
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(drawn, [11] * 8 + list(range(100, 108))))[:8] == [alone] * 8
    assert len({drawn(None) for _ in range(4)}) > 1


def test_a_stop_string_is_cut_off_and_never_shown(client: openai.OpenAI) -> None:
    body = {**CHAT, "max_tokens": 60, "temperature": 1.0, "seed": 2}
    whole = client.chat.completions.create(**body).choices[0].message.content or ""
    stop = whole[7:10]
    expected = whole[: whole.index(stop)]
    reply = client.chat.completions.create(**body, stop=stop).choices[0]
    assert (reply.message.content, reply.finish_reason) == (expected, "stop")
    chunks = client.chat.completions.create(**body, stop=["never there", stop], stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == expected


def test_without_a_limit_the_reply_may_fill_the_context(client: openai.OpenAI) -> None:
    body = {**CHAT, "max_tokens": None, "temperature": 1.0, "seed": 4}
    reply = client.chat.completions.create(**body)
    assert reply.usage is not None
    assert reply.choices[0].finish_reason == "stop" or reply.usage.total_tokens == 256
    limited = client.chat.completions.create(**{**body, "max_completion_tokens": 3})
    assert limited.usage is not None
    assert limited.usage.completion_tokens == 3


def test_models_are_listed_and_retrieved(client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "lemur-ray"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_every_operation_of_the_description_has_a_name_of_its_own(http: httpx.Client) -> None:
    described = http.get("/openapi.json").json()["paths"]
    names = [operation["operationId"] for path in described.values() for operation in path.values()]
    assert len(names) == len(set(names)) > 5
    assert [http.head(path).status_code for path in ("/health", "/ready")] == [200, 200]


def test_unknown_parameters_are_ignored_and_counted(http: httpx.Client) -> None:
    assert http.post("/v1/chat/completions", json={**CHAT, "mirostat": 2, "we\nird": 1}).status_code == 200
    page = http.get("/metrics").text
    assert 'lemur_ignored_parameters_total{name="mirostat"} 1' in page
    assert 'lemur_ignored_parameters_total{name="other"} 1' in page


def test_times_between_tokens_and_refusals_are_counted(client: openai.OpenAI, http: httpx.Client) -> None:
    def count(name: str) -> int:
        found = [line for line in http.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
        return int(found[0].split()[-1]) if found else 0

    names = (
        "lemur_first_token_seconds_count",
        "lemur_between_tokens_seconds_count",
        'lemur_refused_total{status="404"}',
    )
    before = [count(name) for name in names]
    prompt: dict[str, Any] = {"model": "tiny", "prompt": [9, 8, 7], "max_tokens": 12, "n": 2, "seed": 1}
    assert len(list(client.completions.create(**prompt, stream=True))) > 2
    assert http.get("/v1/nothing").status_code == 404
    first, between, refused = (count(name) - old for name, old in zip(names, before, strict=True))
    assert (first, refused) == (1, 1)
    assert 5 <= between <= 22


def test_parts_and_developer_messages_are_accepted(client: openai.OpenAI) -> None:
    parts = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "héllo"}]},
    ]
    plain = [{"role": "system", "content": "Be brief."}, *ASK]
    replies = [client.chat.completions.create(**{**CHAT, "messages": m}) for m in (parts, plain)]
    assert replies[0].choices[0].message.content == replies[1].choices[0].message.content
