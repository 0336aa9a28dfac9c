"""Replies that must have a form, and calls of tools, through the official client."""

import asyncio
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.handle_policy import HandlePolicy
from lemur_ray.agents.messages import ChatRequest, Message, Sampling, ToolCall
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.http.uvicorn_server import running
from lemur_ray.serve.loading import open_engine
from lemur_ray.serve.openai.tools import CallStream, Toolbox
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.serve.token_requests import converse
from lemur_ray.weights.open_model import random_weights
from tests.rollout import test_native_tools as native_tools
from tests.serve.protocol import ASK, error
from tests.serve.tiny import TINY, TOKENIZER

CHAT: dict[str, Any] = {"model": "wide", "messages": ASK, "max_tokens": 400, "temperature": 1, "seed": 5}
MOVE = {
    "type": "object",
    "properties": {"to": {"$ref": "#/$defs/place"}, "steps": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["to", "steps"],
    "additionalProperties": False,
    "$defs": {"place": {"enum": ["north", "south"]}},
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "move", "description": "Walks.", "parameters": MOVE, "strict": True}},
    {"type": "function", "function": {"name": "look"}},
]


@pytest.fixture(scope="module")
def wide_engine() -> TextEngine:
    """A tiny model with room for tools."""
    config = dataclasses.replace(TINY, max_seq_len=2048)
    engine = open_engine(random_weights(config, 0), EngineOptions(max_slots=4, max_queue=8)).start()
    return TextEngine(engine, TOKENIZER, "wide")


@pytest.fixture(scope="module")
def wide(wide_engine: TextEngine) -> Iterator[str]:
    """A server of it."""
    with running(wide_engine) as url:
        yield url


@pytest.fixture(scope="module")
def client(wide: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=wide, api_key="any", max_retries=0) as client:
        yield client


def forced(regex: str) -> dict[str, Any]:
    """Makes even a random model say something that fits."""
    return {"structured_outputs": {"regex": regex}}


def test_json_schema_gives_what_the_schema_describes(client: openai.OpenAI) -> None:
    class Step(pydantic.BaseModel):
        kind: Literal["walk", "wait"]
        number: int = pydantic.Field(ge=0, le=99)
        done: bool

    for seed in range(4):
        asked = {**CHAT, "seed": seed}
        parsed = client.chat.completions.parse(**asked, response_format=Step).choices[0]
        assert isinstance(parsed.message.parsed, Step)
        assert parsed.finish_reason == "stop"
        text = parsed.message.content or ""
        assert json.dumps(json.loads(text)) == text


def test_every_choice_of_a_stream_keeps_to_its_regular_expression(client: openai.OpenAI) -> None:
    text = {0: "", 1: "", 2: ""}
    for chunk in client.chat.completions.create(**CHAT, n=3, stream=True, extra_body=forced("[0-9]{4}-(ab|cd){2}")):
        text[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert all(re.fullmatch("[0-9]{4}-(ab|cd){2}", t) for t in text.values())
    assert len(set(text.values())) > 1


@pytest.mark.parametrize(
    ("structure", "fits"),
    [
        ({"choice": ["yes", "no", "a+b"]}, r"yes|no|a\+b"),
        ({"grammar": 'start: "<" /[a-c]{2,4}/ ">"'}, "<[a-c]{2,4}>"),
        ({"json": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}}, r"\[((true|false)(, )?)*\]"),
    ],
)
def test_choices_grammars_and_schemas_hold_for_completions_too(
    client: openai.OpenAI, structure: dict[str, Any], fits: str
) -> None:
    body: dict[str, Any] = {"structured_outputs": structure}
    answer = client.completions.create(
        model="wide", prompt="x", max_tokens=60, temperature=1.5, seed=2, extra_body=body
    )
    assert re.fullmatch(fits, answer.choices[0].text)


