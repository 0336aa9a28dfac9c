"""The server under load: many at once, clients that go away, a full queue, an engine that breaks."""

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

from lemur_ray.serve.compute.drawing import token_choice
from lemur_ray.serve.compute.sampling import Draw
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.http.uvicorn_server import running
from lemur_ray.serve.openai.response_bodies import Answer
from lemur_ray.serve.text_engine import TextEngine
from tests.serve.protocol import CHAT, error, metric
from tests.serve.tiny import TOKENIZER, poll, slowed


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
    with slowed(engine):
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
    with running(TextEngine(engine, TOKENIZER, "tiny")) as url, httpx.Client(base_url=url, timeout=60) as http:
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


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_fails_alone_is_a_500_and_the_server_goes_on(
    small: tuple[Engine, httpx.Client], monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    _, http = small
    drawn: list[int] = []

    write_row = token_choice.write_row

    def breaks(draw: Draw, row: int, sequence: LiveSequence, position: int) -> None:
        drawn.append(sequence.request.sampling.seed)
        if drawn.count(13) > 1 and drawn[-1] == 13:
            raise OverflowError("too large")
        write_row(draw, row, sequence, position)

    monkeypatch.setattr(token_choice, "write_row", breaks)
    body = {"model": "tiny", "prompt": [9], "max_tokens": 20, "temperature": 0.5, "stream": stream}
    answer = http.post("/completions", json={**body, "seed": 13})
    failed = json.loads([e for e in answer.text.split("\n\n") if e][-1][6:]) if stream else answer.json()
    assert stream or answer.status_code == 500
    assert failed["error"]["type"] == "server_error"
    assert http.post("/completions", json={**body, "seed": 14}).status_code == 200


def test_a_dead_engine_is_a_503_for_those_who_wait_and_for_those_who_come(small: tuple[Engine, httpx.Client]) -> None:
    engine, http = small
    arrived, both_wait, submit = threading.Semaphore(0), threading.Event(), engine.submit

    def counted(*args: Any, **options: Any) -> Any:
        result = submit(*args, **options)
        arrived.release()
        return result

    def breaks(*args: Any) -> Any:
        assert both_wait.wait(60)
        raise RuntimeError("the device is gone")

    engine.submit = counted  # type: ignore[method-assign]
    engine._batch.programs.step = breaks  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(http.post, "/completions", json=LONG)
        streaming = pool.submit(http.post, "/completions", json={**LONG, "stream": True})
        assert arrived.acquire(timeout=60)
        assert arrived.acquire(timeout=60)
        both_wait.set()
        assert waiting.result().status_code == 503
        events = [e for e in streaming.result().text.split("\n\n") if e]
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "service_unavailable"
    assert error(http.post("/completions", json=LONG))["code"] == "service_unavailable"
    for page in ("/health", "/ready"):
        assert http.get(str(http.base_url).removesuffix("/v1/") + page).status_code == 503


@pytest.mark.parametrize("stream", [False, True])
def test_a_mistake_of_the_server_is_an_error_of_openais_form_and_the_connection_stays(
    small: tuple[Engine, httpx.Client], monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    def breaks(*args: Any) -> Any:
        raise KeyError("a mistake")

    _, http = small
    body = {**LONG, "max_tokens": 3, "stream": stream}
    with monkeypatch.context() as patched:
        patched.setattr(Answer, "deltas" if stream else "whole", breaks)
        answer = http.post("/completions", json=body)
    if stream:
        assert json.loads([e for e in answer.text.split("\n\n") if e][-1][6:])["error"]["type"] == "server_error"
    else:
        assert (answer.status_code, error(answer)["type"]) == (500, "server_error")
    before = answer.extensions["network_stream"].get_extra_info("client_addr")
    answer = http.post("/completions", json=body)
    assert answer.status_code == 200
    assert answer.extensions["network_stream"].get_extra_info("client_addr") == before


def test_who_takes_longer_than_a_server_may_that_is_told_to_stop_gets_a_503_and_streams_an_error(
    small_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemur_ray.serve.http.uvicorn_server.DRAIN_S", 0.3)
    engine = small_engine()
    with slowed(engine), ThreadPoolExecutor(2) as pool:
        with running(TextEngine(engine, TOKENIZER, "tiny")) as url:
            body = {**LONG, "logit_bias": {str(TOKENIZER.eos_id): -100, str(TOKENIZER.im_end_id): -100}}
            whole = pool.submit(httpx.post, f"{url}/completions", json=body, timeout=60)
            streamed = pool.submit(httpx.post, f"{url}/completions", json={**body, "stream": True}, timeout=60)
            poll(lambda: engine.stats.active == 2, "both are active")
        assert whole.result().status_code == 503
        last = [e for e in streamed.result().text.split("\n\n") if e][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "service_unavailable"
