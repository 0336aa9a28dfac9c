"""Nothing that goes to another host holds a path of the driver: tasks of every benchmark, recordings, policies."""

from __future__ import annotations

import itertools
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.external_calls import RegisteringFactory
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find, names
from lemur_ray.storage.bundles.bundle import Bundle, BundleError
from lemur_ray.storage.bundles.host_path import (
    HostPath,
    host_path_option,
    mark_host_paths,
    pack_options,
    unpack_options,
)
from tests.source_tree import ROOT

MOST = 120
"""Tasks of one benchmark that makes them one by one."""
LOGS = {
    "intercode/bash": "intercode/logs/bash/vicuna/ic_bash_multiturn_vicuna_10_turns_fs_1.json.gz",
    "intercode/python": "intercode/logs/python/gpt-3.5/ic_python_multiturn_gpt-3.5_7_turns.json.gz",
    "intercode/sql": "intercode/logs/sql/vicuna/ic_sql_multiturn_vicuna_10_turns.json.gz",
}


class Published:
    """Stands in for a store: names, and what was asked for."""

    def __init__(self) -> None:
        self.sources: dict[str, Path] = {}

    def __call__(self, source: Path, dated: bool) -> Bundle:
        assert source.exists(), source
        digest = f"{len(self.sources):064d}"
        self.sources[digest] = source
        return Bundle(f"gs://bucket/bundles/{digest}.tar", digest, 1)

    def local(self, bundle: Bundle) -> Path:
        source = self.sources[bundle.digest]
        return source if source.is_dir() else source.parent


def assert_no_path(what: bytes, *folders: Path) -> None:
    for folder in (*folders, ROOT, ROOT.resolve(), Path.home() / "lemur"):
        at = what.find(os.fsencode(folder))
        assert at < 0, what[max(0, at - 100) : at + 200]


def assert_tasks_cross(tasks: Any, home: Path, data: Path | None) -> Published:
    published = Published()
    tasks = list(itertools.islice(tasks, MOST))
    assert tasks
    sent = [pack_options(task.options, published) for task in tasks]
    folders = [home.parent, *([data, data.resolve()] if data else [])]
    assert_no_path(
        pickle.dumps([replace(task, options=options) for task, options in zip(tasks, sent, strict=True)]), *folders
    )
    back = [unpack_options(pickle.loads(pickle.dumps(options)), published.local) for options in sent]
    assert back == [dict(task.options) for task in tasks], "on this host a bundle's folder is the folder itself"
    return published


WRITTEN = ("bfcl", "gpqa", "ifeval", "livecodebench", "math_500", "mmlu_pro", "tau_bench")
"""Families without test data, whose tests write a few rows: their tasks hold texts, or a file as a ``HostPath``."""


@pytest.mark.parametrize("name", list(names()))
def test_no_task_of_a_benchmark_takes_a_path_of_this_host_along(name: str, lemur_home: Path, data_dir: Path):
    benchmark = find(name)
    try:
        tasks = list(itertools.islice(benchmark.load(benchmark.options(), EvaluationRequest(data_dir)), MOST))
    except (ValueError, FileNotFoundError) as error:
        if "sites" not in str(error) and "no games" not in str(error) and name.split("/")[0] not in WRITTEN:
            raise
        pytest.skip(f"not among the test data: {error}")
    assert_tasks_cross(tasks, lemur_home, data_dir)


@pytest.mark.parametrize("name", LOGS)
def test_a_recording_goes_along_with_its_tasks_and_within_its_policy(name: str, lemur_home: Path, data_dir: Path):
    file, benchmark = data_dir / LOGS[name], find(name)
    tasks = benchmark.load(benchmark.options(), EvaluationRequest(data_dir, recording=file))
    assert file in assert_tasks_cross(tasks, lemur_home, data_dir).sources.values()
    spec = PolicySpec.parse(f"replay:{file}", recordings=benchmark.details.recording_format)
    sent = pickle.dumps(RegisteringFactory(spec.without_files(), ()))
    assert_no_path(sent, data_dir, lemur_home)
    policy: Any = pickle.loads(sent)()
    assert policy.name == spec.label
    assert policy.recording.episodes == spec().recording.episodes  # type: ignore[attr-defined]


def test_mints_log_its_teacher_and_an_index_are_named_by_kind(lemur_home: Path, data_dir: Path, tmp_path: Path):
    file = next((data_dir / "mint" / "outputs").glob("*/F=gpt-4-0613/math.results.jsonl.gz"))
    benchmark = find("mint/math")
    tasks = benchmark.load(benchmark.options(), EvaluationRequest(data_dir, recording=file))
    assert set(assert_tasks_cross(tasks, lemur_home, data_dir).sources.values()) == {file}
    (tmp_path / "index.sqlite").write_text("")
    index = host_path_option(f"index:{tmp_path / 'index.sqlite'}", "index", "log")
    assert isinstance(index, HostPath)
    published = Published()
    sent = pack_options({"wikipedia": index, "teacher": host_path_option("openai:http://x#m", "log")}, published)
    assert_no_path(pickle.dumps(sent), tmp_path)
    back = unpack_options(sent, lambda bundle: Path("/there"))
    assert back == {"wikipedia": "index:/there/index.sqlite", "teacher": "openai:http://x#m"}