def test_any_json_object_and_a_cut_off_one(client: openai.OpenAI) -> None:
    cut = client.chat.completions.create(**{**CHAT, "max_tokens": 3}, response_format={"type": "json_object"}).choices[
        0
    ]
    assert (cut.message.content or "").startswith("{")
    assert cut.finish_reason in ("length", "stop")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"regex": "[0-9"}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "x" * 300_000}}, "structured_outputs.regex"),
        ({"structured_outputs": {"grammar": 'start: "x" ('}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"json": {"$ref": "http://example.org/s"}}}, "structured_outputs.json"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"json": {}, "regex": "x"}}, "structured_outputs"),
        ({"tools": 0}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": TOOLS + TOOLS}, "tools"),
        ({"tools": TOOLS, "tool_choice": "perhaps"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "fly"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]}, "messages[0].tool_calls[0]"),
    ],
)
def test_what_has_no_meaning_is_a_400_that_names_it(wide: str, change: dict[str, Any], param: str) -> None:
    answer = httpx.post(f"{wide}/chat/completions", json={**CHAT, **change}, timeout=60)
    assert (answer.status_code, error(answer)["param"]) == (400, param)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_must_come_comes_with_arguments_of_its_schema(client: openai.OpenAI, stream: bool) -> None:
    named: Any = {"type": "function", "function": {"name": "move"}}
    asked: dict[str, Any] = {**CHAT, "tools": TOOLS, "tool_choice": named}
    if stream:
        with client.chat.completions.stream(**asked) as events:
            choice: Any = events.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(**asked).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    (call,) = choice.message.tool_calls or []
    assert (call.type, call.function.name, call.id[:5]) == ("function", "move", "call_")
    arguments = json.loads(call.function.arguments)
    assert arguments["to"] in ("north", "south")
    assert 1 <= arguments["steps"] <= 9


def test_text_and_calls_of_a_free_reply_are_told_apart_and_streamed_in_order(client: openai.OpenAI) -> None:
    call = r'<tool_call>\n\{"name": "look", "arguments": \{"at": "[ab]"\}\}\n</tool_call>'
    asked: dict[str, Any] = {**CHAT, "tools": TOOLS, "extra_body": forced(rf"I look < there\. {call}\n{call}")}
    whole = client.chat.completions.create(**asked).choices[0]
    assert (whole.message.content, whole.finish_reason) == ("I look < there.", "tool_calls")
    assert [c.function.name for c in whole.message.tool_calls or []] == ["look", "look"]  # type: ignore[union-attr]
    deltas = [chunk.choices[0] for chunk in client.chat.completions.create(**asked, stream=True)]
    assert "".join(d.delta.content or "" for d in deltas) == "I look < there."
    parts = [part for d in deltas for part in d.delta.tool_calls or []]
    assert [(p.index, p.id is not None, p.function.name) for p in parts if p.function] == [
        (0, True, "look"),
        (0, False, None),
        (1, True, "look"),
        (1, False, None),
    ]
    assert [d.finish_reason for d in deltas if d.finish_reason] == ["tool_calls"]
    only = client.chat.completions.create(**asked, parallel_tool_calls=False).choices[0]
    assert len(only.message.tool_calls or []) == 1


def test_without_tools_or_with_tool_choice_none_nothing_is_a_call(client: openai.OpenAI) -> None:
    said = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    for change in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        asked: dict[str, Any] = {**CHAT, **change, "extra_body": forced(re.escape(said))}
        choice = client.chat.completions.create(**asked).choices[0]
        assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (said, None, "stop")


def test_a_conversation_with_calls_and_results_is_taken_back(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(**CHAT, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    message = first.choices[0].message
    (call,) = message.tool_calls or []
    turns: list[Any] = [*ASK, message, {"role": "tool", "tool_call_id": call.id, "content": "a wall"}]
    again = client.chat.completions.create(**{**CHAT, "messages": turns, "max_tokens": 4}, tools=TOOLS)
    assert again.choices[0].finish_reason in ("stop", "length")


CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "ü"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        ("plain text\n", "plain text\n", 0),
        (f"well, {CALL}", "well,", 1),
        (f"{CALL}\n{CALL}\n", "", 2),
        (f"a {CALL} b", "a b", 1),
        ("<tool_call>{broken</tool_call> so", "<tool_call>{broken</tool_call> so", 0),
        (CALL.replace("look", "fly"), "", 1),  # nobody offered it: the caller has to know
        ('<tool_call>{"name": "", "arguments": {}}</tool_call>', "as it is", 0),
        ('<tool_call>{"name": ["look"]}</tool_call>', "as it is", 0),
        ('<tool_call>{"name": "look"', "as it is", 0),
        ("x <tool", "as it is", 0),
    ],
)
def test_replies_are_split_alike_however_they_are_cut(reply: str, text: str, calls: int) -> None:
    tools = Toolbox(({"name": "look", "description": "", "parameters": {}},))
    for size in (1, 2, 5, len(reply)):
        stream, out, found = CallStream(tools), "", []
        for begin in range(0, len(reply), size):
            more, new = stream.push(reply[begin : begin + size])
            out, found = out + more, found + new
        out += stream.end()
        assert (out, len(found)) == (reply if text == "as it is" else text, calls)
        assert all(json.loads(call.arguments) == {"at": "ü"} for call in found)


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ('so <tool_call>\n{"name": "lo', "so"),
        ("so <tool_call>\n", "so"),
        ("the tag <tool_call> begins a call, and", "the tag <tool_call> begins a call, and"),
        ("so <tool_", "so"),
        ("a < b <", "a < b <"),
    ],
)
def test_the_begin_of_a_call_that_was_cut_is_not_shown(reply: str, shown: str) -> None:
    stream = CallStream(Toolbox(({"name": "look"},)))
    text, calls = stream.push(reply)
    assert (text + stream.end(cut=True), calls) == (shown, [])


