"""Requests that are too large: refused before they are in memory or encoded, never encoded in the event loop."""

import asyncio
import json
import random
import threading
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request

from lemur_ray.agents.messages import Message
from lemur_ray.serve.engine.errors import ContextExceeded
from lemur_ray.serve.http import request_body
from lemur_ray.serve.http.request_body import MANY_IDS, MAX_BODY_BYTES, check_lengths, read_body
from lemur_ray.serve.openai.errors import ApiError
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat import template_messages
from lemur_ray.text.chat_template import Chat
from lemur_ray.text.tokenizer import Tokenizer
from tests.text.prompts import encode_prompt

TOKENIZER = Tokenizer.train(["the cat sat on the mat and looked at the dog "] * 40, 400)


def chat(*messages: Message) -> Chat:
    return Chat(template_messages(messages), add_generation_prompt=True)


def served(context: int, tokenizer: Tokenizer = TOKENIZER) -> TextEngine:
    """A front whose engine has a context and nothing else."""
    engine: Any = SimpleNamespace(context=context)
    return TextEngine(engine, tokenizer, "tiny")


class Unread(Tokenizer):
    """A tokenizer that must not be asked to encode."""

    def encode(self, text: str) -> list[int]:
        raise AssertionError(f"{len(text)} characters were encoded")


def body_of(chunks: AsyncIterator[bytes], headers: dict[str, str]) -> Any:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": await anext(chunks), "more_body": True}

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return asyncio.run(read_body(Request({"type": "http", "method": "POST", "path": "/", "headers": raw}, receive)))


@pytest.mark.parametrize(("headers", "most"), [({}, MAX_BODY_BYTES + 2**20), ({"content-length": "9" * 12}, 0)])
def test_a_body_is_read_up_to_the_limit_and_not_at_all_where_it_announces_more(
    headers: dict[str, str], most: int
) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 2**20
            yield b" " * 2**20

    with pytest.raises(ApiError, match="too large") as refused:
        body_of(endless(), headers)
    assert refused.value.status == 413
    assert read <= most


def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    monkeypatch.setattr(request_body, "BODY_TIMEOUT_S", 0.05)
    with pytest.raises(ApiError, match="did not arrive") as refused:
        body_of(slow(), {})
    assert refused.value.status == 408


