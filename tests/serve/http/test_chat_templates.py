"""A model's own chat template over HTTP: what it shows, what it refuses, and what no template may do to a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.sampling_options import HTTP_DEFAULTS, model_defaults
from lemur_ray.serve.http.chat_prompts import reply_tools
from lemur_ray.serve.http.routes import build_app
from lemur_ray.serve.loading import check_template
from lemur_ray.serve.openai.checked_requests import parse_chat
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat_template import Chat, TemplateUnusable
from lemur_ray.text.templates import renderer
from lemur_ray.text.templates.template_files import template_of, with_template
from lemur_ray.text.tokenizer import Tokenizer
from tests.serve.protocol import error
from tests.serve.tiny import TINY, TOKENIZER
from tests.text.templates.formats import LLAMA_2, LLAMA_3, MISTRAL, QWEN, TOOLS

ASK = {"role": "user", "content": "Hi?"}
FUNCTION = {"name": "weather", "arguments": '{"town": "Zürich"}'}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "12 <|im_end|> degrees"}
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{{ '' }}{% endfor %}{% endfor %}"


@pytest.fixture(scope="module", autouse=True)
def little_patience() -> Iterator[None]:
    renderer._PROCESS.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer, "SECONDS", 0.5)
        yield
    renderer._PROCESS.close()


def of(source: str) -> Tokenizer:
    return with_template(TOKENIZER, source)


def asked(engine: Engine, tokenizer: Tokenizer, *requests: tuple[str, dict[str, Any]]) -> list[httpx.Response]:
    """Answers of a server whose model has this tokenizer."""
    app = build_app(TextEngine(engine, tokenizer, "tiny"))

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here", timeout=60) as http:
            return [await http.post(path, json=body) for path, body in requests]

    return asyncio.run(ask())


def chat(*messages: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/chat/completions", {"model": "tiny", "max_tokens": 2, "messages": list(messages), **more}


def tokenize(**body: Any) -> tuple[str, dict[str, Any]]:
    return "/tokenize", body


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return TOKENIZER.decode(body.get("tokens") or body["prompt_token_ids"], skip_special=False)


def test_a_chat_is_shown_by_the_models_own_template_and_tokenize_says_its_ids(engine: Engine) -> None:
    completion, tokens = asked(
        engine, of(LLAMA_2), chat(ASK, return_token_ids=True), tokenize(messages=[ASK], return_token_strs=True)
    )
    assert text_of(completion) == text_of(tokens) == "<s>[INST] Hi? [/INST]"
    assert completion.json()["prompt_token_ids"] == tokens.json()["tokens"]
    assert tokens.json()["count"] == len(tokens.json()["token_strs"]) == len(tokens.json()["tokens"])
    assert tokens.json()["token_strs"][:2] == ["<s>", "["]
    assert tokens.json()["max_model_len"] == TINY.max_seq_len


def test_messages_are_tokenized_with_what_vllm_takes_beside_them(engine: Engine) -> None:
    talk = [ASK, {"role": "assistant", "content": "So far"}]
    whole, prompt, open_end, twice, documents, plain, apart = asked(
        engine,
        of(QWEN + "{{ documents[0].title if documents }}{{ mood }}"),
        tokenize(messages=talk, add_generation_prompt=False),
        tokenize(messages=talk),
        tokenize(messages=talk, add_generation_prompt=False, continue_final_message=True),
        tokenize(messages=[ASK], add_special_tokens=True),
        tokenize(messages=[ASK], documents=[{"title": "T"}], chat_template_kwargs={"mood": "!"}),
        tokenize(prompt="a</s>"),
        tokenize(prompt="a</s>", add_special_tokens=False, split_special_tokens=True),
    )
    turns = "<|im_start|>user\nHi?<|im_end|>\n<|im_start|>assistant\nSo far"
    assert text_of(whole) == f"{turns}<|im_end|>\n"
    assert text_of(prompt) == f"{turns}<|im_end|>\n<|im_start|>assistant\n"
    assert text_of(open_end) == turns
    assert text_of(twice).startswith("<s><|im_start|>user")
    assert text_of(documents).endswith("assistant\nT!")
    assert (plain.json()["tokens"][0], plain.json()["tokens"][-1]) == (TOKENIZER.bos_id, TOKENIZER.eos_id)
    assert not set(apart.json()["tokens"]) & TOKENIZER.special_ids
    assert plain.json()["token_strs"] is None


def test_tools_calls_and_results_are_given_to_a_template_that_knows_them(engine: Engine) -> None:
    tokens, described = asked(
        engine,
        of(QWEN),
        tokenize(messages=[ASK, CALL, RESULT], tools=TOOLS),
        tokenize(messages=[ASK, CALL, RESULT], tools=TOOLS, add_generation_prompt=False),
    )
    parsed = {**FUNCTION, "arguments": json.loads(FUNCTION["arguments"])}
    called = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": parsed}]}
    (shown,) = template_of(of(QWEN)).render([Chat([ASK, called, RESULT], tools=TOOLS, add_generation_prompt=True)])
    assert text_of(tokens) == shown
    assert tokens.json()["tokens"].count(TOKENIZER.im_end_id) == shown.count("<|im_end|>") - 1, "one is only spelled"
    assert text_of(described) == shown.removesuffix("<|im_start|>assistant\n")


def test_calls_are_read_as_the_models_template_teaches_them(engine: Engine) -> None:
    tools = parse_chat(chat(ASK, tools=TOOLS)[1]).conversation.tools
    served = [TextEngine(engine, of(source), "tiny") for source in (LLAMA_3, MISTRAL, QWEN)]
    found = [reply_tools(one, tools) for one in served]
    assert [one.bare for one in found if one] == [True, True, False]
    assert reply_tools(TextEngine(engine, TOKENIZER, "tiny"), tools) == tools
    assert reply_tools(TextEngine(engine, of(QWEN), "tiny"), None) is None


def test_a_template_without_tools_has_them_described_in_the_system_turn(engine: Engine) -> None:
    source = "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\n' }}{% endfor %}"
    shown = text_of(asked(engine, of(source), tokenize(messages=[ASK, CALL, RESULT], tools=TOOLS))[0])
    assert shown.startswith("system: These functions can be called")
    assert 'assistant: <tool_call>\n{"name": "weather", "arguments": {"town": "Zürich"}}\n</tool_call>' in shown
    assert shown.endswith("tool: 12 <|im_end|> degrees\n")


@pytest.mark.parametrize(
    ("source", "status", "code", "said"),
    [
        (LLAMA_2, 400, "chat_template_error", "refuses this conversation: user and assistant have to take turns"),
        ("{{ messages[9].content }}", 400, "chat_template_error", "cannot render this conversation: UndefinedError"),
        (LOOP, 500, "chat_template_unusable", "does not come to an end within"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", 500, "chat_template_unusable", "calls itself without"),
        ("{% include 'http://a.b/c' %}", 500, "chat_template_unusable", "may not touch: the file"),
    ],
)
def test_what_a_template_refuses_or_may_not_do_is_one_clear_error(
    engine: Engine, source: str, status: int, code: str, said: str
) -> None:
    answers = asked(engine, of(source), chat(ASK, ASK), tokenize(messages=[ASK, ASK]), tokenize(prompt="a"))
    for answer in answers[:2]:
        assert (answer.status_code, error(answer)["code"]) == (status, code)
        assert said in error(answer)["message"]
    assert answers[2].status_code == 200, "and the server goes on"


def test_a_model_without_a_template_says_so_and_completes_texts(engine: Engine) -> None:
    base = TOKENIZER.with_files({"tokenizer_config.json": "{}"})
    refused, done = asked(
        engine, base, chat(ASK), ("/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1})
    )
    assert (refused.status_code, error(refused)["code"]) == (400, "chat_template_missing")
    assert "--chat-template" in error(refused)["message"]
    assert done.status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [ASK], "prompt": "a"}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [ASK], "continue_final_message": True}, "continue_final_message"),
        ({"messages": [ASK], "tools": [{}]}, "tools[0]"),
        ({"messages": [ASK], "tools": [{"type": "function", "function": {"name": "f", "x": "\ud800"}}]}, "tools"),
        ({"messages": [ASK], "chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"messages": [ASK], "chat_template": "{{ 1 }}"}, "chat_template"),
    ],
)
def test_wrong_bodies_name_their_parameter(engine: Engine, body: dict[str, Any], param: str) -> None:
    app = build_app(TextEngine(engine, of(QWEN), "tiny"))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as http:
            return await http.post("/tokenize", content=json.dumps(body))

    answer = asyncio.run(ask())
    assert (answer.status_code, error(answer)["param"]) == (400, param)


def test_a_hostile_template_is_found_before_anything_is_served(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TemplateUnusable, match="does not come to an end"):
        check_template(of(LOOP))
    with pytest.raises(TemplateUnusable, match="counts further than templates may: Range too big"):
        check_template(of("{% for i in range(10**8) %}{% endfor %}"))
    check_template(TOKENIZER)
    check_template(of(QWEN))
    assert not [record for record in caplog.records if record.name.startswith("lemur_ray")]
    check_template(of(LLAMA_2))
    check_template(TOKENIZER.with_files({"tokenizer_config.json": "{}"}))
    assert [word in caplog.text for word in ("knows no tools", "requests for chats are refused")] == [True, True]


def test_what_a_request_does_not_say_is_drawn_as_the_generation_config_says(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    written = {"temperature": 0.6, "top_p": 0.9, "top_k": 1, "do_sample": True, "repetition_penalty": 1.1, "min_p": 7}
    assert model_defaults(written) == replace(HTTP_DEFAULTS, temperature=0.6, top_p=0.9, top_k=1)
    assert "repetition_penalty is 1.1" in caplog.text
    assert "min_p is 7, expected 0 to 1" in caplog.text
    assert model_defaults({"do_sample": False, "eos_token_id": 2}) == HTTP_DEFAULTS
    greedy = TOKENIZER.with_files({"generation_config.json": json.dumps({"top_k": 1}), "chat_template.jinja": QWEN})
    seeds = [chat(ASK, seed=seed, max_tokens=8) for seed in range(3)]
    texts = {answer.json()["choices"][0]["message"]["content"] for answer in asked(engine, greedy, *seeds)}
    assert len(texts) == 1
    own = [chat(ASK, seed=seed, max_tokens=8, top_k=0, temperature=1.5) for seed in range(3)]
    assert len({answer.json()["choices"][0]["message"]["content"] for answer in asked(engine, greedy, *own)}) > 1
