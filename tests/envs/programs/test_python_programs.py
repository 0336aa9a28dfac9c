"""HumanEval and MBPP: golds pass, bodies of nothing fail, recorded programs get the recorded verdicts."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from envs.programs.code_in_replies import code_in
from envs.programs.humaneval.completion import grade, program_of, up_to_last_return
from envs.programs.mbpp.benchmark import PARQUET, SPLITS
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import describe_run, find
from lemur_ray.benchmarks.rows import read_rows
from lemur_ray.benchmarks.run_notes import EvaluationRun
from tests.envs.questions import Says, golds, play, tasks_of, verdicts

DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
needs_data = pytest.mark.skipif(not (DATA / "bench/humaneval").is_dir(), reason="needs HumanEval beneath LEMUR_DATA")


def failed(found: dict[str, bool]) -> list[str]:
    return [task for task, right in found.items() if not right]


@needs_data
@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.sweep)])
def test_golds_of_humaneval_pass_and_bodies_of_nothing_fail(every: int, tmp_path: Path) -> None:
    tasks = tasks_of("humaneval", DATA)
    assert (len(tasks), tasks[0].id) == (164, "humaneval/HumanEval/0")
    assert not failed(golds(tasks[::every], tmp_path))
    nothing = play(tasks[::every], Says({task.id: "    return None\n" for task in tasks}), tmp_path)
    assert not any(verdicts(nothing).values())


@needs_data
@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.slow)])
def test_recorded_programs_get_the_recorded_verdicts(every: int, tmp_path: Path) -> None:
    rows = list(read_rows(DATA / "bench/humaneval/samples_qwen2.5-coder-1.5b.jsonl.gz"))
    said = {f"humaneval/{row['task_id']}": row["program"] for row in rows}
    recorded = {f"humaneval/{row['task_id']}": row["passed"] for row in rows}
    found = verdicts(play(tasks_of("humaneval", DATA)[::every], Says(said), tmp_path))
    assert found == {task: recorded[task] for task in found}
    assert every > 1 or sum(found.values()) == 72


@needs_data
@pytest.mark.sweep  # the slow tier has every fourth gold of all 974
@pytest.mark.parametrize("form", ["chat", "base"])
def test_golds_of_mbpp_pass(form: str, tmp_path: Path) -> None:
    tasks = tasks_of("mbpp", DATA, split="all", form=form)
    assert len(tasks) == 488
    assert not failed(golds(tasks, tmp_path))


@needs_data
@pytest.mark.parametrize("form", ["chat", "base"])
def test_some_golds_of_mbpp_pass(form: str, tmp_path: Path) -> None:
    tasks = tasks_of("mbpp", DATA, form=form)
    assert (len(tasks), tasks[0].id) == (250, "mbpp/12")
    assert not failed(golds(tasks[::40], tmp_path))


@pytest.mark.parametrize(
    ("there", "options", "absent"),
    [
        (("prompt", "test"), {"split": "all"}, "full/validation-00000-of-00001.parquet, mbpp/full/train"),
        (("test",), {}, "full/prompt-00000-of-00001.parquet is not there"),
        (("prompt",), {}, "full/test-00000-of-00001.parquet is not there"),
        (("prompt", "test", "train"), {"split": "validation"}, "full/validation-00000-of-00001.parquet is not there"),
        (("test",), {"shots": 0}, ""),
        (("prompt", "test"), {}, ""),
        (("prompt", "test", "validation", "train"), {"split": "all"}, ""),
    ],
)
def test_some_of_mbpps_parquet_files_never_pass_for_all(
    there: tuple[str, ...], options: dict[str, Any], absent: str, tmp_path: Path
) -> None:
    (tmp_path / "mbpp/full").mkdir(parents=True)
    for split in there:
        rows = [
            {"task_id": n, "text": "", "code": "", "test_list": ["assert True"], "test_setup_code": ""}
            for n in SPLITS[split]
        ]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / PARQUET[split])
    if absent:
        with pytest.raises(FileNotFoundError, match=f"{absent}.*python jobs/fetch_data.py mbpp"):
            tasks_of("mbpp", tmp_path, **options)
        return
    numbers = range(1, 975) if options.get("split") == "all" else SPLITS["test"]
    assert [task.id for task in tasks_of("mbpp", tmp_path, **options)] == [f"mbpp/{n}" for n in numbers]


def whole_mbpp(folder: Path) -> Path:
    """All 974 tasks in the columns of the published file, out of InterCode's copy of them."""
    (folder / "mbpp").mkdir()
    rows = read_rows(DATA / "intercode/python/ic_mbpp.json.gz")
    with (folder / "mbpp/mbpp.jsonl").open("w") as file:
        for number, row in enumerate(rows, 1):
            values = {"task_id": number, "text": row["query"], "code": row["gold"], "test_list": row["tests"]}
            file.write(json.dumps(values | {"test_setup_code": row.get("test_setup_code", "")}) + "\n")
    return folder


