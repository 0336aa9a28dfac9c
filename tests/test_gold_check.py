"""A benchmark's own answers must score 1: those that do not are named, and the job ends with 1."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from lemur_ray.evaluation import gold_check
from tests.conftest import ROOT

PLUG_IN = '''
"""Sums, of which the book has one wrong."""

from dataclasses import dataclass

from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.question import Graded, QuestionDetails, question


@dataclass(frozen=True)
class Options:
    offset: int = 0
    """Added to every gold."""


def load(options, asked):
    for number, gold in enumerate(["2", "4", GOLD]):
        right = str(2 + 2 * number)
        said = str(int(gold) + options.offset) if gold.isdigit() else gold
        yield question("sums", f"sums/{number}", "sums", "?", f"{__name__}:grade", right, QuestionDetails(gold=said))


def without_golds(options, asked):
    yield question("sums", "sums/0", "sums", "?", f"{__name__}:grade", "2")


def grade(reply, options):
    if reply == "boom":
        raise RuntimeError("the grader fell over")
    return Graded(float(reply == options["reference"]), reply, "" if reply == options["reference"] else "not the sum")


def with_some(options, asked):
    yield from without_golds(options, asked)
    yield question("sums", "sums/1", "sums", "?", f"{__name__}:grade", "2", QuestionDetails(gold="2"))


SOME = Benchmark(Options, with_some, {"full": 8, "brief": 8})
SUMS = Benchmark(Options, load, {"full": 8, "brief": 8}, has_hints=HINTS)
BARE = Benchmark(Options, without_golds, {"full": 8, "brief": 8})
'''
Check = Callable[..., int]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """``agent_eval --check-gold`` on a plug-in whose third gold is given."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "home"))
    job = importlib.import_module("agent_eval")

    def run(gold: str, *flags: str, name: str = "SUMS", hints: bool = True) -> int:
        module = f"sums_{abs(hash((gold, hints)))}"
        (tmp_path / f"{module}.py").write_text(PLUG_IN.replace("GOLD", repr(gold)).replace("HINTS", repr(hints)))
        importlib.invalidate_caches()
        code: int = job.main(["--check-gold", "--benchmark", f"{module}:{name}", *flags])
        return code

    return run


def test_right_golds_are_counted_and_the_job_ends_with_0(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("6") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(":SUMS: 3 golds, 3 score 1")


@pytest.mark.parametrize("hints", [True, False])
def test_a_wrong_gold_of_a_plug_in_is_named_with_why(
    hints: bool, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("7", hints=hints) == 1
    named, summed = capsys.readouterr().out.splitlines()
    assert named.startswith("sums/2: scores 0: not the sum")
    assert summed.endswith("3 golds, 2 score 1")


def test_a_grader_that_falls_over_is_named_too(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("boom") == 1
    assert "sums/2: not graded:" in (said := capsys.readouterr().out)
    assert "the grader fell over" in said


def test_flags_of_the_benchmark_and_of_evaluations_hold(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("6", "--offset", "1") == 1
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert check("6", "--tasks", "sums/1") == 0
    assert "1 golds, 1 score 1" in capsys.readouterr().out


def test_tasks_without_a_gold_are_not_counted(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("6", name="SOME") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(":SOME: 1 golds, 1 score 1")


def test_a_benchmark_without_golds_says_so(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("6", name="BARE") == 1
    assert "declares no gold" in capsys.readouterr().err


def test_of_all_benchmarks_those_that_cannot_be_played_are_said_and_no_fault(
    tmp_path: Path, check: Check, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("7") == 1
    (module,) = [path.stem for path in tmp_path.glob("sums_*.py")]
    capsys.readouterr()
    monkeypatch.setattr(gold_check, "names", lambda: iter(["gsm8k", f"{module}:BARE", f"{module}:SUMS"]))
    (tmp_path / "no-data").mkdir()
    assert gold_check.check_golds(["--check-gold", "--data", str(tmp_path / "no-data")], print) == 1
    absent, bare, named, summed = capsys.readouterr().out.splitlines()
    assert absent.startswith("gsm8k: not checked:")
    assert bare == f"{module}:BARE: not checked: declares no gold: neither an expert nor a task with one"
    assert named.startswith("sums/2: scores 0")
    assert "SUMS: 3 golds, 2 score 1" in summed


def test_flags_of_some_are_for_those_that_have_them_and_a_value_that_one_refuses_ends_nothing(
    tmp_path: Path, check: Check, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("6") == 0
    (module,) = [path.stem for path in tmp_path.glob("sums_*.py")]
    capsys.readouterr()
    monkeypatch.setattr(gold_check, "names", lambda: iter(["mmlu", f"{module}:SUMS"]))
    flags = ["--offset", "1", "--shots", "7", "--data", str(tmp_path)]
    assert gold_check.check_golds(["--check-gold", *flags], print) == 1
    refused, *wrong, summed = capsys.readouterr().out.splitlines()
    assert refused.startswith("mmlu: not checked: --shots 7: expected 0 to 5")
    assert len(wrong) == 3, "SUMS has --offset, and no --shots"
    assert "3 golds, 0 score 1" in summed
    with pytest.raises(SystemExit, match="2"):
        gold_check.check_golds(["--check-gold", *flags, "--nobodys", "1"], print)
