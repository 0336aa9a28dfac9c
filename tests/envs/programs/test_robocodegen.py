"""RoboCodeGen: right functions pass, wrong ones and tricks do not, and none touches the next."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from envs.programs.robocodegen.results import passes
from lemur_ray.agents.trajectory import Task
from lemur_ray.sandbox.inside.payload.plain_values import encode
from tests.envs.programs.robot_solutions import SOLUTIONS, solution
from tests.envs.questions import Says, play, tasks_of, verdicts

pytest.importorskip("shapely")
DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
needs_data = pytest.mark.skipif(not (DATA / "robocodegen").is_dir(), reason="needs RoboCodeGen beneath LEMUR_DATA")


def told(tasks: list[Task], replies: dict[str, str], folder: Path) -> dict[str, bool]:
    """Verdicts by problem."""
    found = verdicts(play(tasks, Says({f"robocodegen/{name}": reply for name, reply in replies.items()}), folder))
    return {task.removeprefix("robocodegen/"): right for task, right in found.items()}


@needs_data
def test_right_functions_pass_and_with_the_wrong_end_of_the_axis_they_fail(tmp_path: Path) -> None:
    tasks = tasks_of("robocodegen", DATA)
    assert {task.id for task in tasks} == {f"robocodegen/{name}" for name in SOLUTIONS}
    right = told(tasks, {name: f"```python\n{solution(name)}\n```" for name in SOLUTIONS}, tmp_path)
    assert all(right.values()), [name for name, ok in right.items() if not ok]
    (tmp_path / "wrong").mkdir()
    said = {name: solution(name).replace("argmax", "argmin") for name in SOLUTIONS if "argmax" in solution(name)}
    some = [task for task in tasks if task.id.removeprefix("robocodegen/") in said]
    wrong = ("get_top_most_idx", "get_right_most_idx", "get_name_of_biggest_obj")  # 22 of 25 are right, as specified
    assert told(some, said, tmp_path / "wrong") == dict.fromkeys(wrong, False)


@needs_data
@pytest.mark.parametrize("form", ["chat", "base"])
def test_every_problem_has_a_gold_that_scores_1(tmp_path: Path, form: str) -> None:
    tasks = tasks_of("robocodegen", DATA, form=form)
    golds = {task.id.removeprefix("robocodegen/"): task.options["gold"] for task in tasks}
    assert told(tasks, golds, tmp_path) == dict.fromkeys(SOLUTIONS, True)


@needs_data
def test_verdicts_are_those_of_the_reference_grader(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("reference_grader", DATA / "robocodegen/grade.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    whole = json.loads((DATA / "robocodegen/problems.json").read_text())
    said = {name: solution(name).replace("max", "min").replace(">", "<") for name in SOLUTIONS}
    found = told(tasks_of("robocodegen", DATA), said, tmp_path)
    for problem in whole["problems"]:
        if problem["tests"]:
            assert found[problem["name"]] == module.grade(problem, said[problem["name"]], whole["scene"])[0]


@needs_data
def test_what_numpy_takes_for_an_array_is_one_as_it_is_for_the_reference_grader(tmp_path: Path) -> None:
    said = {
        "get_points_from_polygon": "def get_points_from_polygon(polygon):\n    return polygon.exterior.coords",
        "fit_2d_np_polys": "def fit_2d_np_polys(ts, pts_2d_np, deg):\n"
        "    return tuple(np.poly1d(np.polyfit(ts, pts_2d_np[:, k], deg)) for k in (0, 1))",
        "reverse_pts": "def reverse_pts(pts_np):\n    return np.matrix(pts_np[::-1])",
        "translate_pts_np": "def translate_pts_np(pts_np, delta_np):\n    return map(np.array, pts_np + delta_np)",
    }
    some = [task for task in tasks_of("robocodegen", DATA) if task.id.removeprefix("robocodegen/") in said]
    assert told(some, said, tmp_path) == {name: name != "translate_pts_np" for name in said}


@needs_data
def test_an_annotation_may_name_a_type_that_the_answer_cannot_import(tmp_path: Path) -> None:
    said = {"reverse_pts": "def reverse_pts(pts_np: List[float]) -> NDArray:\n    return pts_np[::-1]"}
    some = [task for task in tasks_of("robocodegen", DATA) if task.id == "robocodegen/reverse_pts"]
    assert told(some, said, tmp_path) == {"reverse_pts": True}


@needs_data
def test_tricks_fail_and_the_next_problem_is_untouched(tmp_path: Path) -> None:
    names = ["make_circle", "is_discrete_system_stable", "get_top_most_idx", "get_left_most_idx", "pd_control"]
    tasks = {task.id: task for task in tasks_of("robocodegen", DATA)}
    tricks = {
        "make_circle": "def make_circle(r, c):\n    return Point(c).buffer(r * 1.2)",
        "is_discrete_system_stable": "def is_discrete_system_stable(A_mat):\n    return False",
        "get_top_most_idx": "class S(int):\n    pass\ndef get_top_most_idx(p):\n    print('passed')\n    return S(0)",
        "get_left_most_idx": "def get_left_most_idx(p):\n    return np.zeros(2 ** 34)",
        "pd_control": "import os\ndef pd_control(*a):\n    os._exit(0)",
    }
    some = [tasks[f"robocodegen/{name}"] for name in names]
    assert not any(told(some, tricks, tmp_path).values())
    (tmp_path / "next").mkdir()
    assert all(told(some, {name: solution(name) for name in names}, tmp_path / "next").values())


@pytest.mark.parametrize("expected", [3.0, {"ndarray": [2.0, 4.0]}, {"ndarray": [[1.0], [2.0]]}])
@pytest.mark.parametrize("nothing", [["ndarray", []], ["ndarray", [[]]], ["list", []], ["list", [["list", []]]]])
def test_nothing_is_close_to_anything(expected: Any, nothing: Any) -> None:
    assert not passes("allclose", expected, encode(nothing))
    assert passes("allclose", {"ndarray": []}, encode(["ndarray", []]))


def test_a_shape_that_crosses_itself_thousands_of_times_is_no_result_at_once() -> None:
    square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    points = [[(7.13 * n) % 1, (n * n * 0.37) % 1] for n in range(5000)]
    for check in ("shape_area", "shape_lax"):
        for crossing in (["polygon", [points, []]], ["linestring", points]):
            assert not passes(check, {"polygon": square}, encode(crossing))
    assert passes("shape_area", {"polygon": square}, encode(["polygon", [square, []]]))
    for number in (float("nan"), float("inf")):
        assert not passes("shape_area", {"polygon": square}, encode(["polygon", [[*square, [number, 0.0]], []]]))
        assert not passes("allclose", 3.0, encode(["plain", number]))


@needs_data
@pytest.mark.slow
def test_a_function_that_never_ends_fails_in_its_time(tmp_path: Path) -> None:
    (task,) = [task for task in tasks_of("robocodegen", DATA) if task.id == "robocodegen/pd_control"]
    endless = "def pd_control(*a):\n    while True:\n        pass"
    assert told([task], {"pd_control": endless}, tmp_path) == {"pd_control": False}


def plain(value: Any) -> Any:
    from lemur_ray.sandbox.inside.payload.plain_values import encode

    return encode(value)


@pytest.mark.parametrize(
    ("check", "expected", "got", "right"),
    [
        ("allclose", [1, 2], ["ndarray", [1.0, 2.0]], True),
        ("allclose", {"tuple": [1, {"ndarray": [2]}]}, ["list", [["plain", 1], ["ndarray", [2]]]], False),
        ("allclose", True, ["plain", True], True),
        ("allclose", 1.0, ["plain", 1.1], False),
        ("equal", "block0", ["plain", "block0"], True),
        ("equal", {"linestring": [[0, 0], [1, 1]]}, ["linestring", [[0, 0], [1, 1]]], True),
        ("equal", {"linestring": [[0, 0], [1, 1]]}, ["linestring", [[1, 1], [0, 0]]], False),
        ("shape_area", {"polygon": [[0, 0], [1, 0], [1, 1], [0, 0]]}, ["plain", 3], False),
        ("equal", True, ["unknown", "x"], False),
        ("equal", True, ["ndarray", [[1], [1, 2]]], False),
    ],
)
def test_results_are_compared_where_no_answer_runs(check: str, expected: Any, got: Any, right: bool) -> None:
    assert passes(check, expected, plain(got)) is right
