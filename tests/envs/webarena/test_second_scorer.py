"""WebArena-Verified beside WebArena: what its package is asked, and what becomes of its verdicts.

A small program stands for the Python that has the package. With LEMUR_VERIFIED_PYTHON, the package itself judges."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envs.webarena.benchmark import WebOptions, identity
from envs.webarena.browser.play import BrowserPlay
from envs.webarena.env import WebEnv
from envs.webarena.evaluators.verified import ANSWER_FORM, plain_answer, published_tasks, reworded_record
from envs.webarena.run_notes import notes
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.benchmarks.contract import EvaluationRequest
from tests.envs.webarena.small_site import SmallSites, record

TASK: dict[str, Any] = {
    "sites": ["shopping"],
    "task_id": 1,
    "intent_template_id": 1,
    "start_urls": ["__SHOPPING__"],
    "intent": "Get the price of the ink",
    "intent_template": "Get the price of the ink",
    "instantiation_dict": {},
    "revision": 1,
    "eval": [
        {
            "evaluator": "AgentResponseEvaluator",
            "results_schema": {"type": "array", "items": {"type": "number", "format": "currency"}},
            "expected": {"task_type": "retrieve", "status": "SUCCESS", "retrieved_data": [7.25]},
        },
        {
            "evaluator": "NetworkEventEvaluator",
            "last_event_only": False,
            "expected": {"url": "__SHOPPING__/basket", "http_method": "GET", "response_status": 200},
        },
    ],
}
JUDGING = """
import json, sys
if sys.argv[-1] == "tasks":
    print(json.dumps({"version": "VERSION", "tasks": [{"task_id": 1}]}))
else:
    (one,) = json.load(sys.stdin)
    base = one["urls"]["SHOPPING"]
    asked = [entry["request"]["url"].removeprefix(base) for entry in one["entries"]]
    right = "7.25" in one["answer"] and "/basket" in asked
    print(json.dumps([{"score": float(right), "status": "success" if right else "failure", "why": " ".join(asked)}]))
"""


def python_with(folder: Path, version: str = "1.2.3") -> str:
    """An executable that answers as the package's Python would."""
    program, script = folder / "judging.py", folder / "python"
    program.write_text(JUDGING.replace("VERSION", version))
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{program}" "$@"\n')
    script.chmod(0o755)
    return str(script)


def answer(data: Any, status: str = "SUCCESS") -> str:
    return json.dumps({"task_type": "RETRIEVE", "status": status, "retrieved_data": data, "error_details": None})


@pytest.mark.parametrize(
    ("opens_basket", "given", "first", "second"),
    [
        (True, answer(["$7.25"]), 1, 1),
        (False, answer(["$7.25"]), 1, 0),  # right, but the evaluator's own visit to the basket does not count
        (True, "$7.25", 1, 0 if os.environ.get("LEMUR_VERIFIED_PYTHON") else 1),
        (True, answer(["$1.50"]), 0, 0),
    ],
)
def test_both_scorers_judge_the_same_episode(
    env: WebEnv, sites: SmallSites, tmp_path: Path, opens_basket: bool, given: str, first: int, second: int
) -> None:
    python = os.environ.get("LEMUR_VERIFIED_PYTHON") or python_with(tmp_path)
    page = {"url": "__SHOPPING__/basket", "locator": "", "required_contents": {"must_include": ["Basket"]}}
    rubric = {
        "eval_types": ["string_match", "program_html"],
        "reference_answers": {"exact_match": "$7.25"},
        "program_html": [page],
    }
    options = {"record": record(**rubric), "verified": {"python": python, "task": TASK}}
    env.reset(options={**options, "wait_s": 0.2, "settles_s": 0.2})
    if opens_basket:
        env.step(f"```goto [{sites.site.url}/basket]```")
    _, reward, ended, _, info = env.step(f"```stop [{given}]```")
    counts = json.loads(info["note"].removeprefix("webarena: "))
    assert (reward, ended, info["scores"]["rules"], info["scores"]["verified"]) == (first, True, first, second)
    assert counts["verified"].startswith("success" if second else "failure")


