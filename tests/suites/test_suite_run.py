"""A table of the paper as one run: looked at before anything is played, played, resumed, reported."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lemur_ray.benchmarks.data_sets import data_sets, select_data_sets
from lemur_ray.evaluation.suites.command_line import parse_suite
from lemur_ray.evaluation.suites.play import live_suite, play_suite
from tests.agents.misbehaving import completion, serving

Run = Callable[..., tuple[int, list[str], str]]


def test_what_lacks_anywhere_is_said_once_before_anything_is_played(run: Run, lemur_home: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "of mine").mkdir()
    argv = ("--suite", "table4", "--policy", "openai:http://127.0.0.1:9/v1", "--data", str(folder), "--out", "s")
    code, out, err = run(*argv)
    assert code == 1
    assert not out
    assert "table4 is not begun" in err
    subsets = [f"mint/{subset}" for subset in ("gsm8k", "math", "theoremqa", "hotpotqa", "mmlu")]
    assert f"The data of {', '.join(subsets)} is not there (89 kB). One command fetches it:" in err
    assert f"python jobs/fetch_data.py {' '.join(subsets)} --data '{folder}'\n" in err
    chosen = select_data_sets(subsets, data_sets(lambda problem: None))
    files = {one.path: one.size for part in chosen for one in part.sources}
    assert round(sum(files.values()) / 1000) == 89, "what the command fetches"
    assert err.count("http://127.0.0.1:9/v1") == 1, "said once for all five"
    assert "Nothing was played" in err
    assert not list((lemur_home / "s").glob("*/episodes.jsonl"))


def test_a_table_is_played_resumed_and_reported_as_one(run: Run, lemur_home: Path, data_dir: Path) -> None:
    with serving(lambda body: completion("<solution>1</solution>")) as server:
        argv = ("--suite", "table4", "--policy", f"openai:{server.url}", "--policy-model", "toy", "--limit", "1")
        argv += ("--data", str(data_dir), "--price-in", "1000", "--price-out", "1000", "--out", "s")
        code, out, err = run(*argv, "--without", "mint/math,mint/mmlu,mint/hotpotqa")
        assert code == 0
        found = json.loads(out[-1])
        assert (found["suite"], found["n"], found["scored"], found["left"]) == ("table4", 2, 2, 0)
        assert [one["benchmark"] for one in found["benchmarks"]] == ["mint/gsm8k", "mint/theoremqa"]
        assert found["cost"] == pytest.approx(9 * _asked(server.paths) / 1000)
        assert found["cut_replies"] == {"count": 0, "n": _asked(server.paths), "share": 0.0}
        assert found["not_played"][0] == "M-MATH: mint/math was left out by --without"
        assert "benchmark 2 of 2; suite: " in err
        file = lemur_home / "s/mint-gsm8k/config.yaml"
        assert f"out: {file.parent}\n" in file.read_text()
        suite = parse_suite([*argv, "--without", "mint/math,mint/mmlu,mint/hotpotqa"])
        play_suite(replace(suite, out="gs://bucket/s").within(suite.out))
        assert "out: gs://bucket/s/mint-gsm8k\n" in file.read_text(), "as it was given, not the local copy"
        page = (lemur_home / "s/index.html").read_text()
        assert "Table 4" in page
        assert "<th>cut replies</th>" in page
        assert 'href="mint-gsm8k/index.html"' in page
        assert "no search" in page, "departures stand beside the numbers"
        asked = _asked(server.paths)
        _, out, _ = run(*argv, "--without", "mint/math,mint/mmlu,mint/hotpotqa")
        assert _asked(server.paths) == asked, "what is finished is not asked for again"
        again = json.loads(out[-1])
        assert again["solved"] == found["solved"]
        assert again["seconds"] >= found["seconds"] > 0, "time so far is of all sessions"


def test_the_suites_page_tells_of_episodes_while_their_benchmark_is_played(
    run: Run, lemur_home: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemur_ray.evaluation.suites.play.live_suite", partial(live_suite, every_s=0.05))
    requests, told = itertools.count(), []

    def answer(body: object) -> object:
        deadline = time.monotonic() + 100
        while next(requests) > 3 and not told and time.monotonic() < deadline:  # an episode has ended by then
            (only,) = json.loads((lemur_home / "s/report.json").read_text())["benchmarks"]
            told.extend([only["scored"]] if only.get("scored") else [])
            time.sleep(0.05)
        return completion("<solution>1</solution>")

    with serving(answer) as server:
        argv = ("--suite", "table4", "--policy", f"openai:{server.url}", "--policy-model", "toy", "--limit", "3")
        argv += ("--in-flight", "1", "--data", str(data_dir), "--out", "s")
        code, _, _ = run(*argv, "--without", "mint/math,mint/mmlu,mint/hotpotqa,mint/theoremqa")
    assert code == 0
    assert told, "the page was written anew before the benchmark was over"
    assert told[0] < 3


def _asked(paths: list[str]) -> int:
    return sum(path.endswith("/completions") for path in paths)


def test_table_6_is_played_without_and_with_a_teacher_who_is_asked_by_the_second_alone(
    run: Run, lemur_home: Path, data_dir: Path
) -> None:
    reasoning = ",".join(f"mint/{subset}" for subset in ("gsm8k", "math", "theoremqa", "hotpotqa", "mmlu"))
    advice = "Expert feedback: GOOD. Look at the first example again."
    with (
        serving(lambda body: completion("<solution>    return 1</solution>")) as model,
        serving(lambda body: completion(advice), models=("master",)) as teacher,
    ):
        argv = ("--suite", "table6", "--policy", f"openai:{model.url}", "--policy-model", "toy", "--limit", "1")
        argv += ("--teacher", f"openai:{teacher.url}#master", "--data", str(data_dir), "--out", "s")
        code, out, _ = run(*argv, "--without", reasoning)
        assert code == 0
        found = json.loads(out[-1])
        assert (found["n"], found["scored"], found["left"]) == (4, 4, 0)
        played = [(one["benchmark"], one["taught"]) for one in found["benchmarks"]]
        assert played == [(f"mint/{name}", taught) for taught in (False, True) for name in ("humaneval", "mbpp")]
        ledgers = {path.parent.name: path.read_text() for path in (lemur_home / "s").glob("*/episodes.jsonl")}
        with_advice = {name for name, text in ledgers.items() if "Look at the first example again." in text}
        assert with_advice == {"mint-humaneval-taught", "mint-mbpp-taught"}
        assert _asked(teacher.paths) > 0
        page = (lemur_home / "s/index.html").read_text()
        under = page.partition("<h3>Table 6: with a teacher")[2].partition("</table>")[0]
        ours = under.partition('<tr class="strong">')[2].partition("</tr>")[0]
        assert "teacher: textual" in ours
        assert ours.count("0/2 <i>[") == 2, "code, without and with the teacher; reasoning was left out"
        asked = _asked(teacher.paths), _asked(model.paths)
        run(*argv, "--without", reasoning)
        assert (_asked(teacher.paths), _asked(model.paths)) == asked
