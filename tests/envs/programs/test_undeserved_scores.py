"""Wrong replies that attack what judges them score 0, right ones that resemble them score 1."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from envs.programs.multipl_e.toolchains import TOOLCHAINS
from envs.question.env import grader
from lemur_ray.benchmarks.sandboxed import Sandboxed, missing_programs
from lemur_ray.sandbox.sandbox import SandboxDestroyed
from tests.attacks.hostile_questions import options_of

TABLE: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("undeserved.yaml").read_text())
PYTHON_TASK = {
    "grade": "envs.programs.humaneval.completion:grade",
    "reference": {
        "prompt": 'def add(x, y):\n    """Add two numbers."""\n',
        "test": "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert abs(candidate(1, 1) - 2) < 1e-6\n",
        "entry_point": "add",
        "rule": "standard",
    },
}


def test_there_are_more_than_sixty_attacks_on_every_kind_of_judge() -> None:
    assert sum(len(of["attacks"]) for of in TABLE.values()) >= 75
    assert TABLE.keys() >= {*TOOLCHAINS, "ds1000", "robot", "python"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in ("python", "php") else pytest.mark.slow) for kind in TABLE]
)
def test_attacks_score_nothing_and_right_replies_that_resemble_them_score(kind: str, tmp_path: Path) -> None:
    if kind in TOOLCHAINS and (absent := missing_programs(Sandboxed(), TOOLCHAINS[kind].programs)):
        pytest.skip(f"no {', '.join(absent)} on this machine")
    options = PYTHON_TASK if kind == "python" else options_of(kind, tmp_path, "")
    right = {"right": TABLE[kind]["right"]} | {
        f"twin, {name}": text for name, text in TABLE[kind].get("twins", {}).items()
    }
    replies = TABLE[kind]["attacks"] | right
    with ThreadPoolExecutor(2) as pool:
        scores = dict(zip(replies, pool.map(lambda reply: score(reply, options), replies.values()), strict=True))
    assert {name: value for name, value in scores.items() if value} == dict.fromkeys(right, 1.0)


def score(reply: str, options: Mapping[str, Any]) -> float:
    """The highest score of a reply by any reading; what the machine starved is graded again."""
    for attempt in range(4):
        try:
            graded = grader(str(options["grade"]))(reply, options)
            return max(graded.score, *graded.scores.values()) if graded.scores else graded.score
        except SandboxDestroyed as error:
            if error.blame != "infra" or attempt == 3:
                raise
            time.sleep(0.5)
    raise AssertionError("unreachable")
