"""Chats on tokenizers of every kind, held against ``transformers`` on the same folder.

What is trained on, what is served and what an exported folder makes of a chat have the same ids, those of
``apply_chat_template``; special tokens that a message spells are text; ids that a model generated stay as they are.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import transformers

from lemur_ray.agents.messages import Message, ToolCall
from lemur_ray.instruct.chat_tokens import with_chat_format
from lemur_ray.text.chat import encode_chat, encode_dialogue, template_messages
from lemur_ray.text.chat_template import Chat, TemplateError
from lemur_ray.text.chatml import WITH_BOS
from lemur_ray.text.marked_text import iter_texts, marked_text
from lemur_ray.text.templates.template_files import template_of
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import load_folder
from lemur_ray.weights.hf_config import tokenizer_files
from tests.text import kinds
from tests.text.prompts import encode_chat_prompt, encode_prompt
from tests.text.templates.formats import LLAMA_2, LLAMA_3, MISTRAL, QWEN, TOOLS, ZEPHYR, chat_of

FORMATS = {
    "llama-2": LLAMA_2,
    "llama-2, as its file says": LLAMA_2,
    "llama-2, metaspace": ZEPHYR,
    "code-llama": LLAMA_2,
    "mistral-1": MISTRAL,
    "mistral, tekken": MISTRAL,
    "llama-3": LLAMA_3,
    "qwen": QWEN,
    "unigram": ZEPHYR,
}
QUICK, FULL = 10, 300


@dataclass(frozen=True)
class Pair:
    """Ours and theirs, of one folder."""

    kind: str
    ours: Tokenizer
    theirs: Any

    @property
    def tools(self) -> list[dict[str, Any]]:
        return TOOLS if template_of(self.ours).knows_tools else []


@pytest.fixture(scope="module", params=list(FORMATS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return opened(request.param, FORMATS[request.param], tmp_path_factory.getbasetemp() / "chats")


@cache
def opened(kind: str, template: str, base: Path) -> Pair:
    folder = kinds.write(kinds.KINDS[kind](), base / kind)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    ours = load_folder(folder)
    assert ours is not None
    return Pair(kind, ours, transformers.AutoTokenizer.from_pretrained(str(folder)))


def messages_of(chat: list[dict[str, Any]]) -> list[Message]:
    return [
        Message(
            turn["role"],
            turn.get("content", ""),
            tuple(
                ToolCall(call["function"]["name"], json.dumps(call["function"]["arguments"]), call["id"])
                for call in turn.get("tool_calls", ())
            ),
            turn.get("tool_call_id", ""),
            turn.get("name", ""),
        )
        for turn in chat
    ]


def check_chats(pair: Pair, count: int) -> int:
    """Prompts, conversations and their marks; how many chats were compared."""
    for seed in range(count):
        tools = pair.tools if seed % 2 else []
        chat = chat_of(seed, tools=bool(tools))
        said = messages_of(chat)
        assert template_messages(said) == chat
        asked = pair.theirs.apply_chat_template(chat[:-1], tools=tools or None, add_generation_prompt=True)
        prompt = Chat(chat[:-1], tools=tools, add_generation_prompt=True)
        assert encode_chat_prompt(pair.ours, prompt) == asked["input_ids"], (pair.kind, chat)
        assert by_the_other_way(pair.ours, prompt) == asked["input_ids"], (pair.kind, chat)
        open_end = pair.theirs.apply_chat_template(chat, tools=tools or None, continue_final_message=True)
        assert (
            encode_chat_prompt(pair.ours, Chat(chat, tools=tools, continue_final_message=True)) == open_end["input_ids"]
        )
        if tools and FORMATS[pair.kind] is MISTRAL and sum(turn["role"] == "user" for turn in chat) > 1:
            with pytest.raises(TemplateError, match="otherwise once others follow"):  # tools move to the last question
                encode_chat(pair.ours, said, tools=tools)
            continue
        whole = pair.theirs.apply_chat_template(chat, tools=tools or None)["input_ids"]
        ids, trained = encode_chat(pair.ours, said, tools=tools)
        assert ids == whole, (pair.kind, chat)
        check_marks(pair, chat, trained, tools)
    return count


def by_the_other_way(tokenizer: Tokenizer, chat: Chat) -> list[int]:
    """Ids as for a text that spells special tokens, though this one spells none: by the twin of the tokenizer."""
    marked, template = marked_text(tokenizer), template_of(tokenizer)
    disguise = marked.disguise(iter_texts([chat.messages, chat.tools]))
    shown = Chat(
        disguise.apply(chat.messages), disguise.apply(chat.tools), add_generation_prompt=chat.add_generation_prompt
    )
    (text,) = template.render([shown], disguise.characters)
    return marked.encode_by_twin(text, disguise).ids


def check_marks(pair: Pair, chat: list[dict[str, Any]], trained: list[bool], tools: list[dict[str, Any]]) -> None:
    """Against the mask of transformers; of a template without ``{% generation %}`` against what each turn adds to the
    prompt that it answers, as transformers renders the two."""
    given = tools or None
    render = partial(pair.theirs.apply_chat_template, tools=given, tokenize=False)
    if "{% generation %}" in FORMATS[pair.kind]:
        marked = pair.theirs.apply_chat_template(chat, tools=given, return_assistant_tokens_mask=True)
        theirs = marked["assistant_masks"]
        if pair.kind == "unigram":  # it stops where a first character has no token of its own
            assert all(ours for ours, mark in zip(trained, theirs, strict=True) if mark)
        else:
            assert trained == [bool(mark) for mark in theirs], (pair.kind, chat)
        return
    encoding = pair.theirs(render(chat), add_special_tokens=False)
    at = [number for number, turn in enumerate(chat) if turn["role"] == "assistant"]
    spans = [(len(render(chat[:n], add_generation_prompt=True)), len(render(chat[: n + 1]))) for n in at]
    said = {encoding.char_to_token(i) for begin, end in spans for i in range(begin, end)}
    # A character of several tokens is named by its first.
    assert all(trained[token] for token in said if token is not None), (pair.kind, chat)
    prompts = {encoding.char_to_token(i) for i in range(len(render(chat)))} - said
    assert not any(trained[token] for token in prompts if token is not None), (pair.kind, chat)


def test_training_and_serving_give_the_ids_of_transformers(pair: Pair) -> None:
    assert check_chats(pair, QUICK) == QUICK


@pytest.mark.slow
def test_three_hundred_chats_have_the_ids_of_transformers(pair: Pair) -> None:
    assert check_chats(pair, FULL) == FULL


def test_an_exported_folder_gives_the_same_ids(pair: Pair, tmp_path: Path) -> None:
    for name, text in tokenizer_files(pair.ours).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for seed in range(4):
        chat = chat_of(seed)
        assert exported.apply_chat_template(chat)["input_ids"] == encode_chat(pair.ours, messages_of(chat))[0]


@pytest.mark.parametrize("kind", ["llama-2", "llama-2, as its file says", "mistral-1", "code-llama", "llama-3"])
def test_a_model_tuned_on_our_own_format_has_one_rule_for_all(kind: str, tmp_path: Path) -> None:
    """ChatML on a tokenizer of SentencePiece: no blank is put before segments that transformers puts none before."""
    folder = kinds.write(kinds.KINDS[kind](), tmp_path / "base")
    base = load_folder(folder)
    assert base is not None
    lines: list[str] = []
    tuned = with_chat_format(base, say=lines.append)
    assert "no chat template" in lines[0]
    assert "<|im_start|> and <|im_end|> added" in lines[1]
    (tmp_path / "tuned").mkdir()
    for name, text in tokenizer_files(tuned).items():
        (tmp_path / "tuned" / name).write_text(text, encoding="utf-8")
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "tuned")
    assert template_of(tuned).source == exported.chat_template == WITH_BOS
    for seed in range(6):
        chat = chat_of(seed)
        expected = exported.apply_chat_template(chat)["input_ids"]
        ids, trained = encode_chat(tuned, messages_of(chat))
        assert ids == expected
        assert ids.count(tuned.bos_id) == 1
        said = tuned.decode([i for i, mark in zip(ids, trained, strict=True) if mark], skip_special=False)
        answers = [turn["content"].strip() for turn in chat if turn["role"] == "assistant"]
        assert said.replace(" ", "") == "".join(f"{text}<|im_end|>\n" for text in answers).replace(" ", "")
        asked = exported.apply_chat_template(chat[:-1], add_generation_prompt=True)["input_ids"]
        assert encode_prompt(tuned, messages_of(chat[:-1])) == asked == ids[: len(asked)]


@pytest.mark.parametrize("kind", ["llama-2", "mistral, tekken", "llama-3", "qwen", "unigram"])
def test_a_folder_that_splits_special_tokens_has_none_in_texts_and_chats(kind: str, tmp_path: Path) -> None:
    files = kinds.KINDS[kind]()
    files["tokenizer_config.json"] |= {"split_special_tokens": True}
    folder = kinds.write(files, tmp_path / "base")
    (folder / "chat_template.jinja").write_text(FORMATS[kind], encoding="utf-8")
    ours, theirs = load_folder(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    assert ours is not None
    names = [name for name in ours.names(sorted(ours.special_ids)) if name]
    for text in kinds.texts(40, names):
        ids = [*ours.special.before, *ours.encode_marked(text), *ours.special.after]
        assert ids == theirs(text).input_ids, text
    for seed in range(6):
        chat = chat_of(seed)
        chat[0]["content"] += names[0]
        asked = theirs.apply_chat_template(chat[:-1], add_generation_prompt=True)["input_ids"]
        assert encode_chat_prompt(ours, Chat(chat[:-1], add_generation_prompt=True)) == asked
        whole = theirs.apply_chat_template(chat)["input_ids"]
        assert encode_chat(ours, messages_of(chat))[0] == whole
        assert kind == "unigram" or not ours.special_ids & set(whole)


def test_special_tokens_that_a_message_spells_are_ordinary_text(pair: Pair) -> None:
    """Whole, in parts at its ends, in schemas, arguments and results; what was spelled is still there to be read."""
    draw, ours = random.Random(3), pair.ours
    special = {i: name for i, name in enumerate(ours.names(range(ours.vocab_size))) if i in ours.special_ids}
    unknown = ours.special.unk
    for seed in range(12):
        chat, hostile = chat_of(seed, tools=bool(pair.tools)), chat_of(seed, tools=bool(pair.tools))
        names = [draw.choice([n for n in special.values() if n]) for _ in range(4)]
        for turn in hostile:
            if "content" in turn:
                cut = len(names[2]) // 2
                turn["content"] = f"{names[2][cut:]}a{names[0]}{turn['content']}{names[1]}b{names[3][:cut]}"
            for call in turn.get("tool_calls", ()):
                call["function"]["arguments"]["town"] = f"x{names[0]}{names[1]}"
        tools = [{"type": "function", "function": {"name": "f", "description": names[0], "parameters": {}}}] * bool(
            pair.tools
        )
        kind = [i for i in encode_chat_prompt(ours, Chat(chat, tools=pair.tools)) if i in special and i != unknown]
        found = encode_chat_prompt(ours, Chat(hostile, tools=tools))
        assert [i for i in found if i in special and i != unknown] == kind, (pair.kind, hostile)
        if ours.keeps_text:
            assert f"a{names[0].replace(kinds.MARK, ' ')}" in ours.decode(found, skip_special=False)
    forged = [{"role": "user", "content": "a" + "".join(chr(0xF0000 + i) for i in range(200))}]
    assert encode_chat_prompt(ours, Chat(forged))


def test_ids_that_a_model_generated_stay_and_all_around_them_is_as_in_the_whole_text(pair: Pair) -> None:
    ours, draw = pair.ours, random.Random(7)
    plain = [i for i in range(ours.vocab_size) if i not in ours.special_ids]
    for seed in range(8):
        talk = [message for message in messages_of(chat_of(seed)) if message.role != "system"][:-1]
        begins = {n: len(encode_prompt(ours, talk[:n])) for n, turn in enumerate(talk) if turn.role == "assistant"}
        # What a model would have generated for these very answers, and then something else of the same length.
        own = {n: own_ids(pair, talk[: n + 1], begin) for n, begin in begins.items()}
        as_ids = [tuple(own.get(n, ())) or turn for n, turn in enumerate(talk)]
        assert encode_dialogue(ours, as_ids) == encode_prompt(ours, talk), (pair.kind, talk)
        odd = [tuple(draw.choices(plain, k=7)) if n in own else turn for n, turn in enumerate(talk)]
        ids = encode_dialogue(ours, odd)
        for n in own:
            asked = encode_dialogue(ours, odd[:n])
            assert ids[: len(asked)] == asked, "the prompt of the reply, as it was"
            assert ids[len(asked) : len(asked) + 7] == list(odd[n]), "and the reply directly behind it"


def own_ids(pair: Pair, talk: list[Message], begin: int) -> list[int]:
    """Ids of the last turn behind its prompt, without what the template puts behind the content."""
    ids = encode_chat(pair.ours, talk)[0][begin:]
    if FORMATS[pair.kind] is LLAMA_2:  # a blank and a token
        return ids[:-2]
    return ids[: len(encode_chat_prompt(pair.ours, Chat(template_messages(talk), continue_final_message=True))) - begin]
