"""Token ids in and out, without HTTP and without Ray: the same model, the same draws, and no drift of text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import httpx
import numpy as np
import pytest

from lemur_ray.agents.messages import Message, Sampling
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.sampling_options import SamplingOptions
from lemur_ray.serve.openai.tools import Toolbox
from lemur_ray.serve.text_engine import Reply, TextEngine
from lemur_ray.serve.token_requests import _in_words, content_ids, converse
from lemur_ray.text.chat import encode_dialogue
from lemur_ray.text.templates.template_files import with_template
from lemur_ray.text.tokenizer import Tokenizer
from tests.serve.tiny import TOKENIZER
from tests.text.prompts import encode_prompt
from tests.text.templates.formats import LLAMA_2

OPENING = [Message("system", "Walk."), Message("user", "Go.")]


def ask(served: TextEngine, turns: list[Any], trace: bool = False, **sampling: Any) -> dict[str, Any]:
    settings = asdict(Sampling(**{"max_tokens": 12, "temperature": 0.9, "seed": 5, **sampling}))
    sent = [{"ids": list(t)} if isinstance(t, tuple) else t.to_json() for t in turns]
    return asyncio.run(converse(served, {"turns": sent, "sampling": settings, "trace": trace}))


def test_ids_at_the_beginning_of_a_conversation_stay_behind_the_tools_of_its_system_turn():
    tools = Toolbox(({"name": "go", "description": "", "parameters": {}},))
    system, ids = _in_words([(1, 2)], tools)
    assert isinstance(system, Message)
    assert (system.role, ids) == ("system", (1, 2))


def test_a_dialogue_of_messages_is_encoded_as_the_server_does():
    talk = [*OPENING, Message("assistant", "north"), Message("user", "A wall.")]
    assert encode_dialogue(TOKENIZER, talk) == encode_prompt(TOKENIZER, talk)
    as_ids = [*talk[:2], tuple(TOKENIZER.encode("north")), talk[3]]
    assert encode_dialogue(TOKENIZER, as_ids) == encode_prompt(TOKENIZER, talk)


def test_ids_that_no_text_is_tokenised_to_are_sent_back_as_they_were():
    tokenizer = Tokenizer.train(["the theme of the thesis " * 20], 300)
    whole = tokenizer.encode("the")
    apart = [i for letter in "the" for i in tokenizer.encode(letter)]
    assert tokenizer.decode(whole) == tokenizer.decode(apart)
    assert whole != apart
    ids = encode_dialogue(tokenizer, [*OPENING, tuple(apart), Message("user", "?")])
    assert any(ids[i : i + len(apart)] == apart for i in range(len(ids)))
    assert ids != encode_prompt(tokenizer, [*OPENING, Message("assistant", "the"), Message("user", "?")])


def test_what_comes_back_is_what_the_engine_generated_and_the_next_turn_finds_it_cached(served: TextEngine):
    first = ask(served, OPENING)
    assert first["completion_tokens"] >= len(first["ids"]) > 0
    assert first["prompt_tokens"] == len(encode_prompt(TOKENIZER, OPENING))
    again = ask(served, OPENING)
    assert (again["ids"], again["text"]) == (first["ids"], first["text"])
    second = ask(served, [*OPENING, tuple(first["ids"]), Message("user", "A wall.")])
    if served.engine.stats.batch_invariant:  # else only whole tiles of prompts are used again
        assert second["cached_tokens"] > first["prompt_tokens"], "the model's own tokens were computed already"
    assert second["prompt_tokens"] > first["prompt_tokens"] + len(first["ids"])


def test_a_trace_has_every_drawn_id_with_its_log_probability_and_changes_no_draw(served: TextEngine):
    plain, traced = (ask(served, OPENING, max_tokens=40, temperature=1.0, trace=trace) for trace in (False, True))
    trace = traced.pop("trace")
    assert {**traced, "cached_tokens": 0} == {**plain, "cached_tokens": 0}
    assert trace["prompt"] == encode_prompt(TOKENIZER, OPENING)
    assert len(trace["drawn"]) == len(trace["logprobs"]) == traced["completion_tokens"]
    assert trace["drawn"][: len(traced["ids"])] == traced["ids"]
    assert (trace["drawn"][-1] in served.stop_ids) is (traced["finish_reason"] == "stop")
    assert all(logprob <= 0 and logprob == float(np.float32(logprob)) for logprob in trace["logprobs"])


def test_a_stop_string_ends_the_text_and_its_ids(served: TextEngine):
    whole = ask(served, OPENING, max_tokens=40)
    stop = whole["text"][5:7]
    cut = ask(served, OPENING, max_tokens=40, stop=(stop,))
    assert cut["text"] == whole["text"][: whole["text"].find(stop)]
    assert cut["finish_reason"] == "stop"
    assert TOKENIZER.decode(cut["ids"]) == cut["text"]


@pytest.mark.parametrize(
    ("pieces", "text", "kept"),
    [
        (["go", " north", "\n"], "go north", 2),
        (["go", " north\nObs"], "go north", 1),
        (["\nObs"], "", 0),
        (["go", "\n"], "go", 1),
    ],
)
def test_ids_of_a_cut_reply_spell_its_text_and_nothing_else(pieces: list[str], text: str, kept: int):
    class Stub:
        stop_ids = frozenset({99})

        def token_text(self, token: int) -> bytes:
            return pieces[token].encode()

        class tokenizer:
            @staticmethod
            def encode_inside(text: str) -> list[int]:
                return [1000 + ord(c) for c in text]

    reply = Reply(text, list(range(len(pieces))), "stop")
    ids = content_ids(Stub(), reply)  # type: ignore[arg-type]
    assert ids[:kept] == list(range(kept))
    assert "".join(chr(i - 1000) for i in ids[kept:]) == text[len("".join(pieces[:kept])) :]
    assert content_ids(Stub(), Reply("x", [5, 99], "stop")) == [5]  # type: ignore[arg-type]
    assert content_ids(Stub(), Reply("x", [5, 6], "length")) == [5, 6]  # type: ignore[arg-type]


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.4, "top_p": 0.7, "seed": -3},
    {"temperature": 0.8, "top_k": 1},
    {"temperature": 0.8, "top_k": -1},
    {"temperature": 1.0, "top_k": 30, "min_p": 0.05},
    {"temperature": 1.0, "min_p": 0.6},
    {"temperature": 0.0, "presence_penalty": 1.9},
    {"temperature": 1.2, "frequency_penalty": -1.1, "presence_penalty": 0.4},
    {"temperature": 1.0, "logit_bias": {"65": 9.0, "66": 8.5}},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_http_and_the_handle_draw_the_same_tokens_for_the_same_options(
    served: TextEngine, http: httpx.Client, options: dict[str, Any]
):
    options = {"seed": 5, **options}
    sampling = {"max_tokens": 24, "stop": (), **options}
    turns = [message.to_json() for message in OPENING]
    by_handle = asyncio.run(converse(served, {"turns": turns, "sampling": sampling}))
    body = {"model": served.name, "messages": turns, "max_tokens": 24, **options}
    choice = http.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert by_handle["completion_tokens"] == len(choice["token_ids"])
    assert by_handle["ids"] == choice["token_ids"][: len(by_handle["ids"])]
    assert (by_handle["text"], by_handle["finish_reason"]) == (choice["message"]["content"], choice["finish_reason"])


def test_every_sampling_option_is_compared_between_http_and_the_handle():
    assert set().union(*OPTIONS) == {field.name for field in fields(SamplingOptions)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_q": 0.1}, "min_q is no sampling option: known are seed, temperature, top_p, top_k, min_p"),
        ({"min_p": 2}, "min_p is 2: expected a finite number, at least 0 and at most 1"),
        ({"top_k": 1.5}, "top_k is 1.5: expected an integer"),
        ({"presence_penalty": "1"}, "presence_penalty is '1': expected a number"),
        ({"logit_bias": [1]}, "logit_bias must map token ids to numbers"),
        ({"logit_bias": {"9999": 1.0}}, "logit_bias has token ids outside 0..262"),
    ],
)
def test_options_without_a_meaning_are_refused_by_name(served: TextEngine, options: dict[str, Any], message: str):
    sampling = {"max_tokens": 4, "stop": (), **options}
    refused = asyncio.run(converse(served, {"turns": [OPENING[1].to_json()], "sampling": sampling}))
    assert refused["refused"] == "invalid"
    assert refused["message"].startswith(message)


def test_refusals_say_why(served: TextEngine, small_engine: Callable[..., Engine]):
    assert ask(served, [Message("user", "x" * 400)])["refused"] == "context"
    assert ask(served, OPENING, temperature=-1.0)["refused"] == "invalid"
    assert ask(served, [(10**6,)])["refused"] == "invalid"
    busy = TextEngine(small_engine(), TOKENIZER, "busy")

    async def many() -> list[dict[str, Any]]:
        settings = asdict(Sampling(max_tokens=100, seed=1))
        asked = {"turns": [m.to_json() for m in OPENING], "sampling": settings}
        return list(await asyncio.gather(*(converse(busy, asked) for _ in range(12))))

    answers = asyncio.run(many())
    refused = [a for a in answers if "refused" in a]
    assert 0 < len(refused) < 12
    assert all(a["refused"] == "busy" and a["retry_after_s"] >= 1 for a in refused)
    busy.engine.close()
    assert ask(busy, OPENING)["refused"] == "closed"


def test_a_dialogue_is_shown_by_the_models_own_template_around_the_ids_it_generated(engine: Engine):
    own = TextEngine(engine, with_template(TOKENIZER, LLAMA_2), "tiny")
    first = ask(own, OPENING)
    second = ask(own, [*OPENING, tuple(first["ids"]), Message("user", "A wall.")])
    assert second["prompt_tokens"] == first["prompt_tokens"] + len(first["ids"]) + len(" ") + 2 + len(
        "[INST] A wall. [/INST]"
    )
    assert second["cached_tokens"] >= first["prompt_tokens"]
    refused = ask(own, [Message("user", "a"), Message("user", "b")])
    assert refused["refused"] == "invalid"
    assert "have to take turns" in refused["message"]
