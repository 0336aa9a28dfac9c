"""Replies that are there already are graded again: of a ledger, and of a file from anywhere."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest
from lemur_ray.benchmarks.question import QuestionDetails, question
from lemur_ray.report.samples import pass_at_k, pass_hat_k
from lemur_ray.rollout.ledger import read_episodes
from lemur_ray.rollout.stored_replies import read_replies, stored_policy, tasks_with_replies
from tests.conftest import ROOT
from tests.envs.questions import Says, play
from tests.rollout.toy import toy_task

Job = Callable[..., tuple[int, dict[str, Any], str]]


def _options() -> type[Any]:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Nothing:
        """No options."""

    return Nothing


def _sums(options: Any, request: EvaluationRequest) -> list[Task]:
    grade = "tests.envs.question.test_question:same"
    return [
        question(
            "sums",
            f"sums/{n}",
            "sums",
            f"{n} + 1?",
            grade,
            str(n + 1),
            QuestionDetails(gold=str(n + 1)),
        )
        for n in range(6)
    ]


SUMS: Benchmark[Any] = Benchmark(_options(), _sums, {"full": 16, "brief": 16}, has_hints=True)
NAME = "tests.rollout.test_stored_replies:SUMS"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Job:
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "home"))
    main = importlib.import_module("agent_eval").main

    def run(*argv: str) -> tuple[int, dict[str, Any], str]:
        code = main(["--benchmark", NAME, "--actors", "0", *argv])
        said = capsys.readouterr()
        lines = said.out.splitlines()
        return code, json.loads(lines[-1]) if lines else {}, said.err

    return run


def written(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"replies:{path}"


def test_a_part_of_the_tasks_is_graded_by_their_names(job: Job, tmp_path: Path) -> None:
    rows = [{"task": f"sums/{n}", "reply": str(n + 1 + (n == 4)), "model": "x"} for n in (1, 3, 4)]
    code, numbers, said = job("--policy", written(tmp_path / "r.jsonl", *rows), "--out", str(tmp_path / "o"))
    assert (code, numbers["n"], numbers["solved"]) == (0, 3, 2)
    assert "replies to 3 of 6 tasks" in said
    assert {e.key.policy for e in read_episodes(tmp_path / "o/episodes.jsonl")} == {"replies:r.jsonl"}


def test_samples_are_epochs_and_come_to_pass_at_k(job: Job, tmp_path: Path) -> None:
    rows = [{"task": "sums/0", "reply": "1" if n < 2 else "0", "sample": n} for n in range(5)]
    rows += [{"task": "sums/1", "reply": "0", "sample": 7 * n} for n in range(5)]
    file = written(tmp_path / "r.jsonl", *rows)
    code, numbers, _ = job("--policy", file, "--epochs", "5", "--out", str(tmp_path / "o"))
    assert code == 0
    at_k = numbers["samples"]["pass@k"]
    assert at_k["1"]["value"] == pytest.approx(2 / 5 / 2)
    assert at_k["4"]["value"] == pytest.approx((1 - 0 / 5) / 2)
    assert numbers["samples"]["pass^k"]["2"]["value"] == pytest.approx(1 / 10 / 2)
    assert set(at_k) == {"1", "2", "4", "5"}
    _, once, said = job("--policy", file, "--out", str(tmp_path / "p"))
    assert "samples" not in once
    assert "--epochs 5 grades them all" in said


def test_a_ledger_is_graded_again_with_the_same_verdicts(job: Job, tmp_path: Path) -> None:
    rows = [{"task": f"sums/{n}", "reply": str(n + n % 2)} for n in range(6)]
    _, before, _ = job("--policy", written(tmp_path / "r.jsonl", *rows), "--out", str(tmp_path / "o"))
    code, after, _ = job("--policy", f"ledger:{tmp_path / 'o'}", "--out", str(tmp_path / "p"))
    assert (code, after["policy"], after["solved"]) == (0, "ledger:replies:r.jsonl", before["solved"])
    old, new = (read_episodes(tmp_path / folder / "episodes.jsonl") for folder in "op")
    assert {e.key.task: e.score for e in old} == {e.key.task: e.score for e in new}


def test_turns_of_a_longer_episode_are_said_one_after_another(tmp_path: Path) -> None:
    from lemur_ray.rollout.stored_replies import stored_policy
    from tests.rollout.scripted_policy import ScriptedPolicy

    tasks = [toy_task(f"t{n}", length=2) for n in range(2)]
    first = play(tasks, ScriptedPolicy(["left", "right", "right", "right"]), tmp_path)
    spec = stored_policy(f"ledger:{tmp_path}", "", "toy")
    assert spec is not None
    (tmp_path / "again").mkdir()
    again = play(tasks, spec(), tmp_path / "again")
    assert [[s.reply for s in e.trajectory.steps] for e in again] == [
        [s.reply for s in e.trajectory.steps] for e in first
    ]
    assert [e.outcome for e in again] == [e.outcome for e in first]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"task": "sums/9", "reply": "1"}], "for example, 'sums/0'"),
        ([{"task": "sums/1", "reply": "1"}, {"task": "sums/1", "reply": "2"}], "line 2: a second reply"),
        ([{"task": "sums/1"}], 'line 1: expected an object with the texts "task" and "reply"'),
        ([{"task": "sums/1", "reply": "1", "sample": "a"}], "expected a whole number"),
    ],
)
def test_replies_that_cannot_be_graded_are_said(
    job: Job, tmp_path: Path, rows: list[dict[str, Any]], said: str
) -> None:
    code, _, error = job("--policy", written(tmp_path / "r.jsonl", *rows), "--out", str(tmp_path / "o"))
    assert code == 1
    assert said in error


@pytest.mark.parametrize("kind", ["replies", "ledger"])
def test_a_place_where_nothing_is_is_named(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"--policy {kind}:.*nothing is at .*nowhere; expected"):
        stored_policy(f"{kind}:{tmp_path / 'nowhere'}", "", "gsm8k")


def test_several_policies_in_a_ledger_are_named(job: Job, tmp_path: Path) -> None:
    tasks = list(_sums(None, EvaluationRequest()))
    for name in ("a", "b"):
        policy = Says({task.id: name for task in tasks})
        policy.name = name
        play(tasks, policy, tmp_path)
    code, _, said = job("--policy", f"ledger:{tmp_path}", "--out", str(tmp_path / "o"))
    assert code == 1
    assert "--policy-model: a, b" in said
    code, numbers, _ = job("--policy", f"ledger:{tmp_path}", "--policy-model", "b", "--out", str(tmp_path / "o"))
    assert (code, numbers["policy"]) == (0, "ledger:b")


def test_a_file_may_be_packed_and_holds_any_text(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "r.jsonl.gz"
    row = {"task": "t", "reply": "\u2028 line\r\n \U0001f600"}
    path.write_bytes(gzip.compress((json.dumps(row, ensure_ascii=False) + "\n\n").encode()))
    assert read_replies(path) == {"t": [row["reply"]]}
    (tmp_path / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(row).encode() + b"\r\n")
    assert read_replies(tmp_path / "marked.jsonl") == {"t": [row["reply"]]}
    path.write_bytes(gzip.compress(b"{"))
    with pytest.raises(ValueError, match=r"line 1.*: not JSON"):
        read_replies(path)
    path.write_bytes(gzip.compress(json.dumps(row).encode() * 9)[:-12])
    with pytest.raises(ValueError, match=r"r\.jsonl\.gz: .*ended before"):
        read_replies(path)


def test_replies_that_go_on_behind_a_stop_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    said = {"whole": "It is 2.\n", "cut": "One and one.\nIt is 2."}
    path.write_text("".join(json.dumps({"task": task, "reply": reply}) + "\n" for task, reply in said.items()))
    spec = stored_policy(f"replies:{path}", "", "b")
    assert spec is not None
    tasks = [
        question(
            "b",
            task,
            "b",
            "1 + 1?",
            "m:grade",
            2,
            QuestionDetails(stop=("\n",)),
        )
        for task in said
    ]
    assert tasks_with_replies(spec, tasks, 1) == tasks
    told = capsys.readouterr().err
    assert "1 replies go on behind a text" in told
    assert r"'\n' in one to 'cut'" in told


def test_pass_at_k_is_what_drawing_k_samples_gives() -> None:
    from itertools import combinations

    for n, c in ((5, 2), (6, 0), (4, 4)):
        drawn = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            draws = list(combinations(drawn, k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
            assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws))
    with pytest.raises(ValueError, match="k 3"):
        pass_at_k(2, 1, 3)