@pytest.mark.parametrize("limit", [{"max_tokens": 40}, {"stop": '"name'}], ids=str)
def test_a_limit_or_a_stop_string_inside_a_call_leaves_no_markup_in_the_text(
    client: openai.OpenAI, limit: dict[str, Any]
) -> None:
    call = r'<tool_call>\n\{"name": "look", "arguments": \{"at": "[ab]{90}"\}\}\n</tool_call>'
    asked: dict[str, Any] = {**CHAT, "tools": TOOLS, "extra_body": forced(rf"I look\. {call}"), **limit}
    whole = client.chat.completions.create(**asked).choices[0]
    assert (whole.message.content, whole.message.tool_calls) == ("I look.", None)
    assert whole.finish_reason == ("length" if "max_tokens" in limit else "stop")
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**asked, stream=True)]
    assert "".join(delta.content or "" for delta in deltas) == "I look."


def test_the_model_reads_the_tools_in_its_system_turn() -> None:
    tools = Toolbox(({"name": "look", "description": "Sees.", "parameters": MOVE},))
    bare = tools.described([Message("user", "hi")])
    assert [m.role for m in bare] == ["system", "user"]
    assert json.dumps(MOVE) in bare[0].content
    kept = tools.described([Message("system", "Be brief."), Message("user", "hi")])
    assert [m.role for m in kept] == ["system", "user"]
    assert kept[0].content.startswith("Be brief.\n\n")


def test_arguments_of_a_call_are_json_that_can_be_sent_whatever_the_model_wrote() -> None:
    stream = CallStream(Toolbox(({"name": "look"},)))
    text, (call,) = stream.push('<tool_call>{"name": "look", "arguments": {"at": "\\ud800"}}</tool_call>')
    assert (text, call.arguments) == ("", '{"at": "\\ud800"}')
    assert call.arguments.encode()
    no_json = '<tool_call>{"name": "look", "arguments": {"at": NaN}}</tool_call>'
    assert stream.push(no_json) == (no_json, [])


def test_a_structure_that_proves_too_much_while_it_is_used_is_the_request_s_fault(client: openai.OpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.APIError, match="the structure cannot be held to") as refused:
            list(client.chat.completions.create(**CHAT, stream=stream, extra_body=forced("(a{1000}){1000}")))
        assert (refused.value.code, refused.value.type) == ("invalid_value", "invalid_request_error")
        assert stream or isinstance(refused.value, openai.BadRequestError)


def test_this_projects_server_is_offered_tools_and_its_calls_are_played(wide: str) -> None:
    """A random model calls because its reply must match; results go back to it in a conversation that it accepts."""
    call = r'<tool_call>\n\{"name": "add", "arguments": \{"a": [0-9], "b": [0-9]\}\}\n</tool_call>'
    body = json.dumps({"structured_outputs": {"regex": call}})
    policy = OpenAIPolicy(wide, "wide", options=EndpointOptions(body=body))
    episode = native_tools.play(policy)
    assert episode.outcome is Outcome.TURN_LIMIT, episode.detail
    assert len(episode.trajectory.steps) == 4
    for step in episode.trajectory.steps:
        (one,) = step.tool_calls
        values = json.loads(one.arguments)
        assert (one.name, step.observation) == ("add", str(values["a"] + values["b"]))


def test_a_handle_takes_the_same_prompt_with_tools_as_http(wide_engine: TextEngine, wide: str) -> None:
    seen: list[Mapping[str, Any]] = []

    def ask(request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        seen.append(asyncio.run(converse(wide_engine, request)))
        return seen[-1]

    messages = (
        Message("user", "What is 1 + 2?"),
        Message("assistant", "", (ToolCall("add", '{"a": 1, "b": 2}', "c1"),)),
        Message("tool", "3", tool_call_id="c1", name="add"),
    )
    request = ChatRequest(messages, Sampling(max_tokens=4), "e", tools=(native_tools.ADD,))
    by_handle = HandlePolicy(ask, "wide").reply(request)
    with closing(OpenAIPolicy(wide, "wide")) as policy:
        by_http = policy.reply(request)
    assert by_handle.tool_calls == by_http.tool_calls == ()
    assert by_handle.usage.prompt_tokens == by_http.usage.prompt_tokens > 100
    assert by_handle.text == by_http.text
    assert "tool_calls" in seen[0]
