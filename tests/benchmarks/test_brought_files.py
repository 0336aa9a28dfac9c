"""Data sets as somebody brings them: other programs' byte order marks and line ends, other layouts, spoiled files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.rows import read_cells, read_rows

MARK = b"\xef\xbb\xbf"
PROMPTS = (
    "canary\n-----\nSay yes.\n\nQ: One?\nA: It is one. So the answer is yes.\n\nQ: Two?\nA: So the answer is no.\n"
)
BBH = [{"input": "Three?", "target": "yes"}]
GSM8K = [{"question": "1 + 1?", "answer": "It is 2.\n#### 2"}]
MMLU = [{"question": "Which?", "subject": "astronomy", "choices": ["w", "x", "y", "z"], "answer": 3}]
HUMANEVAL = [
    dict.fromkeys(("prompt", "entry_point", "canonical_solution", "test"), "def f(): ...") | {"task_id": "HumanEval/0"}
]


def as_json(rows: Sequence[Any]) -> bytes:
    return json.dumps({"canary": "here", "examples": rows}).encode()


def as_lines(rows: Sequence[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_parquet(rows: Sequence[Any]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue())


def as_cells(rows: Sequence[Any]) -> bytes:
    return "".join(f'"{r["question"]}",{",".join(r["choices"])},{"ABCD"[r["answer"]]}\n' for r in rows).encode()


def as_elsewhere(text: bytes) -> bytes:
    """As a program of another system writes it."""
    return MARK + text.replace(b"\n", b"\r\n")


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def first_of(name: str, data: Path) -> Task:
    benchmark = find(name)
    return next(iter(benchmark.load(benchmark.options(), EvaluationRequest(data=data))))


def bbh(home: str, prompts: str, ending: str, form: Callable[[Sequence[Any]], bytes]) -> dict[str, bytes]:
    return {f"{home}/snarks{ending}": form(BBH), f"{prompts}/snarks.txt": PROMPTS.encode()}


def two(test: str, other: str, form: Callable[[Sequence[Any]], bytes], rows: Sequence[Any]) -> dict[str, bytes]:
    return {test: form(rows), other: form(rows)}


SPIDER = [{"db_id": "pets", "question": "How many?", "query": "SELECT count(*) FROM pets"}]
PETS = {"spider/database/pets/schema.sql": b"CREATE TABLE pets (name TEXT);\n"}
USUAL: dict[str, dict[str, bytes]] = {
    "bbh/cot": bbh("bbh", "bbh/cot-prompts", ".json", as_json),
    "gsm8k": two("gsm8k/test.jsonl", "gsm8k/train.jsonl", as_lines, GSM8K),
    "mmlu": two("mmlu/test/astronomy_test.csv", "mmlu/dev/astronomy_dev.csv", as_cells, MMLU),
    "humaneval": {"humaneval/HumanEval.jsonl": as_lines(HUMANEVAL)},
    "spider": {"spider/dev.json": json.dumps(SPIDER).encode(), **PETS},
}
HUB = "-00000-of-00001.parquet"
MAIN = "BIG-Bench-Hard-main"
ELSEWHERE = [
    ("bbh/cot", bbh("bbh", "cot-prompts", ".jsonl", as_lines)),
    ("bbh/cot", bbh(f"{MAIN}/bbh", f"{MAIN}/cot-prompts", ".json", as_json)),
    ("bbh/cot", bbh("bbh", "cot-prompts", f"/test{HUB}", as_parquet)),
    ("bbh/cot", {"bbh/snarks.json": as_json(BBH), "cot-prompts/snarks.txt": PROMPTS.split("-----\n")[1].encode()}),
    ("gsm8k", two("grade_school_math/data/test.jsonl", "grade_school_math/data/train.jsonl", as_lines, GSM8K)),
    ("gsm8k", two("gsm8k/main/test.jsonl", "gsm8k/main/train.jsonl", as_lines, GSM8K)),
    ("mmlu", two("data/test/astronomy_test.csv", "data/dev/astronomy_dev.csv", as_cells, MMLU)),
    ("mmlu", two("mmlu/test/astronomy_test.csv", "mmlu/dev/astronomy_dev.csv", lambda r: as_cells(r) + b"\n", MMLU)),
    ("mmlu", two(f"mmlu/astronomy/test{HUB}", f"mmlu/astronomy/dev{HUB}", as_parquet, MMLU)),
    ("humaneval", {"human-eval/data/HumanEval.jsonl.gz": gzip.compress(as_lines(HUMANEVAL))}),
    ("humaneval", {f"openai_humaneval/test{HUB}": as_parquet(HUMANEVAL)}),
    ("spider", {f"spider/spider/validation{HUB}": as_parquet(SPIDER), **PETS}),
]


@pytest.mark.parametrize(("name", "files"), ELSEWHERE)
def test_layouts_of_the_authors_and_of_the_hub_are_read_alike(
    name: str, files: dict[str, bytes], tmp_path: Path
) -> None:
    put(tmp_path / "usual", USUAL[name])
    put(tmp_path / "other", files)
    found = [first_of(name, tmp_path / folder) for folder in ("usual", "other")]
    options = [{**task.options, "database_id": ""} for task in found]
    assert found[0].id == found[1].id
    assert options[0] == options[1]


@pytest.mark.parametrize("name", [name for name in USUAL if name != "spider"])
def test_a_byte_order_mark_and_other_line_ends_change_no_task(name: str, tmp_path: Path) -> None:
    put(tmp_path / "usual", USUAL[name])
    put(tmp_path / "other", {path: as_elsewhere(content) for path, content in USUAL[name].items()})
    found = [first_of(name, tmp_path / folder) for folder in ("usual", "other")]
    assert {**found[0].options, "database_id": ""} == {**found[1].options, "database_id": ""}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl.gz", gzip.compress(as_lines(GSM8K * 99), mtime=0)[:-20], "fetched in part"),
        ("a.jsonl.gz", b"<html>429 Too Many Requests</html>", "fetched in part"),
        ("a.parquet", as_parquet(GSM8K)[:-20], "fetched in part"),
        ("a.jsonl", b'{"question": "\xff"}', "fetched in part"),
        ("a.jsonl", b'{"question": "1", "answer": "2"}\n{"quest', "line 2.*not JSON"),
        ("a.jsonl", b'{"question": "1", "solution": "2"}\n', "line 1: no answer, but question, solution"),
        ("a.json", b"[[1]]", "row 0: a list"),
        ("a.json", b'"<html>"', "expected a list of rows"),
    ],
)
def test_a_spoiled_file_is_named_with_what_to_do(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{tmp_path / name}.*{said}"):
        list(read_rows(tmp_path / name, ("question", "answer")))


def test_what_is_no_csv_or_no_question_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f'"{"long" * 40_000}",1\n')
    with pytest.raises(ValueError, match=r"a.csv: not CSV"):
        list(read_cells(tmp_path / "a.csv"))
    put(tmp_path, two("mmlu/test/astronomy_test.csv", "mmlu/dev/astronomy_dev.csv", lambda rows: b"Q,1,2,3,4,\n", MMLU))
    with pytest.raises(ValueError, match="four options and a letter"):
        first_of("mmlu", tmp_path)
    put(tmp_path, {"bbh/snarks.json": as_json(BBH), "cot-prompts/snarks.txt": b"-----\nNothing is worked here.\n"})
    with pytest.raises(ValueError, match=r"snarks.txt: it holds no worked examples"):
        first_of("bbh/cot", tmp_path)
    for spoiled in (
        b'{"problems": []}',
        b"[1]",
        b'{"problems": [{"name": "f"}], "scene": {"get_obj_outer_pts_np": {}}}',
    ):
        put(tmp_path, {"robocodegen/problems.json": spoiled})
        with pytest.raises(ValueError, match=r"problems.json.*(not RoboCodeGen's problems|no suite, prompt, check)"):
            first_of("robocodegen", tmp_path)
