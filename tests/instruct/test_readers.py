"""The public sets: published shapes give the specified rows, and whatever gives none is dropped under a name."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lemur_ray.instruct.config import SetsConfig
from lemur_ray.instruct.conversation import Conversation
from lemur_ray.instruct.readers.public_sets import SETS, read_set


def rows_of(name: str, path: Path, **options: Any) -> tuple[list[Conversation], Counter[str]]:
    found = list(read_set(name, path, SetsConfig(**options)))
    kept = [one for one in found if isinstance(one, Conversation)]
    return kept, Counter(one.reason for one in found if not isinstance(one, Conversation))


def written(tmp_path: Path, *records: Any, name: str = "data.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def rounds(conversations: list[Conversation]) -> Counter[int]:
    return Counter(sum(m.role == "assistant" for m in one.messages) for one in conversations)


def node(text: str, role: str = "prompter", *replies: dict, **fields: Any) -> dict:
    return {"message_id": text, "text": text, "role": role, "replies": list(replies), **fields}


def tree(root: dict) -> dict:
    return {"message_tree_id": root["message_id"], "tree_state": "ready_for_export", "prompt": root}


def said(conversations: list[Conversation]) -> list[list[str]]:
    return [[m.content for m in one.messages] for one in conversations]


# The bundled files, with the numbers of the specification.


def test_fifty_open_assistant_trees_give_218_rows_and_91_questions_without_an_answer_give_none(data_dir: Path) -> None:
    kept, dropped = rows_of("oasst1", data_dir / "bench/instruct/oasst_trees_en.jsonl.gz")
    assert len(kept) == 218
    assert rounds(kept) == {1: 50, 2: 168}
    assert dropped == {"prompter_leaf": 91}
    assert all(one.messages[-1].role == "assistant" for one in kept)
    assert len({one.id for one in kept}) == 218
    assert len({tuple(one.messages[: i + 1]) for one in kept for i in range(1, len(one.messages), 2)}) == 291


def test_the_option_for_unanswered_questions_covers_all_351_answers(data_dir: Path) -> None:
    kept, _ = rows_of("oasst1", data_dir / "bench/instruct/oasst_trees_en.jsonl.gz", truncate_prompter_leaf=True)
    assert len({tuple(one.messages[: i + 1]) for one in kept for i in range(1, len(one.messages), 2)}) == 351
    assert len({one.messages for one in kept}) == len(kept)


def test_the_flat_form_gives_the_same_rows_as_the_trees(data_dir: Path, tmp_path: Path) -> None:
    path = data_dir / "bench/instruct/oasst_trees_en.jsonl.gz"
    messages: list[dict] = []
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        pending = [(json.loads(line)["prompt"], None)]
        while pending:
            one, parent = pending.pop()
            pending += [(reply, one["message_id"]) for reply in one.get("replies", [])]
            flat = {k: v for k, v in one.items() if k in ("message_id", "text", "role", "lang", "rank", "deleted")}
            messages.append({**flat, "parent_id": parent})
    assert len(messages) == 575
    pq.write_table(pa.Table.from_pylist(messages), tmp_path / "flat.parquet")
    for options in ({}, {"truncate_prompter_leaf": True}):
        trees, _ = rows_of("oasst1", path, **options)
        for file in (written(tmp_path, *messages), tmp_path / "flat.parquet"):
            flat_rows, _ = rows_of("oasst1", file, **options)
            assert {(one.id, one.messages) for one in flat_rows} == {(one.id, one.messages) for one in trees}


def test_sharegpt_shaped_chats_come_through_whole(data_dir: Path) -> None:
    kept, dropped = rows_of("sharegpt", data_dir / "bench/instruct/sharegpt_schema_fastchat_dummy.jsonl.gz")
    assert (len(kept), dropped) == (250, {})
    assert rounds(kept) == {3: 84, 2: 83, 1: 83}
    assert len({one.messages[0].content for one in kept}) == 52
    (one,), _ = rows_of("sharegpt", data_dir / "bench/instruct/sharegpt_real_fixture_axolotl.json.gz")
    assert len(one.messages) == 12


def test_openorca_shaped_rows_have_a_system_turn_where_they_have_a_prompt_or_always_as_lemur_did(
    data_dir: Path,
) -> None:
    path = data_dir / "bench/instruct/openorca_schema_from_gsm8k_train.jsonl.gz"
    for how, with_system in (("omit_empty", 133), ("lemur", 200)):
        kept, dropped = rows_of("openorca", path, openorca_system=how)
        assert (len(kept), dropped) == (200, {})
        assert sum(one.messages[0].role == "system" for one in kept) == with_system


def test_evol_shaped_rows_are_one_question_and_one_answer(data_dir: Path) -> None:
    kept, dropped = rows_of("evol", data_dir / "bench/instruct/evol_schema_from_mbpp.jsonl.gz")
    assert (len(kept), dropped, rounds(kept)) == (187, {}, {1: 187})
    assert len({one.messages[0].content for one in kept}) == 187


# Cases by hand.


def test_a_deleted_message_falls_with_everything_below_it(tmp_path: Path) -> None:
    below = node("a2", "assistant", node("q3", "prompter", node("a3", "assistant")))
    root = node("q", "prompter", node("a", "assistant", node("q2", "prompter", below, deleted=True)), deleted=False)
    kept, dropped = rows_of("oasst1", written(tmp_path, tree(root)))
    assert said(kept) == [["q", "a"]]
    assert dropped == {"deleted": 1}


def test_only_the_best_ranked_replies_stay_where_that_is_asked_for(tmp_path: Path) -> None:
    answers = [node(f"a{rank}", "assistant", rank=rank) for rank in (2, 0, None, 1)]
    kept, dropped = rows_of("oasst1", written(tmp_path, tree(node("q", "prompter", *answers))), top_k_reply=2)
    assert said(kept) == [["q", "a0"], ["q", "a1"]]
    assert dropped == {"beyond_top_k_reply": 2}


def test_other_languages_fall_only_where_one_is_asked_for(tmp_path: Path) -> None:
    trees = [tree(node(f"q {lang}", "prompter", node(f"a {lang}", "assistant", lang=lang), lang=lang)) for lang in "ab"]
    path = written(tmp_path, *trees)
    assert len(rows_of("oasst1", path)[0]) == 2
    kept, dropped = rows_of("oasst1", path, lang="b")
    assert (said(kept), dropped) == ([["q b", "a b"]], {"other_lang": 1})


def test_a_tree_as_deep_as_anybody_likes_is_read_and_one_too_deep_for_json_is_named(tmp_path: Path) -> None:
    flat = [{"message_id": str(i), "parent_id": str(i - 1) if i else None, "text": f"m{i}",
             "role": ("prompter", "assistant")[i % 2]} for i in range(20_000)]  # fmt: skip
    (one,), _ = rows_of("oasst1", written(tmp_path, *flat))
    assert len(one.messages) == 20_000
    deep = '{"prompt": ' + '{"text": "x", "role": "prompter", "replies": [' * 100_000 + "]}" * 100_000 + "}"
    path = tmp_path / "deep.jsonl"
    path.write_text(deep + "\n" + json.dumps(tree(node("q", "prompter", node("a", "assistant")))) + "\n")
    kept, dropped = rows_of("oasst1", path)
    assert (said(kept), dropped) == ([["q", "a"]], {"nested_too_deep": 1})


def test_messages_whose_parent_is_not_there_and_messages_of_no_role_are_named(tmp_path: Path) -> None:
    orphan = {"message_id": "x", "parent_id": "gone", "text": "t", "role": "assistant"}
    strange = {"message_id": "y", "text": "t", "role": "moderator"}
    kept, dropped = rows_of("oasst1", written(tmp_path, orphan, strange, {"message_id": "z"}))
    assert (kept, dropped) == ([], {"parent_not_in_file": 1, "unknown_role": 1, "no_text": 1})


def chat(*turns: tuple[str, str]) -> dict:
    return {"id": "1", "conversations": [{"from": sender, "value": value} for sender, value in turns]}


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([("human", "q"), ("gpt", "a"), ("user", "r")], ["q", "a", "r"]),
        ([("gpt", "left out"), ("human", "q"), ("chatgpt", "a")], ["q", "a"]),
        ([("human", "q"), ("human", "q2"), ("gpt", "a")], "roles_do_not_alternate"),
        ([("human", "q"), ("gpt", " \n")], "empty_content"),
        ([("system", "s"), ("human", "q"), ("gpt", "a")], "system_or_bing_turn"),
        ([("human", "q"), ("bing", "a")], "system_or_bing_turn"),
        ([("human", "q"), ("bard", "a")], "unknown_sender"),
        ([("gpt", "a")], "no_turns"),
        ([("human", "q")], "no_assistant_turn"),
        ([("human", "q"), ("gpt", None)], "no_value"),
    ],
)
def test_a_chat_gives_its_turns_or_the_name_of_what_is_wrong_with_it(
    tmp_path: Path, turns: list[tuple[str, str]], expected: list[str] | str
) -> None:
    kept, dropped = rows_of("sharegpt", written(tmp_path, chat(*turns)))
    if isinstance(expected, str):
        assert (kept, dropped) == ([], {expected: 1})
    else:
        assert (said(kept), dropped) == ([expected], {})


PAGE = (
    '<div class="markdown prose"><p>Use <code>a &lt; b</code> &amp; <strong>wait</strong>:</p><pre><div><div>'
    '<span>python</span><button>Copy code</button></div><code class="hljs language-python"><span>def</span> f(x):\n'
    "    return x\n\n\ny = 1\n</code></div></pre><ol><li><p>One</p></li><li>Two<ul><li>a</li></ul></li></ol></div>"
)
MARKDOWN = "Use `a < b` & **wait**:\n\n```python\ndef f(x):\n    return x\n\n\ny = 1\n```\n\n1. One\n2. Two\n   - a"


def test_html_becomes_markdown_with_its_code_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, chat(("human", "how?"), ("gpt", PAGE)))
    assert said(rows_of("sharegpt", path)[0]) == [["how?", MARKDOWN]]
    assert said(rows_of("sharegpt", path, sharegpt_html="never")[0]) == [["how?", PAGE]]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            "<ol><li><p>Get it:</p><pre><code class='lang-sh'>a\n  b\n</code></pre></li><li>Run</li></ol>",
            "1. Get it:\n\n   ```sh\n   a\n     b\n   ```\n2. Run",
        ),
        (
            "<pre><div><span>Go</span><button>Copy code</button></div><code>\tx := 1 &lt; 2<br>y</code></pre>",
            "```go\n\tx := 1 < 2\ny\n```",
        ),
        ("<pre><code>```py\nx\n```\n</code></pre>", "````\n```py\nx\n```\n````"),
        (
            "<table><thead><tr><th>A</th><th>B</th></tr></thead><tr><td>1<br>2</td><td><code>x</code></td></tr></table>",
            "| A | B |\n| --- | --- |\n| 1 2 | `x` |",
        ),
        ("<p>a_b, 2*3*4 and <code>x`y</code><br>\n__init__ [x]</p>", "a_b, 2*3*4 and `` x`y ``\n__init__ [x]"),
        ("<blockquote><p>one</p><p>two</p></blockquote><p>after</p>", "> one\n>\n> two\n\nafter"),
        ("<h2>T</h2><p><svg><text>no</text></svg>x <em>y</em></p><style>p{}</style>", "## T\n\nx *y*"),
    ],
)
def test_code_tables_lists_and_quotes_of_a_page_are_markdown(tmp_path: Path, page: str, expected: str) -> None:
    path = written(tmp_path, chat(("human", "q"), ("gpt", page)))
    assert said(rows_of("sharegpt", path, sharegpt_html="always")[0]) == [["q", expected]]


def test_a_turn_that_is_nothing_but_an_address_is_no_warning_and_a_page_nested_too_deep_is_named(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, chat(("human", "https://example.org/a"), ("gpt", "a")))
    assert said(rows_of("sharegpt", path, sharegpt_html="always")[0]) == [["https://example.org/a", "a"]]
    path = written(tmp_path, chat(("human", "q"), ("gpt", "<div>" * 5000 + "x" + "</div>" * 5000)))
    assert rows_of("sharegpt", path) == ([], {"nested_too_deep": 1})


def test_text_that_only_talks_of_html_stays_as_it_is(tmp_path: Path) -> None:
    text = "What is `<div>` for?\n```html\n<div>\n  <p>x</p>\n</div>\n```"
    path = written(tmp_path, chat(("human", text), ("gpt", "It is a < b & c > d")))
    assert said(rows_of("sharegpt", path)[0]) == [[text, "It is a < b & c > d"]]


def test_an_input_follows_the_instruction_and_missing_fields_are_named(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"instruction": "sum", "input": "1 2", "output": "3"},
        {"instruction": "say", "input": None, "output": "x"},
        {"instruction": "say"},
        {"instruction": "say", "output": "  "},
        ["no object"],
    )
    kept, dropped = rows_of("evol", path)
    assert said(kept) == [["sum\n\n1 2", "3"], ["say", "x"]]
    assert dropped == {"no_output": 1, "empty_content": 1, "no_object": 1}


def test_a_list_parquet_and_lines_give_the_same_rows_and_a_bad_line_costs_itself_alone(tmp_path: Path) -> None:
    records = [{"instruction": f"q{i}", "output": f"a{i}\ud83d"} for i in range(3)]
    (tmp_path / "list.json").write_text(json.dumps(records, indent=1))
    pq.write_table(pa.Table.from_pylist([{**r, "output": r["output"][:2]} for r in records]), tmp_path / "t.parquet")
    lines = written(tmp_path, *records)
    lines.write_text(lines.read_text() + '{"instruction": "cut sh\n')
    for path, bad in ((tmp_path / "list.json", {}), (lines, {"not_json": 1})):
        kept, dropped = rows_of("evol", path)
        assert (said(kept), dropped) == ([[f"q{i}", f"a{i}\ufffd"] for i in range(3)], bad)
    assert said(rows_of("evol", tmp_path / "t.parquet")[0]) == [[f"q{i}", f"a{i}"] for i in range(3)]


def test_a_file_that_is_cut_short_or_of_another_kind_is_an_error_that_names_it(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"instruction": "q", "output": "a"}\n' * 1000)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    (tmp_path / "list.json").write_text('[{"instruction": "q",')
    (tmp_path / "x.csv").write_text("a,b")
    for name in ("cut.jsonl.gz", "x.parquet", "list.json", "x.csv"):
        with pytest.raises(ValueError, match=name):
            rows_of("evol", tmp_path / name)


def test_every_set_states_its_licence() -> None:
    assert all(one.licence for one in SETS.values())
    assert "CC-BY-NC-SA-4.0" in SETS["evol"].licence
