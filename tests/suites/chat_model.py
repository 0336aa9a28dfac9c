"""What an ordinary chat model says to the questions of Table 3: whole functions in fences, words around an answer.

A part of every data set of LEMUR_DATA, and for each of its tasks the right answer in such words.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.rows import find_file, read_rows
from tests.envs.programs.ds1000_items import brought, item
from tests.envs.programs.translated_solutions import completion

FEW = 2
_ROWS = {
    "gsm8k/test.jsonl": (),
    "gsm8k/train_first100.jsonl": tuple(range(8)),
    "bbh/boolean_expressions.jsonl": (),
    "humaneval/HumanEval.jsonl": (),
    "mbpp/mbpp.jsonl": tuple(range(10)),
    "spider/dev.jsonl": (),
}
"""File beneath bench -> the places of the rows that are taken; empty: the first few."""
_WHOLE = (
    "bbh_cot_prompts/boolean_expressions.txt",
    "mmlu/dev/astronomy_dev.csv",
    "spider/database/concert_singer/schema.sql",
)
_SHELL = "HumanEval_53_add"


def few_of_each(data: Path, folder: Path) -> Path:
    """A folder of data with a few questions of each of Table 3's benchmarks, MultiPL-E's in bash."""
    bench = data / "bench"
    for name, places in _ROWS.items():
        rows = list(read_rows(find_file(bench, [name], "there")))
        _write(folder / "bench" / name, [rows[place] for place in places or range(FEW)])
    for name in _WHOLE:
        whole = find_file(bench, [name], "there")
        (folder / "bench" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(whole, folder / "bench" / whole.relative_to(bench))
    asked = gzip.decompress((bench / "mmlu/test/astronomy_test.csv.gz").read_bytes()).decode().splitlines()[:FEW]
    (folder / "bench/mmlu/test").mkdir()
    (folder / "bench/mmlu/test/astronomy_test.csv").write_text("\n".join(asked) + "\n")
    shell = [row for row in read_rows(bench / "multipl_e/humaneval-sh.jsonl.gz") if row["name"] == _SHELL]
    _write(folder / "bench/multipl_e/humaneval-sh.jsonl", shell)
    return brought(folder, item())


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def answers(tasks: Sequence[Task]) -> Callable[[str], str]:
    """Question as it is asked -> the right answer; with steps where the examples before it have some."""
    said = {(asked_in(task), task.benchmark == "bbh/cot"): right_answer(task) for task in tasks}

    def answer(content: str) -> str:
        (ends,) = {asked for asked, _ in said if content.endswith(asked)}
        return said[ends, (ends, True) in said and "step by step" in content]

    return answer


def asked_in(task: Task) -> str:
    """What a task's question ends with."""
    options: Mapping[str, Any] = task.options
    return str(options["prompt"] if "prompt" in options else options["messages"][-1]["content"])


def right_answer(task: Task) -> str:
    """The right one, as such a model says it."""
    options = task.options
    gold, reference = str(options.get("gold", "")), options["reference"]
    match task.benchmark:
        case "mmlu":
            return f"The answer is {gold.strip()}."
        case "gsm8k":
            return f"Let me reckon.\n\n{gold}"
        case "bbh/direct":
            return f"A: {reference}"
        case "bbh/cot":
            return f"Let's think step by step.\nFirst the brackets. So the answer is {reference}."
        case "humaneval":
            return _fenced("python", reference["prompt"] + gold) + "\nIt runs in linear time."
        case "mbpp":
            return _fenced("python", gold.strip().removesuffix("[/PYTHON]"))
        case "spider":
            return _fenced("sql", f"{gold};")
        case "multipl_e/sh":
            return _fenced("bash", reference["prompt"] + completion("sh", _SHELL))
        case "ds1000":
            return _fenced("python", gold)
    raise KeyError(task.benchmark)


def _fenced(language: str, code: str) -> str:
    return f"Sure, here it is:\n\n```{language}\n{code.rstrip()}\n```\n"
