"""The protocol, through the official client and through bare HTTP, under uvicorn."""

import asyncio
import json
import random
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from lemur_ray.agents.messages import Message
from lemur_ray.serve.engine import Engine
from lemur_ray.serve.front import Front
from lemur_ray.serve.local import running
from tests.serve.tiny import TOKENIZER, poll

ASK: list[Any] = [{"role": "user", "content": "héllo"}]
CHAT: dict[str, Any] = {"model": "tiny", "messages": ASK, "temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url.removesuffix("/v1"), timeout=60) as http:
        yield http


def error(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer, which must have OpenAI's form and nothing else."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"].startswith("req_")
    fields: dict[str, Any] = body["error"]
    return fields


def metric(http: httpx.Client, name: str) -> float:
    lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].split()[1])


# Replies


def test_a_chat_reply_has_text_tokens_and_counts(client: openai.OpenAI, front: Front) -> None:
    raw = client.chat.completions.with_raw_response.create(**CHAT, extra_body={"return_token_ids": True})
    reply = raw.parse()
    prompt = front.encode_chat([Message("user", "héllo")])
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


def test_unknown_parameters_are_ignored_and_counted(http: httpx.Client) -> None:
    assert http.post("/v1/chat/completions", json={**CHAT, "min_p": 0.1, "we\nird": 1}).status_code == 200
    page = http.get("/metrics").text
    assert 'lemur_ignored_parameters_total{name="min_p"} 1' in page
    assert 'lemur_ignored_parameters_total{name="other"} 1' in page


def test_parts_and_developer_messages_are_accepted(client: openai.OpenAI) -> None:
    parts = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "héllo"}]},
    ]
    plain = [{"role": "system", "content": "Be brief."}, *ASK]
    replies = [client.chat.completions.create(**{**CHAT, "messages": m}) for m in (parts, plain)]
    assert replies[0].choices[0].message.content == replies[1].choices[0].message.content


# Refusals


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
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("logprobs", True),
        ("response_format", {"type": "json_object"}),
        ("logit_bias", {"5": 1}),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
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


# Load, disconnects, failures


def test_forty_mixed_requests_at_once_are_all_answered(client: openai.OpenAI, http: httpx.Client) -> None:
    rng = random.Random(0)

    def one(n: int) -> str:
        body = {**CHAT, "messages": [{"role": "user", "content": "w" * rng.randrange(90)}], "max_tokens": 1 + n % 30}
        if n % 4 == 0:
            return "".join(
                c.choices[0].delta.content or "" for c in client.chat.completions.create(**body, stream=True)
            )
        if n % 4 == 1:
            return client.completions.create(model="tiny", prompt="q" * n, max_tokens=5).choices[0].text
        if n % 4 == 2:
            body |= {"temperature": 1.0, "stop": ["e", "zz"]}
        elif n % 8 == 3:
            with pytest.raises(openai.BadRequestError):
                client.chat.completions.create(**{**body, "max_tokens": 9999})
        return client.chat.completions.create(**body).choices[0].message.content or ""

    with ThreadPoolExecutor(40) as pool:
        assert len(list(pool.map(one, range(40)))) == 40
    poll(lambda: metric(http, "lemur_active") == 0, "no request is active")
    assert metric(http, "lemur_recompiles_after_warmup_total") == 0


def send(url: str, body: dict[str, Any]) -> socket.socket:
    """A request over a bare socket, which can be dropped in the middle of the answer."""
    at = urllib.parse.urlparse(url)
    assert at.hostname
    assert at.port
    data = json.dumps(body).encode()
    connection = socket.create_connection((at.hostname, at.port))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_slots(url: str, http: httpx.Client, engine: Engine, stream: bool) -> None:
    cancelled = engine.stats.finished.get("cancelled", 0)
    # A seed under which eight replies do not all end by themselves at once.
    body = {**CHAT, "max_tokens": 200, "n": 8, "temperature": 2.0, "seed": 3, "stream": stream}
    with send(url, body) as connection:
        if stream:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        poll(lambda: engine.stats.active > 0, "the request is active")
    poll(lambda: engine.stats.active == 0, "the slots are free")
    assert engine.stats.finished.get("cancelled", 0) > cancelled
    assert http.get("/health").status_code == 200


@pytest.fixture
def small(small_engine: Callable[..., Engine]) -> Iterator[tuple[Engine, httpx.Client]]:
    """A server with two slots of its own."""
    engine = small_engine(max_queue=1)
    with running(Front(engine, TOKENIZER, "tiny", "0")) as url, httpx.Client(base_url=url, timeout=60) as http:
        yield engine, http


LONG = {"model": "tiny", "prompt": [9], "max_tokens": 255, "temperature": 0}


def test_a_full_queue_is_a_429_that_says_when_to_come_back(small: tuple[Engine, httpx.Client]) -> None:
    engine, http = small
    with ThreadPoolExecutor(8) as pool:
        answers = [
            a.result() for a in [pool.submit(http.post, "/completions", json={**LONG, "n": 2}) for _ in range(8)]
        ]
    refused = [a for a in answers if a.status_code != 200]
    assert refused
    for answer in refused:
        assert answer.status_code == 429
        assert error(answer)["code"] == "rate_limit_exceeded"
        assert int(answer.headers["retry-after"]) >= 1
    # All choices of a request or none: nothing of a refused one is left behind.
    poll(lambda: engine.stats.active == 0 and engine.stats.queued == 0, "the engine is idle")


def test_a_dead_engine_is_a_503_for_those_who_wait_and_for_those_who_come(small: tuple[Engine, httpx.Client]) -> None:
    engine, http = small
    both_wait = threading.Event()

    def breaks(*args: Any) -> Any:
        assert both_wait.wait(60)
        raise RuntimeError("the device is gone")

    engine._programs.forward = breaks  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(http.post, "/completions", json=LONG)
        streaming = pool.submit(http.post, "/completions", json={**LONG, "stream": True})
        poll(lambda: engine.stats.active + engine.stats.queued == 2, "both requests have arrived")
        both_wait.set()
        assert waiting.result().status_code == 503
        events = [e for e in streaming.result().text.split("\n\n") if e]
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "service_unavailable"
    assert error(http.post("/completions", json=LONG))["code"] == "service_unavailable"
    for page in ("/health", "/ready"):
        assert http.get(str(http.base_url).removesuffix("/v1/") + page).status_code == 503