@pytest.mark.parametrize("fault", ["the package ends", "no log", "garbage"])
def test_without_a_second_verdict_the_first_stays_and_the_rate_counts_it_as_unsolved(
    env: WebEnv, sites: SmallSites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    python = python_with(tmp_path)
    if fault == "the package ends":
        Path(python).write_text("#!/bin/sh\nexit 3\n")
    rubric = {"eval_types": ["string_match"], "reference_answers": {"exact_match": "$7.25"}}
    env.reset(
        options={
            "record": record(**rubric),
            "verified": {"python": python, "task": TASK},
            "wait_s": 0.2,
            "settles_s": 0.2,
        }
    )
    monkeypatch.setattr(BrowserPlay, "close", lose_log(env, BrowserPlay.close, fault))
    _, reward, ended, _, info = env.step(f"```stop [{answer(['$7.25'])}]```")
    assert (reward, ended, "verified" in info["scores"]) == (1, True, False)
    note = info["note"]
    assert json.loads(note.removeprefix("webarena: "))["verified"].startswith("no verdict: ")
    one = SimpleNamespace(outcome=Outcome.SOLVED, note=note, detail="", scores=info["scores"], score=1.0)
    numbers = notes([one])  # type: ignore[list-item]
    assert (numbers["success_rate_verified"], numbers["verified_missing"]) == (0.0, 1)
    assert numbers["solved_by_one_scorer"] == 0


def lose_log(env: WebEnv, close: Any, fault: str) -> Any:
    """``BrowserPlay.close`` that leaves no log of requests, or a cut one, behind."""
    assert env._second is not None
    log = env._second.requests

    def closing(play: BrowserPlay) -> None:
        close(play)
        if fault == "no log":
            log.unlink(missing_ok=True)
        elif fault == "garbage":
            log.write_bytes(log.read_bytes()[:100] if log.exists() else b"{")

    return closing


def test_the_first_scorer_gets_the_items_of_a_structured_answer_as_text() -> None:
    assert plain_answer(answer(["a", 5, {"month": "May", "count": 8}, True])) == "a, 5, May, 8, true"
    assert plain_answer(answer(None, "not_found_error")) == "N/A"
    assert plain_answer(answer(None)) == ""
    deep = '{"status": "SUCCESS", "retrieved_data": ' + "[" * 900 + "]" * 900 + "}"
    assert plain_answer(deep) in ("", deep)
    for other in ("$7.25", "", "[" * 100_000, "[1]", '{"a": 1}', "null"):
        assert plain_answer(other) == other


def test_a_task_is_played_in_its_words_and_counts_as_another_evaluation(tmp_path: Path) -> None:
    worded = reworded_record(record(), {**TASK, "start_urls": ["__SHOPPING__", "__MAP__"]}, " |AND| ")
    assert worded["intent"] == f"{TASK['intent']}\n{ANSWER_FORM}"
    assert worded["start_url"] == "__SHOPPING__ |AND| __MAP__"
    assert worded["eval"] == record()["eval"]
    request = EvaluationRequest()
    assert "verified" not in identity(WebOptions(), request)
    assert identity(WebOptions(verified="/env/bin/python"), request)["verified"] == "1.2.3"


def test_a_python_without_the_package_or_with_another_version_is_refused(tmp_path: Path) -> None:
    assert published_tasks(python_with(tmp_path)) == {1: {"task_id": 1}}
    (tmp_path / "old").mkdir()
    with pytest.raises(ValueError, match=r"webarena-verified 1\.0\.0, expected 1\.2\.3; make an environment"):
        published_tasks(python_with(tmp_path / "old", "1.0.0"))
    with pytest.raises(ValueError, match=r"webarena-verified==1\.2\.3"):
        published_tasks(sys.executable)
