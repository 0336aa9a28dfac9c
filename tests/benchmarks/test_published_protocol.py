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


def test_the_published_text_is_no_departure_and_ours_is_one_that_splits_no_row() -> None:
    published = "The following are multiple choice questions (with answers) about {subject}."
    for header, expected in ((published, []), ("Choose.", ["another header"]), ("", ["line above the examples"])):
        settings = {"mode": "lemur", "form": "base", "prompt": "full", "max_tokens": 16, "header": header}
        about = describe_run("mmlu", EvaluationRun("p", settings))
        assert [one.startswith(text) for one, text in zip(about.departures, expected, strict=True)] == [True] * len(
            expected
        )
        assert about.alone == about.departures
    recorded = EvaluationRun("replay:ic_bash_multiturn_gpt-4_10_turns", {"prompt": "full", "compat": False})
    assert describe_run("intercode/bash", recorded).departures == (), "its prompts were the published ones"
    ours = describe_run("intercode/bash", EvaluationRun("p", {"prompt": "full", "compat": True}))
    assert (ours.departures, ours.alone) == (("instruction in other words",),) * 2


def test_every_benchmark_of_the_paper_declares_its_protocol_and_nothing_else_states_departures() -> None:
    for name in names():
        details = find(name).details
        run = EvaluationRun("p", {"prompt": "full"})
        assert details.about(run).departures == (), name
        assert details.protocol or not details.about(run).column, name


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
