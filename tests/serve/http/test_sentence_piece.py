"""A model whose vocabulary is SentencePiece's, over HTTP: no mark, byte token or dummy blank shows anywhere."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lemur_ray.serve.http.uvicorn_server import running
from lemur_ray.serve.loading import open_engine
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import tokenizer_in
from lemur_ray.weights.open_model import random_weights
from tests.serve.tiny import OPTIONS, TINY
from tests.text import kinds

PROMPT = "The quick brown fox"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_in(kinds.write(kinds.KINDS["llama-2"](), tmp_path_factory.mktemp("sp")))


@pytest.fixture(scope="module")
def http(tokenizer: Tokenizer) -> Iterator[httpx.Client]:
    rows = tokenizer.vocab_size + 5  # some belong to no token
    engine = open_engine(random_weights(dataclasses.replace(TINY, vocab_size=rows), 0), OPTIONS, "sp").start()
    with running(TextEngine(engine, tokenizer, "sp")) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def ask(http: httpx.Client, **more: Any) -> Any:
    body = {"model": "sp", "prompt": PROMPT, "max_tokens": 40, "temperature": 1, "logprobs": 0, **more}
    answer = http.post("/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0] if not more.get("stream") else answer.text


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_prompt_and_reply_together_are_the_text_of_all_their_ids(
    http: httpx.Client, tokenizer: Tokenizer, seed: int
) -> None:
    prompt = [*tokenizer.special.before, *tokenizer.encode(PROMPT)]
    answer = ask(http, seed=seed)
    ids = [i for i in answer["token_ids"] if i < tokenizer.vocab_size]
    assert PROMPT + answer["text"] == tokenizer.decode([*prompt, *ids])
    assert ask(http, seed=seed, echo=True)["text"] == PROMPT + answer["text"]
    lines = [line[6:] for line in ask(http, seed=seed, stream=True).splitlines() if line.startswith("data: {")]
    assert "".join(json.loads(line)["choices"][0]["text"] for line in lines) == answer["text"]


def test_offsets_and_bytes_of_tokens_are_those_of_the_text(http: httpx.Client) -> None:
    said = f"{PROMPT}, naïve  🦙 and ᚠ\n\t  12"
    answer = ask(http, prompt=said, max_tokens=0, echo=True)
    assert answer["text"] == said
    scored = answer["logprobs"]
    begin = 0
    for token, offset, end in zip(
        scored["tokens"], scored["text_offset"], [*scored["text_offset"][1:], len(answer["text"])], strict=True
    ):
        assert offset == begin
        begin = end
        shown = answer["text"][offset:end]
        first = offset == 0 and token in ("<s>", f" {shown}")
        assert first or token == shown or token.startswith("bytes:")


def test_a_reply_to_nothing_begins_without_the_dummy_blank(http: httpx.Client, tokenizer: Tokenizer) -> None:
    answer = ask(http, prompt="", seed=4)
    ids = [i for i in answer["token_ids"] if i < tokenizer.vocab_size]
    assert answer["text"] == tokenizer.decode([*tokenizer.special.before, *ids])
