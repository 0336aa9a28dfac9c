"""What a benchmark's load makes is looked at, task by task: what is wrong is a sentence before anything is played."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks import task_validation as module
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest
from lemur_ray.benchmarks.discovery import find, names
from lemur_ray.benchmarks.needs import missing_requirements
from lemur_ray.benchmarks.task_validation import validated_tasks
from lemur_ray.rollout.benchmark_tasks import available_tasks
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.storage.bundles.host_path import HostPath

RIGHT = Task("own/one", "1", "nowhere", "", {"a": [1, 2.5, None, True, {"b": ()}], "file": HostPath("/data")}, 1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"category": 3}, r"own: task 1: category is '3' \(int\), expected a text"),
        ({"cluster": None}, "cluster is 'None'"),
        ({"id": 7}, r"task 0 \(from 0\): id is '7'"),
        ({"id": ""}, "expected a text that is not empty"),
        ({"benchmark": b"own"}, "benchmark is"),
        ({"env_id": ""}, "env_id is"),
        ({"max_turns": 0}, "max_turns is '0'"),
        ({"max_turns": True}, "expected a whole number"),
        ({"after": "1"}, "expected ids of tasks"),
        ({"options": {"reference": {1, 2}}}, r"options\['reference'\] is '\{1, 2\}' \(set\), expected a JSON value"),
        ({"options": {"a": [{"b": Path("x")}]}}, r"options\['a'\]\[0\]\['b'\] is 'x' \(PosixPath\)"),
        ({"options": {"a": float("nan")}}, "nan, which JSON has not"),
        ({"options": {1: "a"}}, "expected texts as keys"),
        ({"options": ["a"]}, "options are no mapping"),
    ],
)
def test_a_task_that_cannot_be_kept_is_named_with_its_field(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(validated_tasks("own", lambda: [replace(RIGHT, **wrong)]))


def test_options_that_have_no_bottom_are_refused() -> None:
    bottomless: dict[str, Any] = {}
    bottomless["a"] = bottomless
    with pytest.raises(ValueError, match="nested too deeply"):
        list(validated_tasks("own", lambda: [replace(RIGHT, options=bottomless)]))


def test_a_right_task_stays_as_it_is() -> None:
    assert list(validated_tasks("own", lambda: [RIGHT])) == [RIGHT]
    assert next(validated_tasks("own", lambda: [replace(RIGHT, after=["0"])])).after == ("0",)  # type: ignore[arg-type]


def raises(error: BaseException) -> Iterator[Any]:
    yield RIGHT
    raise error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("x"), r"own: its tasks cannot be loaded: KeyError: 'x' \(.*test_loaded.py, line \d+\)"),
        (SystemExit(2), r"asked the process to end \(2\)"),
        (ValueError("--split x: unknown"), "^--split x: unknown$"),
    ],
)
def test_whatever_load_raises_is_a_sentence(error: BaseException, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(validated_tasks("own", lambda: raises(error)))


@pytest.mark.parametrize(("answer", "said"), [(None, "answered NoneType"), ([{"id": "1"}], "its task 0 is a dict")])
def test_what_is_no_tasks_is_said(answer: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(validated_tasks("own", lambda: answer))


def test_a_missing_file_is_said_in_the_words_of_load() -> None:
    with pytest.raises(FileNotFoundError, match="fetch it with"):
        list(validated_tasks("own", lambda: raises(FileNotFoundError("not there: fetch it with ..."))))


def endless(options: Any, request: EvaluationRequest) -> Iterable[Task]:
    return (replace(RIGHT, id=str(number)) for number in itertools.count())


def test_tasks_without_end_are_made_as_far_as_they_are_asked_for_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(benchmark: Benchmark[Any], **asked: Any) -> int:
        return len(available_tasks(EvalConfig(options=None, benchmark="own", **asked), benchmark, EvaluationRequest()))

    limited = Benchmark(object, endless, {"full": 8, "brief": 8}, default_limit=20)
    assert (made(limited), made(limited, limit=5)) == (20, 5)
    without = replace(limited, default_limit=0)
    assert made(without, limit=5, sample="first") == 5
    monkeypatch.setattr(module, "MOST", 1000)
    with pytest.raises(ValueError, match=r"it has made 1,000 tasks; what makes tasks without end has a default_limit"):
        made(without, limit=5)


def test_what_a_benchmark_that_declares_no_needs_lacks_is_seen_in_its_first_task() -> None:
    wrong = Benchmark(object, lambda options, request: [replace(RIGHT, category=3)], {"full": 8, "brief": 8})
    assert "category is '3'" in missing_requirements(wrong.requirements(None, EvaluationRequest()))[0]


@pytest.mark.slow
def test_ours_make_tasks_that_can_be_kept(data_dir: Path) -> None:
    seen = set()
    for name in names():
        benchmark = find(name)
        try:
            first = list(itertools.islice(benchmark.load(benchmark.options(), EvaluationRequest(data_dir)), 2))
        except (ValueError, OSError):
            continue  # its data lies nowhere here
        assert list(validated_tasks(name, lambda first=first: first)) == first  # type: ignore[misc]
        seen.add(name.partition("/")[0])
    assert {"alfworld", "bbh", "gsm8k", "humaneval", "intercode", "mbpp", "mint", "mmlu", "spider"} <= seen
