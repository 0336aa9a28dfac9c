"""Conversations with tools: trained, served and exported, they have the ids that ``transformers`` makes of them."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import transformers
from fastapi import FastAPI

from lemur_ray.agents.messages import Message, ToolCall
from lemur_ray.corpus.manifest import row_folder
from lemur_ray.corpus.rows import RowReader
from lemur_ray.instruct.conversation import Conversation, conversation_lines, fault
from lemur_ray.instruct.table import build_table
from lemur_ray.serve.http.tokenizer_routes import tokenizer_routes
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.templates.template_files import template_of
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import tokenizer_in
from lemur_ray.weights.hf_config import tokenizer_files
from tests.instruct.own_chats import read_conversations
from tests.text import kinds
from tests.text.templates.formats import LLAMA_3, MISTRAL, QWEN, TOOLS, chat_of

FORMATS = {"llama-3": LLAMA_3, "qwen": QWEN, "mistral-1": MISTRAL, "mistral, tekken": MISTRAL}


@cache
def talks(only_one_question: bool) -> list[list[dict[str, Any]]]:
    """Four in which a tool is called."""
    found = (chat_of(seed, tools=True) for seed in range(60))
    called = [chat for chat in found if any("tool_calls" in turn for turn in chat)]
    asked = [chat for chat in called if not only_one_question or sum(turn["role"] == "user" for turn in chat) == 1]
    return asked[:4]


def written(chats: list[list[dict[str, Any]]], tools: list[dict[str, Any]], path: Path) -> list[Conversation]:
    """As a file that somebody has, read."""
    rows = [{"dataset": "toy", "id": str(i), "messages": chat, "tools": tools} for i, chat in enumerate(chats)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return list(read_conversations(path))


def trained(conversation: Conversation, tokenizer: Tokenizer, shelf: Path) -> tuple[Path, list[int], list[int]]:
    """A table of it alone, the ids in its row, and those that are learned."""
    folder, manifest = build_table([conversation], tokenizer, shelf, seq_len=4096)
    row = RowReader(row_folder(folder, "chat")).read(np.arange(1))
    learned = row.targets[0][row.loss_weights[0] > 0].tolist()
    return folder, row.tokens[0][: manifest["sources"][0]["tokens"]].tolist(), learned


def served(
    tokenizer: Tokenizer, chat: list[dict[str, Any]], tools: list[dict[str, Any]], *, as_is: bool = False
) -> list[int]:
    """The ids of a conversation as the server makes them of a request, in which arguments are text unless ``as_is``."""
    turns = (
        chat
        if as_is
        else [
            turn
            | {
                "tool_calls": [
                    call | {"function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
                    for call in turn["tool_calls"]
                ]
            }
            if "tool_calls" in turn
            else turn
            for turn in chat
        ]
    )
    engine: Any = SimpleNamespace(context=4096)
    app = FastAPI()
    app.include_router(tokenizer_routes(TextEngine(engine, tokenizer, "tiny")))

    async def ask() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as http:
            body = {"messages": turns, "tools": tools, "add_generation_prompt": False}
            answer = await http.post("/tokenize", json=body)
            assert answer.status_code == 200, answer.text
            found: list[int] = answer.json()["tokens"]
            return found

    return asyncio.run(ask())


@pytest.mark.parametrize("kind", list(FORMATS))
def test_training_export_and_serving_give_the_ids_of_transformers(kind: str, tmp_path: Path) -> None:
    folder = kinds.write(kinds.KINDS[kind](), tmp_path / "model")
    (folder / "chat_template.jinja").write_text(FORMATS[kind], encoding="utf-8")
    tokenizer, theirs = tokenizer_in(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    chats = talks(FORMATS[kind] is MISTRAL)
    for chat, conversation in zip(chats, written(chats, TOOLS, tmp_path / "talks.jsonl"), strict=True):
        marked = theirs.apply_chat_template(chat, tools=TOOLS, return_assistant_tokens_mask=kind == "llama-3")
        expected = marked["input_ids"]
        table, ids, learned = trained(conversation, tokenizer, tmp_path / "shelf")
        assert ids == expected
        if kind == "llama-3":
            assert learned == [i for i, mark in zip(expected, marked["assistant_masks"], strict=True) if mark]
        assert "weather" in tokenizer.decode(learned), "the calls are learned"
        assert served(tokenizer, chat, TOOLS) == expected
    exported = tmp_path / "exported"
    exported.mkdir()
    for name, text in tokenizer_files(tokenizer_in(table)).items():
        (exported / name).write_text(text, encoding="utf-8")
    again = transformers.AutoTokenizer.from_pretrained(str(exported))
    assert again.apply_chat_template(chat, tools=TOOLS)["input_ids"] == expected


def test_a_model_whose_template_knows_no_tools_is_told_in_words_in_training_as_in_serving(tmp_path: Path) -> None:
    tokenizer = Tokenizer.bytes_only()
    assert not template_of(tokenizer).knows_tools
    for chat, conversation in zip(talks(False), written(talks(False), TOOLS, tmp_path / "talks.jsonl"), strict=True):
        _, ids, learned = trained(conversation, tokenizer, tmp_path / "shelf")
        assert ids == served(tokenizer, chat, TOOLS)
        assert '"description": "The weather of a town' in tokenizer.decode(ids)
        assert '<tool_call>\n{"name": "weather"' in tokenizer.decode(learned)


def test_results_in_another_order_than_their_calls_are_trained_as_they_are_served(tmp_path: Path) -> None:
    folder = kinds.write(kinds.KINDS["qwen"](), tmp_path / "model")
    (folder / "chat_template.jinja").write_text(QWEN, encoding="utf-8")
    calls = [{"id": i, "type": "function", "function": {"name": "weather", "arguments": {"town": i}}} for i in "ab"]
    first, second = ({"role": "tool", "tool_call_id": i, "content": f"rain in {i}"} for i in "ab")
    chat = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "", "tool_calls": calls}]
    last = {"role": "assistant", "content": "wet"}
    for tokenizer in (tokenizer_in(folder), Tokenizer.bytes_only()):
        asked = [[*chat, *results, last] for results in ((first, second), (second, first))]
        found = [
            trained(talk, tokenizer, tmp_path / f"shelf-{number}")[1]
            for number, talk in enumerate(written(asked, TOOLS, tmp_path / "talks.jsonl"))
        ]
        assert found[0] == found[1] == served(tokenizer, asked[1], TOOLS)


REASONED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning %}<think>{{ m.reasoning }}</think>{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
)
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n"
    "</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_are_shown_by_a_template_that_reads_their_newest_name_alone(name: str, tmp_path: Path) -> None:
    folder = kinds.write(kinds.KINDS["qwen"](), tmp_path / "model")
    (folder / "chat_template.jinja").write_text(REASONED, encoding="utf-8")
    tokenizer, theirs = tokenizer_in(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    asked: list[dict[str, Any]] = [{"role": "user", "content": "u"}]
    chat = [*asked, {"role": "assistant", "content": "42", name: "six by seven"}]
    (talk,) = written([chat], [], tmp_path / "talks.jsonl")
    _, ids, learned = trained(talk, tokenizer, tmp_path / "shelf")
    newest = [*asked, {"role": "assistant", "content": "42", "reasoning": "six by seven"}]
    assert tokenizer.decode(ids, skip_special=False) == theirs.apply_chat_template(newest, tokenize=False)
    assert "six by seven" in tokenizer.decode(learned)
    assert served(tokenizer, chat, []) == ids


def test_thoughts_beside_a_reply_are_trained_and_served_as_transformers_shows_them(tmp_path: Path) -> None:
    folder = kinds.write(kinds.KINDS["qwen"](), tmp_path / "model")
    (folder / "chat_template.jinja").write_text(THINKING, encoding="utf-8")
    tokenizer, theirs = tokenizer_in(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    reply = {"role": "assistant", "content": "42", "reasoning_content": "six <|im_end|> by seven"}
    chat: list[dict[str, Any]] = [{"role": "user", "content": "u"}, reply, {"role": "user", "content": "v"}, reply]
    expected = theirs.apply_chat_template(chat, tokenize=False)
    by_other_name = [{"reasoning" if key == "reasoning_content" else key: turn[key] for key in turn} for turn in chat]
    for turns in (chat, by_other_name):
        (talk,) = written([turns], [], tmp_path / "talks.jsonl")
        _, ids, learned = trained(talk, tokenizer, tmp_path / "shelf")
        assert tokenizer.decode(ids, skip_special=False) == expected
        assert tokenizer.decode(learned).count("by seven") == 2
        assert served(tokenizer, turns, []) == ids
    (tmp_path / "talks.jsonl").write_text("".join(conversation_lines([talk])), encoding="utf-8")
    assert list(read_conversations(tmp_path / "talks.jsonl")) == [talk]


OF_ROLES = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}"
    "{% for call in m.tool_calls %}{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}"
)
OF_DEVELOPERS = OF_ROLES.replace(
    "{% for m in messages %}", "{% for m in messages %}{{ '!' * (m.role == 'developer') }}"
)


@pytest.mark.parametrize("template", [OF_ROLES, OF_DEVELOPERS])
def test_developers_parts_and_arguments_as_objects_are_trained_and_served_as_transformers_shows_them(
    template: str, tmp_path: Path
) -> None:
    folder = kinds.write(kinds.KINDS["qwen"](), tmp_path / "model")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    tokenizer, theirs = tokenizer_in(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    calls = [
        {
            "id": "a",
            "type": "function",
            "function": {"name": "f", "arguments": {"town": "Zürich <|im_end|>", "n": [1]}},
        },
        {"id": "b", "type": "function", "function": {"name": "g"}},
    ]
    said = {"role": "user", "content": [{"type": "text", "text": "what "}, {"type": "text", "text": "<|im_end|>?"}]}
    chat: list[dict[str, Any]] = [
        {"role": "developer", "content": "be brief"}, said,
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "4"}]},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "assistant", "content": "42"},
    ]  # fmt: skip
    shown = [turn | {"role": "system"} if turn["role"] == "developer" else turn for turn in chat]
    given = [dict(turn) for turn in (chat if template == OF_DEVELOPERS else shown)]
    given[2]["tool_calls"] = [{**call, "function": {"arguments": {}, **call["function"]}} for call in calls]
    expected = theirs.apply_chat_template(given, tokenize=False)
    assert ("developer" in expected) == (template == OF_DEVELOPERS)
    (talk,) = written([chat], [], tmp_path / "talks.jsonl")
    _, ids, _ = trained(talk, tokenizer, tmp_path / "shelf")
    assert tokenizer.decode(ids, skip_special=False) == expected
    assert served(tokenizer, chat, [], as_is=True) == ids


def test_a_developer_is_the_system_where_a_format_has_no_other(tmp_path: Path) -> None:
    turns = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
    ]
    older = [turns[0] | {"role": "system"}, *turns[1:]]
    for tools in ([], TOOLS):
        found = [
            trained(talk, Tokenizer.bytes_only(), tmp_path / f"shelf-{number}-{len(tools)}")[1]
            for number, talk in enumerate(written([turns, older], tools, tmp_path / "talks.jsonl"))
        ]
        assert found[0] == found[1] == served(Tokenizer.bytes_only(), turns, tools)


@pytest.mark.parametrize(
    "content", [[{"type": "image_url", "image_url": {"url": "x"}}], ["u"], [{"type": "text"}], 7, None]
)
def test_what_a_language_model_cannot_be_shown_is_named_with_its_line(content: Any, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": content}, {"role": "assistant", "content": "a"}]
    with pytest.raises(ValueError, match=r"line 1: .*message content (has parts of another type|of type)"):
        written([turns], [], tmp_path / "talks.jsonl")


def test_a_result_of_a_call_that_nobody_made_is_named_with_its_line(tmp_path: Path) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "b", "content": "1"},
    ]
    with pytest.raises(ValueError, match=r"line 1: .*answers_no_call"):
        written([turns], [], tmp_path / "talks.jsonl")


def test_calls_and_tools_come_back_from_a_file_as_they_were(tmp_path: Path) -> None:
    call = ToolCall("f", '{"a": "é"}', "1")
    talk = Conversation(
        "toy",
        "1",
        (
            Message("user", "u"),
            Message("assistant", "", (call, call), weight=0),
            Message("tool", "", tool_call_id="1", name="f"),
            Message("tool", "42", tool_call_id="1"),
            Message("assistant", "a"),
        ),
        tuple(TOOLS),
    )
    (tmp_path / "talks.jsonl").write_text("".join(conversation_lines([talk])), encoding="utf-8")
    assert list(read_conversations(tmp_path / "talks.jsonl")) == [talk]


@pytest.mark.parametrize(
    ("turns", "rule"),
    [
        ("user call tool assistant", None),
        ("system user call tool tool assistant user assistant", None),
        ("user call tool call tool assistant", None),
        ("user call", None),
        ("user call assistant", "roles_do_not_alternate"),
        ("user call user", "roles_do_not_alternate"),
        ("user assistant tool", "roles_do_not_alternate"),
        ("tool assistant", "roles_do_not_alternate"),
        ("user call tool user", "roles_do_not_alternate"),
    ],
)
def test_a_tool_answers_whoever_called_it(turns: str, rule: str | None) -> None:
    call = Message("assistant", "", (ToolCall("f", "{}"),))
    messages = [call if turn == "call" else Message(turn, "x") for turn in turns.split()]  # type: ignore[arg-type]
    assert fault(Conversation("toy", "1", tuple(messages))) == rule


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"tool_calls": {}}, None),
        ({"tool_calls": "f"}, "tool_calls of type str"),
        ({"tool_calls": [{"function": {"arguments": "{}"}}]}, "expected {id, type, function"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": 7}}]}, "expected {id, type, function"),
        ({"role": "user", "tool_calls": [{"function": {"name": "f"}}]}, "only an assistant calls"),
        ({"role": "tool", "tool_call_id": 7}, "tool_call_id of type int"),
        ({"content": None}, "content of type NoneType"),
    ],
)
def test_what_is_no_call_is_said(change: dict[str, Any], complaint: str | None) -> None:
    value = {"role": "assistant", "content": "a", **change}
    if complaint is None:
        assert Message.from_json(value) == Message("assistant", "a")
        return
    with pytest.raises(ValueError, match=complaint):
        Message.from_json(value)


@pytest.mark.parametrize("tools", [7, ["f"], [{"function": {}}]])
def test_tools_that_are_none_are_named_with_their_line(tools: Any, tmp_path: Path) -> None:
    row = {"dataset": "a", "id": "1", "messages": [{"role": "user", "content": "u"}], "tools": tools}
    (tmp_path / "talks.jsonl").write_text(json.dumps(row))
    with pytest.raises(ValueError, match=r"talks\.jsonl, line 1: .*tool"):
        list(read_conversations(tmp_path / "talks.jsonl"))
