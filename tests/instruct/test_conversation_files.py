"""Files of conversations: what is written is read back, and a bad line is named."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lemur_ray.agents.messages import Message, ToolCall
from lemur_ray.evaluation.demonstration_data import conversations_of, own_conversations
from lemur_ray.instruct.config import SetsConfig, TalksConfig
from lemur_ray.instruct.conversation import RULES, Conversation, conversation_lines, fault
from lemur_ray.instruct.readers.public_sets import read_set
from tests.instruct.own_chats import read_conversations
from tests.outside_data.conftest import hub as hub  # the fixture
from tests.outside_data.local_hub import LocalHub

LAST = (Message("user", "v"), Message("assistant", "said"))
TALKS = [
    Conversation("a", "1", (Message("user", "Grüße \u2028 <|im_end|>\n"), Message("assistant", "ok"))),
    Conversation("b", "2", (Message("system", "s"), Message("user", "u"), Message("assistant", "x\ny"))),
    Conversation("c", "3", (Message("user", "u"), Message("assistant", "shown", weight=0), *LAST)),
]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "talks.jsonl").write_text("".join(conversation_lines(TALKS)) + "\n", encoding="utf-8")
    assert list(read_conversations(tmp_path / "talks.jsonl")) == TALKS


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"dataset": "a", "id": "1"}', "messages"),
        ('{"dataset": "a", "id": "1", "messages": [{"role": "user", "content": "u"}]}', "no_assistant_turn"),
        ('{"dataset": "a", "id": "1", "messages": [{"role": "bot", "content": "u"}]}', "bot"),
        ('{"dataset": "a", "id": "1", "messages": [{"role": "assistant", "content": "u", "weight": 2}]}', "weight 2"),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(conversation_lines(TALKS[:1])) + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"talks\.jsonl, line 2: .*{complaint}"):
        list(read_conversations(path))


ASKED = {"role": "user", "content": "u"}
ANSWERED = {"role": "assistant", "content": "a"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
CALLED = [ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]},
          {"role": "tool", "content": "r", "tool_call_id": "1"}, ANSWERED]  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "f"}}]
ROWS: list[dict[str, Any]] = [
    {"messages": [ASKED, ANSWERED]},
    {"messages": CALLED, "tools": TOOLS},
    {"messages": CALLED, "tools": json.dumps(TOOLS)},
    {"prompt": "u", "completion": "a"},
    {"prompt": [ASKED, ANSWERED, ASKED], "completion": [ANSWERED]},
]
"""Rows as OpenAI and TRL write them."""


def expected() -> list[tuple[Any, ...]]:
    asked, answered = Message("user", "u"), Message("assistant", "a")
    called = (
        asked,
        Message("assistant", "", (ToolCall("f", '{"x": 1}', "1"),)),
        Message("tool", "r", (), "1"),
        answered,
    )
    before = (asked, Message("assistant", "a", weight=0), asked)
    return [(asked, answered), called, called, (asked, answered), (*before, answered)]


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_rows_of_openai_and_trl_are_read_from_json_lines_and_a_json_list(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    (tmp_path / "own.json").write_text(json.dumps(ROWS, indent=1))
    for name in ("own.jsonl", "own.json"):
        talks = list(read_conversations(tmp_path / name))
        assert [talk.messages for talk in talks] == expected()
        assert [talk.tools for talk in talks] == [(), tuple(TOOLS), tuple(TOOLS), (), ()]
        assert [(talk.dataset, talk.id) for talk in talks] == [("own", str(number)) for number in range(1, 6)]


@pytest.mark.parametrize("read", [read_conversations, lambda path: read_set("sharegpt", path, SetsConfig())])
def test_a_large_json_list_is_read_element_by_element(read: Callable[[Path], Iterator[Any]], tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "u" * 5000}, {"from": "gpt", "value": "a" * 5000}]
    row = {"messages": ROWS[0]["messages"], "conversations": turns}
    (tmp_path / "large.json").write_text(json.dumps([row] * 1000))
    tracemalloc.start()
    count = sum(1 for _ in read(tmp_path / "large.json"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 1000
    assert peak < 5e6, "of 10 MB"
    (tmp_path / "cut.json").write_text(json.dumps([row] * 3)[:-100])
    with pytest.raises(ValueError, match=r"cut\.json.*element 3.*cut short"):
        list(read(tmp_path / "cut.json"))


def test_rows_of_parquet_have_no_keys_of_other_rows(tmp_path: Path) -> None:
    write_parquet(tmp_path / "own.parquet", [ROWS[0], ROWS[2]])
    write_parquet(tmp_path / "pairs.parquet", [ROWS[4]])
    talks = [*read_conversations(tmp_path / "own.parquet"), *read_conversations(tmp_path / "pairs.parquet")]
    assert [talk.messages for talk in talks] == [expected()[0], expected()[2], expected()[4]]


def test_a_data_set_of_the_hub_is_read_by_its_name(hub: LocalHub, tmp_path: Path) -> None:
    write_parquet(tmp_path / "x.parquet", ROWS[:1])
    hub.put("data/train-0.parquet", (tmp_path / "x.parquet").read_bytes())
    hub.put("data/test-0.parquet", b"no parquet")
    hub.put("README.md", b"# words")
    (talk,) = read_conversations("hf://datasets/them/set")
    assert (talk.dataset, talk.messages) == ("train-0", expected()[0])
    with pytest.raises(ValueError, match=r"them/set/\*\.md: no \.parquet, \.jsonl or \.json file there"):
        list(read_conversations("hf://datasets/them/set/*.md"))


@pytest.mark.parametrize(
    "files", [["data/train_gen-0.parquet", "data/train_sft-0.parquet"], ["all/train-0.parquet", "part/train-0.parquet"]]
)
def test_a_data_set_of_several_subsets_is_refused_with_their_names(hub: LocalHub, files: list[str]) -> None:
    for file in (*files, "constraints/x.parquet", "dataset_infos.json"):
        hub.put(file, b"")
    with pytest.raises(ValueError, match="holds several splits or subsets: give one of hf://datasets/them/set"):
        list(read_conversations("hf://datasets/them/set"))


def test_keys_whose_value_is_null_are_none_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    row = {"id": None, "dataset": None, "messages": [{**message, "weight": None} for message in (ASKED, ANSWERED)]}
    (tmp_path / "own.jsonl").write_text(json.dumps({**row, "prompt": None}))
    (talk,) = read_conversations(tmp_path / "own.jsonl")
    assert (talk.dataset, talk.id) == ("own", "1")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match=r"torn\.parquet: "):
        list(read_conversations(tmp_path / "torn.parquet"))


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"conversations": [{"from": "human", "value": "u"}]}, "give files of ShareGPT to --sharegpt"),
        ({"instruction": "u", "output": "a"}, "--evol or --verified"),
        ({"prompt": "u", "chosen": "a", "rejected": "b"}, "write the chosen messages as messages"),
        ({"text": "words"}, r"jobs/build_corpus\.py"),
        ({"messages": [ASKED, ASKED]}, "roles_do_not_alternate: after a user comes the assistant"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}, ANSWERED]}, "parts of another type"),
    ],
)
def test_an_invalid_row_is_named_with_what_to_do(tmp_path: Path, row: dict[str, Any], complaint: str) -> None:
    (tmp_path / "own.jsonl").write_text(f"{json.dumps(ROWS[0])}\n\n{json.dumps(row)}\n")
    with pytest.raises(ValueError, match=rf"own\.jsonl, line 3: .*{complaint}"):
        list(read_conversations(tmp_path / "own.jsonl"))


def test_every_rule_has_its_explanation() -> None:
    import inspect
    import re

    assert set(re.findall(r'return "(\w+)"', inspect.getsource(fault))) == set(RULES)


def test_all_rows_of_all_files_are_checked_and_the_first_invalid_ones_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"messages": 1}\n' * 7)
    (tmp_path / "b.jsonl").write_text(json.dumps(ROWS[0]))
    with pytest.raises(ValueError, match=r"(?s)a\.jsonl, line 1: .*a\.jsonl, line 5: .*- and 2 more rows") as refused:
        own_conversations((str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")))
    assert "line 6" not in str(refused.value)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="no conversation in them"):
        own_conversations((str(tmp_path / "empty.jsonl"),))


def test_own_conversations_are_alone_unless_the_demo_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(json.dumps(ROWS[0]))
    own = (str(tmp_path / "own.jsonl"),)
    counts = [
        len(list(conversations_of(talks)))
        for talks in (
            TalksConfig(conversations=own),
            TalksConfig(demo=True, conversations=own, games=2, chats=3),
            TalksConfig(games=2, chats=3),
        )
    ]
    assert counts == [1, 6, 5]
    with pytest.raises(ValueError, match="--games 2 beside --conversations: expected --demo with it, or neither"):
        TalksConfig(conversations=own, games=2)
