"""What a benchmark of somebody else says of its runs stands on their pages, is kept with them, and spoils none."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails
from lemur_ray.benchmarks.discovery import find, is_ours
from lemur_ray.benchmarks.plugin_metadata import plugin_metadata, stored_description
from lemur_ray.benchmarks.run_notes import EvaluationRun, RecordedName, RunDescription
from lemur_ray.report.inputs import read_settings
from lemur_ray.report.pages.whole_page import render_report, render_run
from lemur_ray.report.run_metadata import RunMetadata
from lemur_ray.rollout.ledger import read_episodes
from tests.conftest import ROOT

PLUG_IN = """
from dataclasses import dataclass, replace

from lemur_ray.benchmarks.run_notes import RunDescription
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails
from lemur_ray.benchmarks.question import Graded, QuestionDetails, question
from lemur_ray.benchmarks.episode_artifacts import View


@dataclass(frozen=True)
class Options:
    pass


def load(options, asked, name="sums"):
    for number in range(2):
        yield question(name, f"sums/{number}", "sums", "?", f"{__name__}:grade", "2", QuestionDetails(gold="2"))


def grade(reply, options):
    return Graded(float(reply == "2"), reply)


def breaks(found):
    raise RuntimeError("fell over")


def about(run):
    return RunDescription(limits=("Sums below ten.",), column="GSM8K", departures=("no carrying",), protocol={"a": [1]})


SUMS = Benchmark(Options, load, {"full": 8, "brief": 8}, has_hints=True, details=BenchmarkDetails(about=about))
STOLEN = replace(SUMS, load=lambda options, asked: load(options, asked, "gsm8k"))
SEEN = replace(SUMS, details=BenchmarkDetails(views=lambda episode: [View(1, text=f"seen in {episode.key.task}")]))
BREAKS = replace(SUMS, details=BenchmarkDetails(about=breaks, notes=breaks, views=breaks))
"""
Play = Callable[[str], tuple[int, list[str], str]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Play]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "home"))
    (tmp_path / "sums_with_words.py").write_text(PLUG_IN)
    job = importlib.import_module("agent_eval")

    def run(name: str) -> tuple[int, list[str], str]:
        argv = ["--benchmark", f"sums_with_words:{name}", "--policy", "expert", "--actors", "0"]
        code = job.main([*argv, "--out", str(tmp_path / "out")])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    yield run
    for name in ("agent_eval", "_path", "sums_with_words"):
        sys.modules.pop(name, None)


def test_what_a_plug_in_says_is_kept_with_its_runs_and_outlives_it(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert play("SUMS")[0] == 0
    assert "Sums below ten." in (out / "index.html").read_text()
    (kept,) = json.loads((out / "evaluations.json").read_text()).values()
    assert kept["told"]["sums"]["expert"]["benchmark"] == "sums_with_words:SUMS"
    (tmp_path / "sums_with_words.py").unlink()
    sys.modules.pop("sums_with_words")
    with pytest.raises(ValueError, match="cannot be imported"):
        find("sums_with_words:SUMS")
    about = RunMetadata(read_settings(out)).about(read_episodes(out / "episodes.jsonl"))
    assert (about.column, about.departures, about.protocol) == ("GSM8K", ("no carrying",), {"a": [1]})
    render_run(out)
    assert "Sums below ten." in (out / "index.html").read_text()


def test_what_a_plug_in_kept_of_an_episode_stands_on_the_pages_of_its_run_and_of_a_report(
    play: Play, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert play("SEEN")[0] == 0
    assert all(f"seen in sums/{number}" in (out / "index.html").read_text() for number in range(2))
    render_report(tmp_path / "report", runs=[], episodes=[out], corpus=None)
    (transcripts,) = (tmp_path / "report/transcripts").glob("*.html")
    assert "seen in sums/1" in transcripts.read_text()


def test_tasks_that_take_the_name_of_another_benchmark_are_refused(play: Play) -> None:
    code, _, err = play("STOLEN")
    assert code == 1
    assert "its tasks say that they are of gsm8k, which is another benchmark" in err


def test_words_that_cannot_be_had_cost_themselves_and_stand_where_they_would_have_stood(
    play: Play, tmp_path: Path
) -> None:
    code, out, err = play("BREAKS")
    assert code == 0
    said = json.loads(out[-1])
    assert said["solved"] == 2
    assert "RuntimeError: fell over" in said["notes_failed"]
    assert err.count("what it says of its runs cannot be had: RuntimeError: fell over") == 1
    page = (tmp_path / "out/index.html").read_text()
    assert "what it says of its runs cannot be had" in page
    assert "RuntimeError: fell over" in page


WORDS = RunDescription(
    limits=("a",), departures=("b", "c"), here=("c",), words={"x": ("{value} x", "no x")}, comparable=False,
    recorded=RecordedName("gpt-4", turns=3),
)  # fmt: skip


def test_words_come_back_from_a_file_as_they_were() -> None:
    details = BenchmarkDetails(about=lambda run: WORDS)
    theirs: Benchmark[Any] = Benchmark(object, lambda o, a: [], {}, version=3, details=details)
    kept = json.loads(json.dumps(plugin_metadata("theirs:X", theirs, "x", EvaluationRun("p"))))
    assert kept["x"]["p"]["version"] == 3
    assert stored_description(kept, "x", "p") == WORDS
    assert stored_description(kept, "x", "q") is None
    assert plugin_metadata("gsm8k", find("gsm8k"), "gsm8k", EvaluationRun("p")) == {}, "ours are asked anew"


@pytest.mark.parametrize(
    "wrong", [None, 3, {"x": 3}, {"x": {"p": {"about": {"limits": 3}}}}, {"x": {"p": {"about": {"column": []}}}}]
)
def test_what_is_no_words_is_none(wrong: Any) -> None:
    assert stored_description(wrong, "x", "p") is None


def test_ours_are_those_that_are_asked_for_by_our_names() -> None:
    assert [is_ours(name) for name in ("gsm8k", "bbh/cot", "gym:a:B", "envs.language.gsm8k.benchmark:X", "x:Y")] == [
        True, True, True, False, False
    ]  # fmt: skip
