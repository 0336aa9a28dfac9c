"""The tokenizer over HTTP, asked as lm-eval's remote tokenizer asks."""

import asyncio
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import jinja2
import pytest
from fastapi import FastAPI

from lemur_ray.agents.messages import Message
from lemur_ray.serve.http.request_body import MANY_IDS
from lemur_ray.serve.http.tokenizer_routes import tokenizer_routes
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.hf_config import tokenizer_files
from tests.serve.protocol import error
from tests.serve.tiny import TINY, TOKENIZER
from tests.text.prompts import encode_prompt

TRAINED = Tokenizer.train(["the cat sat on the mat and looked at the dog "] * 40, 400)


def encode(http: httpx.Client, text: str, **more: Any) -> list[int]:
    answer = http.post("/tokenize", json={"prompt": text, "add_special_tokens": False, **more})
    assert answer.status_code == 200, answer.text
    tokens: list[int] = answer.json()["tokens"]
    assert answer.json()["count"] == len(tokens)
    return tokens


def decode(http: httpx.Client, tokens: list[int]) -> str:
    answer = http.post("/detokenize", json={"tokens": tokens})
    assert answer.status_code == 200, answer.text
    prompt: str = answer.json()["prompt"]
    return prompt


def test_the_special_tokens_are_named_and_their_names_are_read_back_as_them(http: httpx.Client) -> None:
    info = http.get("/tokenizer_info").json()
    ids = [TOKENIZER.bos_id, TOKENIZER.eos_id, TOKENIZER.pad_id]
    assert [encode(http, info[f"{name}_token"]) for name in ("bos", "eos", "pad")] == [[i] for i in ids]
    assert info["model_max_length"] == TINY.max_seq_len


def test_the_chat_template_gives_the_prompt_that_chat_completions_use(http: httpx.Client) -> None:
    strict = jinja2.Environment(undefined=jinja2.StrictUndefined)
    template = strict.from_string(http.get("/tokenizer_info").json()["chat_template"])
    talk = [Message("system", "Be brief."), Message("user", " héllo\n")]
    messages = [{"role": m.role, "content": m.content} for m in talk]
    text = template.render(messages=messages, add_generation_prompt=True)
    assert encode(http, text) == encode_prompt(TOKENIZER, talk)


@pytest.mark.parametrize("field", ["chat_template_kwargs", "documents"])
def test_a_chat_whose_values_nest_too_deeply_is_a_400(http: httpx.Client, field: str) -> None:
    for depth, status in ((100, 200), (200, 400), (600, 400), (900, 400)):
        nested: Any = {}
        for _ in range(depth):
            nested = {"a": nested}
        body = {"messages": [{"role": "user", "content": "u"}], field: [nested] if field == "documents" else nested}
        answer = http.post("/tokenize", json=body)
        assert answer.status_code == status, (depth, answer.text)
        assert status == 200 or "nest more than 128 deep" in answer.text


@pytest.mark.parametrize("text", ["", "test", "héllo 漢字 🙂", "</s>a<|im_start|>user\n", "x" * 20_000, " \n\t"])
def test_what_is_tokenised_comes_back_as_it_was(http: httpx.Client, text: str) -> None:
    assert decode(http, encode(http, text)) == text


def test_bos_stands_in_front_unless_it_is_not_wanted(http: httpx.Client) -> None:
    assert encode(http, "ab", add_special_tokens=True) == [TOKENIZER.bos_id, *TOKENIZER.encode("ab")]
    assert http.post("/tokenize", json={"prompt": "ab"}).json()["tokens"][0] == TOKENIZER.bos_id


def test_special_tokens_can_be_asked_for_as_plain_text(http: httpx.Client) -> None:
    assert encode(http, "a</s>", split_special_tokens=True) == TOKENIZER.encode("a</s>")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": "\ud800"}, "prompt"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
        ("/tokenize", {"prompt": "a", "model": 7}, "model"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "1"}, "tokens"),
        ("/detokenize", {"tokens": [True]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [TINY.vocab_size]}, "tokens"),
        ("/detokenize", {"tokens": [10**40]}, "tokens"),
    ],
)
def test_wrong_values_are_a_400_that_names_the_parameter(
    http: httpx.Client, path: str, body: dict[str, Any], param: str
) -> None:
    answer = http.post(path, content=json.dumps(body))
    assert (answer.status_code, error(answer)["param"]) == (400, param)


@pytest.mark.parametrize(
    ("path", "head"),
    [
        ("/detokenize", '{"tokens": '),
        ("/tokenize", '{"messages": '),
        ("/v1/chat/completions", '{"model": "tiny", "messages": '),
    ],
)
def test_lists_of_ids_that_cannot_fit_are_refused_before_they_are_parsed(
    http: httpx.Client, path: str, head: str
) -> None:
    answer = http.post(path, content=head + "[" + "1," * (2 * MANY_IDS) + "1]}")
    assert (answer.status_code, error(answer)["code"]) == (400, "context_length_exceeded")


def test_other_bodies_methods_and_models_are_refused_as_everywhere(http: httpx.Client) -> None:
    for content, status in ((b"{", 400), (b"[]", 400), (b'{"prompt": "a", "model": "gpt-4"}', 404)):
        answer = http.post("/tokenize", content=content)
        assert (answer.status_code, error(answer)["type"]) == (status, "invalid_request_error")
    for method, path in (("GET", "/tokenize"), ("GET", "/detokenize"), ("POST", "/tokenizer_info")):
        assert error(http.request(method, path))["message"].startswith("Wrong method")


def test_long_texts_are_worked_on_beside_the_event_loop_one_after_another() -> None:
    threads: list[threading.Thread] = []
    busy = threading.Lock()

    class Watched(Tokenizer):
        def encode_marked(self, text: str) -> list[int]:
            assert busy.acquire(blocking=False), "two long texts at once"
            try:
                threads.append(threading.current_thread())
                return super().encode_marked(text)
            finally:
                busy.release()

    engine: Any = SimpleNamespace(context=100, config=TINY)
    app = FastAPI()
    app.include_router(tokenizer_routes(TextEngine(engine, Watched.from_json(TRAINED.to_json()), "tiny")))

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as http:
            for text in ("the cat", "the cat sat on the mat. " * 2000):
                threads.clear()
                answers = await asyncio.gather(*(http.post("/tokenize", json={"prompt": text}) for _ in range(3)))
                assert all(a.json()["tokens"][1:] == TRAINED.encode(text) for a in answers)
                assert {t is threading.main_thread() for t in threads} == {len(text) < 1000}

    asyncio.run(ask())


def test_ids_are_those_of_the_exported_tokenizer(tmp_path: Path, http: httpx.Client) -> None:
    import transformers

    for name, content in tokenizer_files(TOKENIZER).items():
        (tmp_path / name).write_text(content)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("a<|im_start|>user\nhé</s> b<|im_end|>\n", "<s><s>x", "< /s>"):
        assert encode(http, text) == exported.encode(text, add_special_tokens=False)
