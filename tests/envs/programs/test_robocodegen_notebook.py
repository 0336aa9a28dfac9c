"""RoboCodeGen out of a notebook of the published form: every problem can be graded, nothing of the notebook is run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.outside_data.source import Source
from lemur_ray.sandbox.inside.payload.plain_values import encode
from tests.envs.programs.robot_solutions import SOLUTIONS, solution

pytest.importorskip("shapely")
from envs.programs.robocodegen import called
from envs.programs.robocodegen.notebook import read_notebook
from envs.programs.robocodegen.results import passes

EQUIVALENT = {"allclose": "np.allclose", "equal": "eq", "shape_area": "shape_eq"}
SCENE = """
obj_names = ['block0', 'block1', 'block2', 'block3', 'block4', 'block5']
obj_positions = np.array([[0, 0], [0.1, 0], [0.5, 0.5], [0, 0], [0.6, 0.6], [0, 0.9], [0.4, 0.4]])
sizes = [0.15, 0.15, 0.1, 0.2, 0.1, 0.05, 0.1]
raise SystemExit('it was run')
"""


def written(place: Path, problems: list[dict[str, Any]]) -> Path:
    """A notebook of the form of the published one, without its references and inputs."""
    lists: dict[str, list[str]] = {suite: [] for suite in ("np", "ctrl", "shapely", "api")}
    for one in problems:
        fields = f"'f_name': {one['name']!r}, 'f_sig': {one['signature']!r}, 'f_sol': lambda *a: None"
        lists[one["suite"]].append(f"  {{{fields}, 'test_equiv': {EQUIVALENT[one['check']]}}},\n")
    cell = "".join(f"problems_{suite} = [\n{''.join(of)}]\n" for suite, of in lists.items()) + SCENE
    cells = [{"cell_type": "markdown", "source": ["# Problems"]}, {"cell_type": "code", "source": [cell]}]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps({"cells": cells}))
    return place


@pytest.fixture(scope="module")
def known(data_dir: Path) -> dict[str, Any]:
    return dict(json.loads((data_dir / "robocodegen/problems.json").read_text()))


def test_every_problem_gets_tests_that_right_functions_pass(known: dict[str, Any], tmp_path: Path) -> None:
    read = read_notebook(written(tmp_path / "n.ipynb", known["problems"]))
    assert read["scene"] == known["scene"]
    assert len(read["problems"]) == 37
    assert Counter(one["check"] for one in read["problems"]) == {"allclose": 27, "equal": 7, "shape_area": 3}
    same = ("name", "suite", "signature", "prompt", "check")
    assert [[one[field] for field in same] for one in read["problems"]] == [
        [one[field] for field in same] for one in known["problems"]
    ]
    assert all(one["tests"] for one in read["problems"])
    by_name = {one["name"]: one for one in read["problems"]}
    for name in SOLUTIONS:
        called.define("", solution(name), read["scene"]["get_obj_outer_pts_np"])
        for test in by_name[name]["tests"]:
            assert passes(by_name[name]["check"], test["expected"], encode(called.call(name, test["args"]))), name


def test_who_always_says_the_same_is_wrong_somewhere(known: dict[str, Any], tmp_path: Path) -> None:
    read = read_notebook(written(tmp_path / "n.ipynb", known["problems"]))
    for one in read["problems"]:
        expected = [test["expected"] for test in one["tests"]]
        assert len({json.dumps(value) for value in expected}) > 1, one["name"]


def test_a_fetched_notebook_is_played_and_its_inputs_are_said_to_be_ours(known: dict[str, Any], tmp_path: Path) -> None:
    benchmark = find("robocodegen")
    (source,) = benchmark.sources
    assert isinstance(source, Source)
    assert source.licence == "Apache-2.0"
    assert source.address.commit.startswith("71896d4")
    assert not source.by_hand
    written(tmp_path / source.path, known["problems"])
    asked = EvaluationRequest(tmp_path)
    tasks = list(benchmark.load(benchmark.options(), asked))
    assert len(tasks) == 37
    assert "inputs and expected results of the project's own" in benchmark.details.departures(
        benchmark.options(), asked, tasks
    )
    assert len(list(benchmark.load(benchmark.options(compat=True), asked))) == 37


def test_another_notebook_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text('{"cells": [{"cell_type": "code", "source": ["x = 1"]}]}')
    with pytest.raises(ValueError, match=r"n\.ipynb: not the notebook of RoboCodeGen"):
        read_notebook(tmp_path / "n.ipynb")