def test_files_that_a_browsers_benchmark_reads_go_along(lemur_home: Path, tmp_path: Path):
    (tmp_path / "prompt.json").write_text("{}")
    benchmark = find("webarena/standin")
    options = benchmark.options(prompt_file=str(tmp_path / "prompt.json"))
    assert_tasks_cross(benchmark.load(options, EvaluationRequest()), lemur_home, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"artefacts": "/here/kept"}, "/here/kept: --artefacts is a folder of the driver's host"),
        (
            {"chromium_executable": "/here/chromium"},
            "/here/chromium: .*leave it out, so that each host takes the chromium",
        ),
        ({"judge": "openai:http://x/v1#m", "judge_file": "/here/answers"}, "with --judge replay it is read on every"),
    ],
)
def test_what_only_this_host_can_use_stays_here_and_is_refused_in_a_sentence_elsewhere(
    options: dict[str, str], said: str, lemur_home: Path
):
    benchmark = find("webarena/standin")
    task = next(iter(benchmark.load(benchmark.options(**options), EvaluationRequest())))
    again = pickle.loads(pickle.dumps(task.options))
    for copy in (task.options, again):
        assert {name: copy[name] for name in options} == options
        with pytest.raises(BundleError, match=said):
            pack_options(copy, Published())


def test_a_judge_that_is_replayed_takes_its_answers_along(lemur_home: Path, tmp_path: Path):
    (tmp_path / "answers.jsonl").write_text("")
    benchmark = find("webarena/standin")
    options = benchmark.options(judge="replay", judge_file=str(tmp_path / "answers.jsonl"))
    assert_tasks_cross(itertools.islice(benchmark.load(options, EvaluationRequest()), 3), lemur_home, None)


def test_files_among_the_arguments_of_somebody_elses_environment_go_along(lemur_home: Path, tmp_path: Path):
    (tmp_path / "levels").mkdir()
    (tmp_path / "levels" / "1.txt").write_text("easy")
    there = {"folder": str(tmp_path / "levels"), "all": [str(tmp_path / "levels" / "1.txt")]}
    named_only = {"sep": "/", "scratch": "/tmp", "command": "/look around", "word": "levels", "null": "/dev/null"}
    published = Published()
    sent = pack_options({"arguments": mark_host_paths({**there, **named_only, "size": 3})}, published)
    assert_no_path(pickle.dumps(sent), tmp_path)
    assert set(published.sources.values()) == {tmp_path / "levels", tmp_path / "levels" / "1.txt"}
    assert unpack_options(sent, published.local) == {"arguments": {**there, **named_only, "size": 3}}
    name = "gym:tests.envs.foreign.guessing:test/Guess-v0"
    benchmark = find(name)
    options = benchmark.options(seeds=2, arguments=json.dumps({"says": str(tmp_path / "levels" / "1.txt")}))
    assert_tasks_cross(benchmark.load(options, EvaluationRequest()), lemur_home, None)


def test_a_task_folder_of_the_harbor_kind_goes_along_whole(lemur_home: Path, tmp_path: Path):
    for name in ("one", "two"):
        folder = tmp_path / "tasks" / name
        for path, text in {
            "task.toml": "",
            "instruction.md": "Say hello.",
            "environment/Dockerfile": "FROM scratch",
            "tests/test.sh": "true",
        }.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    benchmark = find(f"harbor:{tmp_path / 'tasks'}")
    published = assert_tasks_cross(benchmark.load(benchmark.options(), EvaluationRequest()), lemur_home, None)
    assert set(published.sources.values()) == {tmp_path / "tasks" / "one", tmp_path / "tasks" / "two"}


def test_a_policy_that_is_served_takes_no_file_along():
    spec = PolicySpec("openai", "http://127.0.0.1:1/v1", "m", "m", chat_template="/here/chat.jinja")
    assert_no_path(pickle.dumps(spec.without_files()), Path("/here"))


def test_a_path_keeps_what_goes_along_however_it_is_copied(tmp_path: Path):
    (tmp_path / "a").mkdir()
    path = HostPath(tmp_path / "a" / "b.sqlite", tmp_path / "a", dated=True)
    again = pickle.loads(pickle.dumps(path))
    assert (again, again.root, again.dated, again.within) == (path, str(tmp_path / "a"), True, "b.sqlite")
    assert isinstance(again, str)
    assert again == str(tmp_path / "a" / "b.sqlite")