@pytest.mark.skipif(not (DATA / "intercode/python").is_dir(), reason="needs InterCode's MBPP beneath LEMUR_DATA")
@pytest.mark.parametrize(
    "every", [0, pytest.param(4, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.sweep)]
)
def test_every_gold_of_all_of_mbpp_passes_those_with_a_setup_too(every: int, tmp_path: Path) -> None:
    tasks = tasks_of("mbpp", whole_mbpp(tmp_path), split="all")
    assert len(tasks) == 974
    with_setup = [task for task in tasks if task.options["reference"]["setup"]]
    assert len(with_setup) == 2
    assert not failed(golds(tasks[::every] if every else with_setup, tmp_path))


def test_as_released_no_setup_of_mbpp_is_run_and_what_a_conversation_cannot_say_is_a_departure(tmp_path: Path) -> None:
    (tmp_path / "mbpp").mkdir()
    row = {"task_id": 11, "text": "Give it.", "code": "def f():\n    return g()", "test_list": ["assert f() == 1"]}
    row["test_setup_code"] = "def g():\n    return 1"
    (tmp_path / "mbpp/mbpp.jsonl").write_text(json.dumps(row) + "\n")
    (task,) = tasks_of("mbpp", tmp_path, shots=0)
    (released,) = tasks_of("mbpp", tmp_path, shots=0, mode="lemur")
    assert (task.options["reference"]["setup"], released.options["reference"]["setup"]) == (row["test_setup_code"], "")
    assert "gold" not in released.options, "none can be right without"
    as_released = {"mode": "lemur", "form": "chat", "prefill": True}
    words, turns = "request in other words", "examples' turns are ended"
    assert describe_run("mbpp", EvaluationRun("p", as_released)).departures == (words, turns)
    as_text = as_released | {"form": "base", "prefill": False}
    assert describe_run("mbpp", EvaluationRun("p", as_text)).departures == (words,)


@needs_data
def test_a_chat_models_reply_may_say_what_it_likes_around_its_code(tmp_path: Path) -> None:
    task = next(task for task in tasks_of("humaneval", DATA) if task.id == "humaneval/HumanEval/2")
    function = f"{task.options['reference']['prompt']}{task.options['gold']}"
    fenced = f"Sure!\n```python\n{function}```\nIt works:\n```\nprint(truncate_number(3.5))\n```"
    body = task.options["gold"].strip()
    for number, reply in enumerate((fenced, function, body)):
        (tmp_path / str(number)).mkdir()
        (episode,) = play([task], Says({task.id: reply}), tmp_path / str(number))
        assert episode.score == 1, reply


@needs_data
def test_as_released_a_whole_function_of_a_chat_model_is_read_and_cut_behind_its_last_return(tmp_path: Path) -> None:
    tasks = [task for task in tasks_of("humaneval", DATA, mode="lemur") if task.id.endswith(("/0", "/2"))]
    wholes = {task.id: f"{task.options['reference']['prompt']}{task.options['gold']}" for task in tasks}
    fenced = {task: f"Sure!\n```python\n{whole}\nsys.exit(1)\n```\nDone." for task, whole in wholes.items()}
    assert all(verdicts(play(tasks, Says(fenced), tmp_path)).values())
    begun = tasks_of("humaneval", DATA, mode="lemur", prefill=True)[:1]
    assert grade(fenced[begun[0].id], begun[0].options).score == 0, "a begun reply goes on, as with the released script"
    assert grade(begun[0].options["gold"], begun[0].options).score == 1


def test_scores_that_changed_as_released_alone_leave_the_recipes_of_other_runs() -> None:
    for name, of_others in {"humaneval": 2, "bbh/direct": 2}.items():  # the flexible reading of both changed for all
        benchmark = find(name)
        versions = {
            (mode, prefill): benchmark.identity_of(
                replace(benchmark.options(), mode=mode, prefill=prefill), EvaluationRequest(), "auto"
            ).get("version", 1)
            for mode in ("standard", "lemur")
            for prefill in (False, True)
        }
        assert {way for way, version in versions.items() if version > of_others} == {("lemur", False)}
        assert min(versions.values()) == of_others


def test_the_program_of_a_reply() -> None:
    prompt = "import math\n\n\ndef helper(x):\n    return x\n\n\ndef f(x):\n    '''Doc.'''\n"
    assert program_of("    return 1\n", prompt, "f") == prompt + "    return 1\n"
    assert program_of("return 1", prompt, "f") == prompt + "    return 1"
    whole = program_of("def f(x):\n    return helper(x)", prompt, "f")
    assert "def helper" in whole
    assert whole.count("def f(") == 1


def test_the_released_post_processing_keeps_up_to_the_last_return() -> None:
    assert up_to_last_return("    if x:\n        return 1\n    return 2\nprint(f)") == (
        "    if x:\n        return 1\n    return 2"
    )
    assert up_to_last_return("    yield 1") == ""


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("x = 1", "x = 1"),
        ("```python\nx = 1\n```", "x = 1"),
        ("```\nx = 1", "x = 1"),
        ("```py\na\n```\n```py\ndef f(): pass\n```\n```\nlonger than all of it\n```", "def f(): pass"),
    ],
)
def test_code_in_a_reply(reply: str, code: str) -> None:
    assert code_in(reply, r"^def f\(") == code
