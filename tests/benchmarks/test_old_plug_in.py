"""A plug-in that was written against the contract of the previous release is played, and told what to change."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents import external_calls
from lemur_ray.benchmarks import contract, needs, rows, run_notes, sandboxed
from lemur_ray.benchmarks.contract import EvaluationRequest, storable_options
from lemur_ray.benchmarks.discovery import find

PLUG_IN = '''
from dataclasses import dataclass

from lemur_ray.benchmarks.about import About, Run, plain
from lemur_ray.benchmarks.contract import Asked, Benchmark, content, place
from lemur_ray.benchmarks.needs import Need, begins, there
from lemur_ray.benchmarks.question import Graded, question
from lemur_ray.benchmarks.takes import Takes


@dataclass(frozen=True)
class Options:
    server: str = place("here", written_as=lambda url: url.partition(":")[0])
    """Where it is."""
    rows: str = content()
    """What is asked."""


def load(options: Options, asked: Asked):
    if asked.prompt == "none":
        asked.outside("what sums ask")
    yield question("sums", "sums/1", "sums", "1 + 1?", f"{__name__}:grade", "2", gold="2")


def asks(options):
    return ("openai:http://host/v1#judge",)


def views(episode):
    return ()


def about(run):
    return About(column="Sums")


def grade(reply, options):
    return Graded(float(reply == options["reference"]), reply)


TOKENS = {"full": 8, "brief": 8}
SUMS = Benchmark(Options, load, TOKENS, needs=begins(load), step_s=7.0, asks=asks, views=views, about=about,
                 takes=Takes(0.5).at_most(Takes(0.25)))
'''


def test_a_plug_in_of_the_previous_release_is_found_and_makes_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sums_of_yesterday.py").write_text(PLUG_IN)
    with pytest.warns(DeprecationWarning, match="is now") as warned:
        benchmark = find("sums_of_yesterday:SUMS")
    messages = [str(one.message) for one in warned]
    assert any("contract.Asked is now EvaluationRequest: use that name" in message for message in messages)
    options = benchmark.options(server="mysql:secret")
    assert storable_options(options) == {"server": "mysql", "rows": ""}
    with pytest.warns(DeprecationWarning, match="gold are now fields of details=QuestionDetails"):
        assert [task.options["gold"] for task in benchmark.load(options, EvaluationRequest())] == ["2"]
    with pytest.warns(DeprecationWarning, match="gold are now fields of details=QuestionDetails"):
        assert needs.missing_requirements(benchmark.requirements(options, EvaluationRequest())) == []
    assert any("step_s= is now min_step_s=" in message for message in messages)
    assert any("asks= is now details=BenchmarkDetails(endpoints=...)" in message for message in messages)
    assert benchmark.min_step_s == 7.0
    assert benchmark.details.endpoints(options) == ("openai:http://host/v1#judge",)
    assert benchmark.details.about(run_notes.EvaluationRun("p")).column == "Sums"
    with pytest.warns(DeprecationWarning, match="Benchmark: size= is now details=BenchmarkDetails"):
        resized: Any = replace(benchmark, size="one")
    assert (resized.details.size, resized.details.endpoints) == ("one", benchmark.details.endpoints)
    with pytest.warns(DeprecationWarning, match="Benchmark.asks is now Benchmark.details.endpoints"):
        assert resized.asks is benchmark.details.endpoints
    sys.modules.pop("sums_of_yesterday")


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (contract, "whole", "all_options"),
        (external_calls, "OutsideFault", "ExternalCallError"),
        (needs, "Need", "Requirement"),
        (rows, "rows_of", "read_rows"),
        (run_notes, "About", "RunDescription"),
        (sandboxed, "without", "missing_programs_departure"),
    ],
)
def test_an_old_name_is_the_new_one_with_a_warning(module: object, old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}: use that name"):
        assert getattr(module, old) is getattr(module, new)
    with pytest.raises(AttributeError, match="no_such_name"):
        importlib.import_module("lemur_ray.benchmarks.contract").no_such_name  # noqa: B018