def read(raw: bytes, context: int) -> tuple[Any, float]:
    """A body, or why it is refused, and the longest time in which nothing else could go on."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": raw, "more_body": False}

    async def reading() -> tuple[Any, float]:
        gaps, last = [0.0], time.process_time()

        async def others() -> None:
            nonlocal last
            while True:
                gaps.append(time.process_time() - last)
                last = time.process_time()
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(others())
        await asyncio.sleep(0)
        request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
        try:
            answer: Any = await read_body(request, context)
        except (ContextExceeded, ApiError) as error:
            answer = error
        await asyncio.sleep(0)
        watching.cancel()
        return answer, max(gaps)

    return asyncio.run(reading())


def parse_s(raw: bytes) -> float:
    """CPU seconds that this machine takes to parse ``raw``."""
    start = time.process_time()
    json.loads(raw)
    return time.process_time() - start


@pytest.mark.parametrize("form", ["{}", "[{}]", "[[1, 2], {}]"])
def test_a_list_of_ids_that_is_far_too_long_is_refused_before_it_is_parsed(form: str) -> None:
    ids = b"[" + b"12345, " * (4 * 2**20) + b"7]"
    head = json.dumps({"model": 'a "quoted" name \\ [1, 2]', "prompt": "PROMPT"}).encode()
    raw = head.replace(b'"PROMPT"', form.encode().replace(b"{}", ids))
    answer, gap_s = read(raw, 4096)
    assert isinstance(answer, ContextExceeded)
    assert "maximum context length is 4096 tokens" in str(answer)
    assert gap_s < 0.75 * parse_s(raw)


@pytest.mark.parametrize("item", [b"[1]", b"1.0", b"{}", b'""', b'["\\\\\\""]', b"[[[]]]", b'{"a":1}'])
def test_a_body_of_millions_of_values_is_refused_before_it_is_parsed(item: bytes) -> None:
    heads = {0: b'{"prompt": [', 4096: b'{"messages": [{"role": "user", "content": ['}
    for context, head in heads.items():
        raw = head + (item + b",") * (30 * 2**20 // (len(item) + 1)) + b"1]"
        answer, gap_s = read(raw, context)  # it is no JSON either: that is not even found out
        assert isinstance(answer, ApiError)
        assert (answer.status, answer.code) == (400, "invalid_value")
        assert "send less in one request" in str(answer)
        # To parse them takes up to four seconds.
        assert gap_s < 0.5


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("numbers of 64 digits", b'{"prompt": [' + (b"7" * 4000 + b", ") * (27 * 2**18 // 1000) + b"7]}"),
        ("65536 names in objects", b'{"a": {' + b",".join(b'"%d":1' % i for i in range(500_000)) + b"}}"),
        ("8388608 digits", b'{"prompt": [' + (b"0." + b"7" * 58 + b",") * 500_000 + b"7]}"),
    ],
)
def test_what_is_slow_to_parse_is_refused_before_it_is_parsed(name: str, body: bytes) -> None:
    answer, gap_s = read(body, 4096)
    assert isinstance(answer, ApiError)
    assert answer.status == 400
    assert f"more than {name}" in str(answer)
    # CPU time of this process beside that of parsing: 0.54, 0.36 and 0.23 s where this was written.
    assert gap_s < 0.75 * parse_s(body)


def test_numbers_names_and_digits_as_requests_have_them_are_read_as_ever() -> None:
    bias = {str(token): -0.123456789012345678 for token in range(65_000)}
    text = "9" * 5000 + ': "' + "1:" * 2**18
    body = {"logit_bias": bias, "prompt": text, "seed": 10**63, "n": [2**31] * 1000}
    answer, _ = read(json.dumps(body).encode(), 4096)
    assert answer == body


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16", "utf-32"])
def test_a_body_in_another_encoding_hides_nothing_from_being_counted(encoding: str) -> None:
    raw = ('{"\u2200": [' + "7" * 4000 + "]}").encode(encoding)
    answer, _ = read(raw, 4096)
    assert isinstance(answer, ApiError)
    assert answer.code == "invalid_json"


def test_values_are_counted_outside_of_texts_wherever_these_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    monkeypatch.setattr(request_body, "MANY_CONTAINERS", 100)
    for size in (2, 3, 7):
        monkeypatch.setattr(request_body, "_COUNTED", size)
        for many in (97, 98, 99, 100):
            texts = ["".join(rng.choice('\\",[{]}x') for _ in range(rng.randrange(9))) for _ in range(many)]
            body = {"prompt": [[text] for text in texts]}  # two more than there are texts
            answer, _ = read(json.dumps(body).encode(), 0)
            assert (answer == body) == (many <= 98), (size, many)


def test_a_text_of_commas_and_brackets_is_read_as_ever() -> None:
    body = {"messages": [{"role": "user", "content": '[{,\\"' * 2**20}], "n": 1}
    answer, _ = read(json.dumps(body).encode(), 4096)
    assert answer == body


def test_numbers_in_a_text_and_lists_that_may_fit_are_read_as_ever() -> None:
    text = '\\" [' + "1, " * 2 * MANY_IDS + "1]"
    for body in ({"prompt": text}, {"prompt": [[1] * MANY_IDS] * 3}, {"prompt": [7] * (MANY_IDS + 5)}):
        answer, _ = read(json.dumps(body).encode(), MANY_IDS + 10)
        assert answer == body


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ([1] * 101, ContextExceeded),
        ([[1] * 5, [1] * 101], ContextExceeded),
        ([[1]] * 9, ApiError),
        ([1] * 100, None),
        ([[1]] * 8, None),
        (["text"] * 200, None),
        ("text" * 200, None),
        ([], None),
        ([[], "x", 7], None),
        (None, None),
    ],
)
def test_lengths_are_checked_before_ids_are(prompt: Any, error: type[Exception] | None) -> None:
    if error is None:
        check_lengths({"prompt": prompt}, 100, 8)
        return
    with pytest.raises(error):
        check_lengths({"prompt": prompt}, 100, 8)


def test_a_prompt_that_cannot_fit_is_never_encoded() -> None:
    strict = served(100, Unread.from_json(TOKENIZER.to_json()))
    text = "a" * (100 * TOKENIZER.longest_token)
    with pytest.raises(ContextExceeded, match=r"at least 10\d tokens"):
        asyncio.run(strict.text_prompt(text))
    with pytest.raises(ContextExceeded, match="maximum context length is 100 tokens"):
        asyncio.run(strict.prompt(chat(Message("user", text))))
    with pytest.raises(ContextExceeded):
        asyncio.run(strict.prompt(chat(*[Message("user", "")] * 50)))


def test_what_may_fit_is_encoded_as_ever_and_a_long_text_beside_the_event_loop() -> None:
    threads: list[threading.Thread] = []

    class Watched(Tokenizer):
        def encode(self, text: str) -> list[int]:
            threads.append(threading.current_thread())
            return super().encode(text)

    watched = served(10**6, Watched.from_json(TOKENIZER.to_json()))
    for text in ("the cat", "the cat sat on the mat. " * 2000):
        threads.clear()
        assert asyncio.run(watched.text_prompt(text)) == (TOKENIZER.bos_id, *TOKENIZER.encode(text))
        assert (threads[0] is threading.main_thread()) == (len(text) < 1000)
    messages = [Message("user", "  the dog looked at the cat  "), Message("assistant", "x" * 10_000)]
    assert list(asyncio.run(watched.prompt(chat(*messages)))) == encode_prompt(watched.tokenizer, messages)


def test_the_lower_bound_of_a_prompt_is_never_above_its_tokens() -> None:
    for text in ("", " ", "the cat sat on the mat", "the cat sat on the mat and looked at the dog " * 50, "é∂漢" * 99):
        assert -(-len(text.encode()) // TOKENIZER.longest_token) <= len(TOKENIZER.encode(text))
