"""RoboCodeGen's variants: tracebacks as turns, functions asked for in turn, the published inputs and comparison."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from lemur_ray.agents.messages import ChatReply, ChatRequest
from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.run_notes import EvaluationRun
from tests.envs.programs.robot_solutions import SOLUTIONS, solution
from tests.envs.questions import Says, play, tasks_of, verdicts

pytest.importorskip("shapely")
DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
pytestmark = pytest.mark.skipif(not (DATA / "robocodegen").is_dir(), reason="needs RoboCodeGen beneath LEMUR_DATA")
PROBLEMS = DATA / "robocodegen/problems.json"
PD = "robocodegen/pd_control"
RAISES = "def pd_control(x, goal, dot, Kp, Kv):\n    gain = Kp\n    return gain * (goal - z) - Kv * dot"


class SaysInTurn:
    """A list of replies by task; keeps what it was shown."""

    name = "says"
    wants_hints = False

    def __init__(self, replies: Mapping[str, Sequence[str]]) -> None:
        self._replies = {task: iter(said) for task, said in replies.items()}
        self.shown: list[str] = []

    def reply(self, request: ChatRequest) -> ChatReply:
        self.shown.append(request.messages[-1].content)
        return ChatReply(next(self._replies[request.episode.split("|")[1]]))


def conversation(replies: Sequence[str], folder: Path, **options: Any) -> tuple[Episode, list[str]]:
    """One episode of ``pd_control``, and every message before a reply."""
    (task,) = [task for task in tasks_of("robocodegen", DATA, **options) if task.id == PD]
    policy = SaysInTurn({PD: replies})
    (episode,) = play([task], policy, folder, starved=5)
    return episode, policy.shown


def test_after_an_exception_its_traceback_is_shown_and_the_next_try_counts(tmp_path: Path) -> None:
    episode, shown = conversation([f"```python\n{RAISES}\n```", solution("pd_control")], tmp_path, tries=3)
    assert (episode.outcome, episode.score, len(shown)) == (Outcome.SOLVED, 1.0, 2)
    assert shown[1].splitlines() == [
        "Traceback (most recent call last):",
        '  File "<reply>", line 3, in pd_control',
        "    return gain * (goal - z) - Kv * dot",
        *([line] if "^" in (line := shown[1].splitlines()[3]) else []),
        "NameError: name 'z' is not defined",
    ]


def test_another_result_ends_the_episode_and_tells_nothing_of_the_right_one(tmp_path: Path) -> None:
    wrong = "def pd_control(x, goal, dot, Kp, Kv):\n    return Kp * (goal - x)"
    episode, shown = conversation([RAISES, wrong, solution("pd_control")], tmp_path, tries=3)
    assert (episode.outcome, episode.score, len(shown)) == (Outcome.FAILED, 0.0, 2)


def test_no_more_tries_than_are_given_and_one_by_default(tmp_path: Path) -> None:
    for tries in (1, 2):
        (folder := tmp_path / str(tries)).mkdir()
        episode, shown = conversation([RAISES, "def pd_control(", "x"], folder, tries=tries)
        assert (episode.outcome, episode.score, len(shown)) == (Outcome.FAILED, 0.0, tries)
    (task, *_) = tasks_of("robocodegen", DATA)
    assert (task.env_id, task.max_turns) == ("envs:lemur/Question-v0", 1)


def test_code_that_cannot_be_read_or_is_banned_is_told(tmp_path: Path) -> None:
    said = ["def pd_control(:", f"import os\n{solution('pd_control')}", solution("pd_control")]
    episode, shown = conversation(said, tmp_path, tries=3)
    assert episode.score == 1.0
    assert "SyntaxError" in shown[1]
    assert "must not hold 'import'" in shown[2]


def test_functions_that_nobody_has_defined_are_asked_for_in_turn(tmp_path: Path) -> None:
    said = [
        "def pd_control(x, goal, v, Kp, Kv):\n    error = difference(goal, x)\n    return scaled(Kp, error) - Kv * v",
        "def difference(a, b):\n    return a - b",
        "def scaled(by, v):\n    return np.array([by * one for one in v])",
    ]
    episode, shown = conversation(said, tmp_path, recursion=True)
    assert (episode.score, len(shown)) == (1.0, 3)
    assert shown[1:] == [
        "# define function: error = difference(goal, x).",
        "# define function: ret_val = scaled(Kp, error).",
    ]


def test_without_recursion_what_nobody_has_defined_is_an_exception(tmp_path: Path) -> None:
    episode, _ = conversation(["def pd_control(*a):\n    return other(*a)"], tmp_path)
    assert episode.score == 0.0


def test_functions_without_end_are_asked_for_only_so_often(tmp_path: Path) -> None:
    from envs.programs.robocodegen.env import MOST_FUNCTIONS

    names = ["pd_control", *(f"f{n}" for n in range(30))]
    said = [f"def {one}(*a):\n    return {other}(*a)" for one, other in itertools.pairwise(names)]
    episode, shown = conversation(said, tmp_path, recursion=True)
    assert (episode.score, len(shown)) == (0.0, 1 + MOST_FUNCTIONS)


def test_only_a_conversation_can_go_on() -> None:
    options = find("robocodegen").options
    with pytest.raises(ValueError, match="--form chat"):
        options(form="base", tries=2)
    with pytest.raises(ValueError, match="--compat"):
        options(draw_seed=3)
    with pytest.raises(ValueError, match="1 or more"):
        options(tries=0)


def test_a_run_without_the_variants_is_told_apart_by_what_it_was_before() -> None:
    benchmark = find("robocodegen")
    asked = EvaluationRequest(DATA)
    before = {"mode", "form", "prefill", "sandbox", "examples_file", "version"}
    assert set(benchmark.identity_of(benchmark.options(), asked, "auto")) == before
    compat = benchmark.identity_of(benchmark.options(compat=True, draw_seed=2), asked, "auto")
    assert set(compat) == before | {"compat", "draw_seed"}


def test_every_number_stands_beside_the_variant_that_it_is_of() -> None:
    (said,) = find("robocodegen").details.about(EvaluationRun("p", {"tries": 3, "compat": True})).beside
    assert "3 tries with tracebacks, no recursion, inputs and comparison as published" in said
    assert find("robocodegen").details.about(EvaluationRun("p", {})).departures == ()


def references() -> dict[str, Any]:
    return {
        task.id.rpartition("/")[2]: task.options["reference"] for task in tasks_of("robocodegen", DATA, compat=True)
    }


def test_published_inputs_are_drawn_from_the_seed_and_of_no_others_problems() -> None:
    first = references()
    assert len(first) == 25
    assert first == references()
    other = {
        t.id.rpartition("/")[2]: t.options["reference"] for t in tasks_of("robocodegen", DATA, compat=True, draw_seed=1)
    }
    assert other["pd_control"] != first["pd_control"]
    assert not any(test["expected"] for test in first["is_discrete_system_stable"]["tests"])
    ns = {test["args"][1] for test in first["interpolate_pts_along_exterior"]["tests"]}
    assert ns <= set(range(1, 100))
    assert ["block2", "block4"] in [test["args"] for test in first["is_obj0_bigger_than_obj1"]["tests"]]


@pytest.mark.slow
def test_right_functions_pass_on_published_inputs_too(tmp_path: Path) -> None:
    tasks = tasks_of("robocodegen", DATA, compat=True)
    said = {f"robocodegen/{name}": solution(name) for name in SOLUTIONS}
    assert verdicts(play(tasks, Says(said), tmp_path, starved=5)) == dict.fromkeys(said, True)


def test_published_comparison_lets_wrong_circles_pass_and_one_answer_for_all(tmp_path: Path) -> None:
    lax = {
        "robocodegen/make_circle": "def make_circle(r, c):\n    return Point(c).buffer(r * 1.2)",
        "robocodegen/is_discrete_system_stable": "def is_discrete_system_stable(A):\n    return False",
    }
    for compat in (True, False):
        (folder := tmp_path / str(compat)).mkdir()
        tasks = [task for task in tasks_of("robocodegen", DATA, compat=compat) if task.id in lax]
        found = verdicts(play(tasks, Says(lax), folder, starved=5))
        assert found["robocodegen/is_discrete_system_stable"] is compat
        assert found["robocodegen/make_circle"] is False or compat


@pytest.mark.parametrize(("radius", "right"), [(0.1, True), (0.6, True), (0.5, True), (50.0, False)])
def test_the_published_comparison_takes_the_answers_area_for_a_tolerance(radius: float, right: bool) -> None:
    from shapely.geometry import Point

    from envs.programs.robocodegen.results import passes
    from envs.programs.robocodegen.upstream_draws import form_of
    from lemur_ray.sandbox.inside.payload.plain_values import encode

    want, got = (form_of(Point(0, 0).buffer(of)) for of in (0.5, radius))
    assert passes("shape_lax", want, encode(["polygon", [got["polygon"], []]])) is right
    assert passes("shape_area", want, encode(["polygon", [got["polygon"], []]])) is (radius == 0.5)


def test_one_point_of_a_ring_fails_for_everybody() -> None:
    from shapely.geometry import LinearRing

    from envs.programs.robocodegen.results import passes
    from envs.programs.robocodegen.upstream_draws import _drawn
    from lemur_ray.sandbox.inside.payload.plain_values import encode

    drawn = _drawn("interpolate_pts_along_exterior", [LinearRing([(0, 0), (1, 0), (1, 1)]), 1])
    assert drawn["expected"] is None
    for got in (["plain", None], ["list", []], ["list", [["list", [["plain", 0.0], ["plain", 0.0]]]]]):
        assert not passes("allclose", None, encode(got))


def test_a_problem_whose_results_are_not_the_references_is_left_out_and_told(tmp_path: Path) -> None:
    whole = json.loads(PROBLEMS.read_text())
    (pd,) = [problem for problem in whole["problems"] if problem["name"] == "pd_control"]
    pd["tests"][0]["expected"] = {"ndarray": [7.0, 7.0]}
    (tmp_path / "robocodegen").mkdir()
    (tmp_path / "robocodegen/problems.json").write_text(json.dumps(whole))
    benchmark = find("robocodegen")
    options, asked = benchmark.options(compat=True), EvaluationRequest(tmp_path)
    tasks = list(benchmark.load(options, asked))
    assert len(tasks) == 24
    said = benchmark.details.departures(options, asked, tasks)
    assert any(one.endswith("the project's reference: pd_control") for one in said)


def test_options_of_the_environment_are_checked() -> None:
    env = gymnasium.make("envs:lemur/RoboCodeGen-v0", disable_env_checker=True)
    (task,) = [task for task in tasks_of("robocodegen", DATA, tries=2) if task.id == PD]
    with pytest.raises(ValueError, match="tries"):
        env.reset(options={**task.options, "tries": 0})
