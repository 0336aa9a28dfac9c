"""What templates print, against ``transformers`` on the same template; where folders keep them; who said what."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models

from lemur_ray.text.chat_template import Chat, TemplateError, TemplateMissing, TemplateUnusable
from lemur_ray.text.chatml import WITH_BOS, ChatML
from lemur_ray.text.templates.jinja_template import JinjaTemplate
from lemur_ray.text.templates.template_files import template_of, template_source, with_template
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import load_folder, save_folder
from tests.text.templates.formats import LLAMA_2, LLAMA_3, MISTRAL, QWEN, TOOLS, ZEPHYR, chat_of

TOKENIZER = Tokenizer.bytes_only()
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
FORMATS = {"llama-2": LLAMA_2, "llama-3": LLAMA_3, "mistral": MISTRAL, "qwen": QWEN, "zephyr": ZEPHYR}


def template(source: str) -> JinjaTemplate:
    return JinjaTemplate({"default": source}, TOKENS)


def rendered_by_transformers(source: str, chat: list[dict[str, Any]], **asked: Any) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    chat = [{name: value for name, value in message.items() if value is not None} for message in chat]
    return str(render_jinja_template([chat], chat_template=source, **TOKENS, **asked)[0][0])


@pytest.mark.parametrize("name", FORMATS)
def test_templates_print_what_transformers_prints(name: str) -> None:
    source = FORMATS[name]
    own = template(source)
    for seed in range(12):
        chat = chat_of(seed, tools=own.knows_tools)
        tools = TOOLS if own.knows_tools and seed % 3 else []
        for messages, asked in ((chat, {}), (chat[:-1], {"add_generation_prompt": True})):
            found = own.render([Chat(messages, tools=tools, add_generation_prompt=bool(asked))])
            assert found == [rendered_by_transformers(source, messages, tools=tools or None, **asked)]
        found = own.render([Chat(chat, tools=tools, continue_final_message=True)])
        assert found == [rendered_by_transformers(source, chat, tools=tools or None, continue_final_message=True)]


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("{{ messages | tojson }}|{{ messages | tojson(indent=2, sort_keys=true, ensure_ascii=true) }}", {}),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}", {}),
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", {}),
        ("{{ documents | length }}{{ documents[0].title }}{{ tools is none }}", {"documents": [{"title": "t"}]}),
        ("{{ 'on' if enable_thinking else 'off' }}", {"enable_thinking": True}),
        ("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}", {}),
        ("{{ 'content' in messages[1] }}{{ dict(a=1) }}{% set ns = namespace(self=2) %}{{ ns.self }}", {}),
        ("{{ strftime_now('%Y') }}{{ messages[0].content.startswith('h') }}", {}),
    ],
)
def test_what_a_template_sees_and_may_use_is_as_in_transformers(source: str, values: dict[str, Any]) -> None:
    chat = [
        {"role": "user", "content": "hé <b>&</b>", "reasoning": "hm", "name": None},
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    options = {name: value for name, value in values.items() if name != "documents"}
    found = template(source).render([Chat(chat, documents=values.get("documents", []), options=options)])
    assert found == [rendered_by_transformers(source, chat, **values)]


def test_a_prompt_is_what_is_not_trained_and_the_end_of_a_turn_is() -> None:
    chat = Chat([*({"role": role, "content": f" {role} {i} "} for i in (1, 2) for role in ("user", "assistant"))])
    said = {name: spans_of(FORMATS[name], chat) for name in FORMATS}
    assert said["llama-2"] == [" assistant 1 </s>", " assistant 2 </s>"]
    assert said["llama-3"] == ["assistant 1<|eot_id|>", "assistant 2<|eot_id|>"]
    assert said["mistral"] == ["  assistant 1 </s>", "  assistant 2 </s>"]
    assert said["qwen"] == [" assistant 1 <|im_end|>\n", " assistant 2 <|im_end|>\n"]
    assert said["zephyr"] == [" assistant 1 </s>", " assistant 2 </s>"]
    text, spans = ChatML("<s>").render_with_spans(chat)
    assert [text[a:b] for a, b in spans] == ["assistant 1<|im_end|>\n", "assistant 2<|im_end|>\n"]
    assert [text[a:b] for a, b in spans] == spans_of(WITH_BOS, chat)


def spans_of(source: str, chat: Chat) -> list[str]:
    text, spans = template(source).render_with_spans(chat)
    return [text[begin:end] for begin, end in spans]


def test_what_a_prompt_holds_of_the_next_turn_is_not_trained() -> None:
    thinking = (
        "{% for m in messages %}<{{ m.role }}>{{ '<think></think>' if m.role == 'assistant' }}{{ m.content }}</s>"
        "{% endfor %}{{ '<assistant><think></think>' if add_generation_prompt }}"
    )
    chat = Chat([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])
    assert spans_of(thinking, chat) == ["a</s>"]


def test_a_template_that_changes_what_was_said_has_to_mark_it() -> None:
    forgetful = "{% for m in messages %}{{ m.content if loop.revindex < 3 else '...' }};{% endfor %}"
    chat = Chat([{"role": ("user", "assistant")[i % 2], "content": str(i)} for i in range(6)])
    with pytest.raises(TemplateError, match=r"message 2 of 6 otherwise .*generation"):
        template(forgetful).render_with_spans(chat)


def test_a_message_goes_on_where_it_is_shown_and_nowhere_else() -> None:
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "so far "}]
    assert template(QWEN).render([Chat(chat, continue_final_message=True)])[0].endswith("assistant\nso far ")
    assert template(LLAMA_2).render([Chat(chat, continue_final_message=True)])[0].endswith("/INST] so far ")
    assert ChatML().render([Chat(chat, continue_final_message=True)])[0].endswith("assistant\nso far")
    with pytest.raises(TemplateError, match="does not show the last message"):
        template("{{ messages[0].content }}").render([Chat(chat, continue_final_message=True)])
    with pytest.raises(TemplateError, match="no text that could go on"):
        template(QWEN).render([Chat([{"role": "assistant", "tool_calls": []}], continue_final_message=True)])


def test_templates_are_found_where_transformers_finds_them(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "tokenizer.json")
    assert template_of(load_folder(tmp_path)) == ChatML("<s>"), "a tokenizer of our own"
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"bos_token": "<s>"}))
    with pytest.raises(TemplateMissing, match="--chat-template chatml"):
        template_of(load_folder(tmp_path))
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "processor"}))
    assert shown(tmp_path) == "processor"
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "{{ tools | length }}"}]
    config.write_text(json.dumps({"chat_template": named, "bos_token": {"content": "<s>"}, "eos_token": "</s>"}))
    assert shown(tmp_path) == "d"
    found = template_of(load_folder(f"file://{tmp_path}"))
    assert found.render([Chat([], tools=TOOLS), Chat([])]) == ["1", "d"]
    config.write_text(json.dumps({"chat_template": named[1:], "bos_token": "<s>"}))
    assert template_of(load_folder(tmp_path)).render([Chat([], tools=TOOLS)]) == ["1"]
    config.write_text(json.dumps({"chat_template": WITH_BOS, "bos_token": "</s>"}))
    assert template_of(load_folder(tmp_path)) == ChatML("</s>")
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}file")
    assert shown(tmp_path) == "</s>file"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("rag")
    found = template_of(load_folder(tmp_path))
    assert isinstance(found, JinjaTemplate)
    assert found.named == {"default": "{{ bos_token }}file", "rag": "rag"}
    config.write_text(json.dumps({"chat_template": 7}))
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "additional_chat_templates" / "rag.jinja").unlink()
    with pytest.raises(TemplateUnusable, match="neither a text nor a list"):
        template_of(load_folder(tmp_path))


def shown(folder: Path) -> str:
    return template_of(load_folder(folder)).render([Chat([])])[0]


def test_a_template_can_be_given_and_travels_with_the_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("{{ bos_token }}{{ eos_token }}!")
    given = with_template(TOKENIZER, template_source(str(tmp_path / "mine.jinja")))
    assert template_of(given).render([Chat([])]) == ["<s></s>!"]
    save_folder(given, tmp_path)
    assert shown(tmp_path) == "<s></s>!"
    assert shown_by_pickle(given) == "<s></s>!"
    assert with_template(TOKENIZER, template_source("chatml")) is TOKENIZER
    assert template_of(with_template(given, template_source("chatml"))) == ChatML("<s>")
    assert template_source("") == ""
    with pytest.raises(TemplateUnusable, match=r"--chat-template .*nothing.* or chatml"):
        template_source(str(tmp_path / "nothing"))
    with pytest.raises(TemplateUnusable, match="chatml needs the tokens"):
        with_template(Tokenizer(Backend(models.BPE())), WITH_BOS)


def shown_by_pickle(tokenizer: Tokenizer) -> str:
    return template_of(pickle.loads(pickle.dumps(tokenizer))).render([Chat([])])[0]
