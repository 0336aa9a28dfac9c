"""The published protocol of a benchmark: declared once, set by a flag, and what a run departs from."""

from __future__ import annotations

import pytest

from lemur_ray.benchmarks.discovery import describe_run, find, names
from lemur_ray.benchmarks.run_notes import EvaluationRun
from lemur_ray.rollout.benchmark_tasks import parse_evaluation


def test_departures_are_differences_from_the_declared_protocol() -> None:
    settings = {"shots": 0, "form": "chat", "prompt": "full", "temperature": 0.5}
    expected = ("header in other words", "shots 0", "temperature 0.5")
    assert describe_run("mmlu_pro", EvaluationRun("p", settings)).departures == expected
    assert describe_run("bfcl", EvaluationRun("p", {"tools": "native"})).departures == ()
    assert describe_run("bfcl", EvaluationRun("p", {"tools": "words"})).departures == ("tools words",)
    assert describe_run("bfcl", EvaluationRun("p")).departures == ("settings not recorded",)


def test_the_flag_sets_what_the_protocol_prescribes_and_another_flag_wins(capsys: pytest.CaptureFixture[str]) -> None:
    def parsed(name: str, *more: str) -> object:
        return parse_evaluation(["--benchmark", name, "--protocol", "published", *more], "").options

    assert parsed("mmlu").mode == "lemur"  # type: ignore[attr-defined]
    assert "shots: 5 of the subject" in capsys.readouterr().err
    assert parsed("bfcl").tools == "native"  # type: ignore[attr-defined]
    assert "shots: none\n" in capsys.readouterr().err
    assert parsed("bfcl", "--tools", "words").tools == "words"  # type: ignore[attr-defined]
    assert parse_evaluation(["--benchmark", "mmlu"], "").options.mode == "standard"
    with pytest.raises(ValueError, match="--protocol other: expected published"):
        parse_evaluation(["--benchmark", "mmlu", "--protocol=other"], "")


def test_protocols_prescribe_options_that_there_are() -> None:
    for name in names():
        benchmark = find(name)
        if benchmark.details.protocol is not None:
            parse_evaluation(["--benchmark", name, "--protocol", "published"], "")
            assert all(len(line.partition(": ")[2]) > 3 for line in benchmark.details.protocol.lines())
