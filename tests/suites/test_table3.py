"""Table 3 as an ordinary chat model plays it, one that nobody begins a reply for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.trajectory import EpisodeKey, Outcome
from lemur_ray.benchmarks.contract import EvaluationRequest, all_options
from lemur_ray.benchmarks.discovery import describe_run, find
from lemur_ray.benchmarks.run_notes import EvaluationRun
from lemur_ray.evaluation.suites.command_line import parse_suite
from lemur_ray.evaluation.suites.tables import parts_of
from lemur_ray.report.pages.paper_section import section
from lemur_ray.report.paper_rows import PaperRun, rows_of
from lemur_ray.rollout.benchmark_tasks import from_json, parse_evaluation, to_json
from tests.agents.misbehaving import completion, serving
from tests.envs.programs.ds1000_items import with_numpy
from tests.envs.questions import tasks_of
from tests.report.report_samples import episode
from tests.suites.chat_model import answers, few_of_each

PLAYED = ("mmlu", "bbh/cot", "bbh/direct", "gsm8k", "humaneval", "mbpp", "spider", "multipl_e/sh", "ds1000")
GSM8K = "instruction in other words, examples of the training set (--shots-file)"
OTHER_SHOTS = "instruction in other words, another shots file"
MMLU = "line above the examples in other words (--header)"
REQUEST = "request in other words"
LEFT_OUT = sorted({part.benchmark for part in parts_of("table3")} - {*PLAYED})


def rows_of_table(page: str, title: str) -> list[list[str]]:
    """Our rows of a table: the text of every cell, its lines parted by a bar."""
    under = page.partition(f"<h3>{title}")[2].partition("</table>")[0]
    rows = re.findall(r'<tr class="strong">(.*?)</tr>', under)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    return [[unescape(re.sub(r"<[^>]+>", "", cell.replace("<br>", "|"))) for cell in row] for row in cells]


@pytest.mark.parametrize("mode", ["", pytest.param("standard", marks=pytest.mark.slow)])
def test_every_right_answer_is_scored_and_one_row_has_the_average(
    run: Callable[..., Any],
    lemur_home: Path,
    data_dir: Path,
    tmp_path: Path,
    mode: str,
) -> None:
    data = few_of_each(data_dir, tmp_path / "few")
    tasks = [task for name in PLAYED for task in tasks_of(name, data)]
    answer = answers(tasks)
    environment = with_numpy(tmp_path / "environment")
    with serving(lambda body: completion(answer(body["messages"][-1]["content"]))) as server:
        argv = ["--suite", "table3", "--policy", f"openai:{server.url}", "--policy-model", "toy", "--data", str(data)]
        argv += ["--environment", str(environment), "--libraries", "Numpy", "--without", ",".join(LEFT_OUT)]
        code, out, err = run(*argv, *(["--mode", mode] if mode else []), "--out", "s")
    assert code == 0, err
    found = json.loads(out[-1])
    assert {one["benchmark"]: one["solved"] - one["n"] for one in found["benchmarks"]} == dict.fromkeys(PLAYED, 0)
    assert found["solved"] == len(tasks)
    (row,) = rows_of_table((lemur_home / "s/index.html").read_text(), "Table 3")
    assert all(cell.startswith("100.00") for cell in row[1:10])
    assert "mean of 8" in row[9]
    assert row[0].startswith("toy (standard protocol)|" if mode else "toy|")
    assert "Spider, MultiPL-E, DS-1000: the project's protocol" in row[0]
    assert "DS-1000: numpy 1.21.6 instead of" in row[0]
    assert ("replies not begun" in row[0]) == (not mode)
    assert re.search(r"\|cot: 100\.00", row[2]), "a further way to play BBH stands in its cell"


def departures(name: str, **settings: Any) -> tuple[str, ...]:
    """Of a run in the mode lemur, as the released scripts play it but for what is said."""
    benchmark = find(name)
    of_the_run = {"prompt": "full", "temperature": 0.0, "max_tokens": benchmark.max_tokens["full"], "form": "base"}
    options = all_options(benchmark.options(), EvaluationRequest())
    run = EvaluationRun("p", {**options, **of_the_run, "mode": "lemur", **settings})
    return describe_run(name, run).departures


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("gsm8k", {}, (GSM8K,)),
        ("gsm8k", {"shots": 0, "max_tokens": 16}, (GSM8K, "shots 0", "max tokens 16")),
        ("gsm8k", {"shots_file": "/home/me/worked_examples.txt"}, (OTHER_SHOTS,)),
        ("gsm8k", {"temperature": 0.5, "top_p": 0.9}, (GSM8K, "temperature 0.5", "top p 0.9")),
        ("gsm8k", {"form": "chat"}, (GSM8K, "replies not begun")),
        ("gsm8k", {"form": "chat", "prefill": True}, (GSM8K,)),
        ("gsm8k", {"form": "chat", "mode": "standard", "shots": 5}, ("standard protocol", GSM8K, "shots 5")),
        ("gsm8k", {"seed": 3, "sandbox": "docker", "data": ["x"]}, (GSM8K,)),
        ("mmlu", {}, (MMLU,)),
        ("mmlu", {"shots": 0, "most_chars": 0}, (MMLU, "shots 0", "most chars 0")),
        ("mmlu", {"header": "Choose a letter about {subject}."}, ("another header",)),
        ("mmlu", {"form": "chat", "prefill": True}, (MMLU, "letters written instead of weighed")),
        ("mmlu", {"ask": "generate"}, (MMLU, "letters written instead of weighed")),
        ("humaneval", {"temperature": 0.2, "top_p": 0.95}, (REQUEST,)),
        ("humaneval", {}, (REQUEST, "temperature 0")),
        ("humaneval", {"mode": "standard"}, ("standard protocol", REQUEST)),
        ("spider", {}, ("the project's protocol",)),
        ("spider", {"mode": "standard", "form": "chat"}, ("the project's protocol",)),
        ("spider", {"shots": 3}, ("the project's protocol", "shots 3")),
        ("multipl_e/cpp", {"temperature": 0.2}, ("the project's protocol", "temperature 0.2")),
        ("ds1000", {"libraries": "Numpy,Pandas"}, ("the project's protocol", "Numpy,Pandas alone")),
        ("bbh/cot", {"mode": "standard"}, ("the project's protocol",)),
    ],
)
def test_departures_are_from_settings_declared_for_each_column(
    name: str, settings: dict[str, Any], said: tuple[str, ...]
) -> None:
    assert departures(name, **settings) == said


@pytest.mark.parametrize("name", ["spider", "ds1000", "multipl_e/sh", "robocodegen"])
def test_what_has_one_protocol_has_no_mode_and_the_recipe_that_it_had_with_one(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = find(name)
    assert "mode" not in {f.name for f in fields(benchmark.options)}
    with pytest.raises(SystemExit):
        parse_evaluation(["--benchmark", name, "--mode", "lemur"], name)
    assert "--mode" in capsys.readouterr().err
    assert benchmark.identity_of(benchmark.options(), EvaluationRequest(), "auto")["mode"] == "standard"
    stored = to_json(parse_evaluation(["--benchmark", name], name))
    of_before = {**stored, "options": {**stored["options"], "mode": "lemur"}}
    assert to_json(from_json(of_before)) == stored, "what was stored with one is read, and goes on"


def test_a_mode_of_a_suite_is_for_those_that_have_one() -> None:
    found = {part.benchmark: config for part, config in parse_suite(["--suite", "table3", "--mode", "standard"]).parts}
    assert found["mmlu"].options.mode == "standard"
    assert not hasattr(found["spider"].options, "mode")


def played(name: str, **settings: Any) -> PaperRun:
    key = EpisodeKey(name, "t", "m", str(settings), 0)
    sampled = episode("t", Outcome.SOLVED, benchmark=name)
    about = describe_run(name, EvaluationRun("m", {"temperature": 0.0, **settings}))
    return PaperRun("m", [replace(sampled, key=key)], about)


def test_bbh_with_steps_stands_in_the_cell_of_bbh_and_makes_no_row() -> None:
    direct, cot = played("bbh/direct", mode="lemur"), played("bbh/cot", mode="standard")
    for runs in ([direct, cot], [cot, direct]):
        (row,) = rows_of(runs)
        assert (row.name, list(row.of_column("BBH"))) == ("m", ["", "cot"])
        assert "BBH: cot: the project's protocol" in row.played_as(["BBH"])
    (alone,) = rows_of_table(section([cot]), "Table 3")
    assert alone[2].startswith("cot: 100.00")
    (both,) = rows_of_table(section([direct, cot]), "Table 3")
    assert re.fullmatch(r"100\.00.*\|cot: 100\.00.*", both[2])


def test_columns_of_one_protocol_are_in_the_rows_of_both_modes() -> None:
    runs = [played("gsm8k", mode="lemur"), played("gsm8k", mode="standard"), played("spider", mode="standard")]
    found = {row.name: sorted(row.plain) for row in rows_of(runs)}
    assert found == {"m": ["GSM8K", "Spider"], "m (standard protocol)": ["GSM8K", "Spider"]}
    (row,) = rows_of(runs[2:])
    assert row.played_as(["Spider"]).endswith("Spider: the project's protocol")
    fewer = [played("gsm8k", mode="lemur"), played("gsm8k", mode="lemur", shots=0)]
    assert [row.name for row in rows_of(fewer)] == ["m", "m (shots 0)"], "two runs never share a cell"


def test_a_suite_plays_humaneval_as_released_and_javascript_not_at_all() -> None:
    found = {part.benchmark: config for part, config in parse_suite(["--suite", "table3"]).parts}
    drawn = {name: (config.temperature, config.top_p) for name, config in found.items() if config.temperature}
    assert drawn == {"humaneval": (0.2, 0.95)}
    assert {name.partition("/")[2] for name in found if "multipl_e" in name} == {"cpp", "java", "php", "ts", "cs", "sh"}
    assert found["bbh/cot"].options.mode == "standard", "the released script cannot read a worked answer"
    greedy = {part.benchmark: c for part, c in parse_suite(["--suite", "table3", "--temperature", "0"]).parts}
    assert greedy["humaneval"].temperature == 0
