"""ALFWorld's own games as benchmarks: found where a user has them, played in their own wording, by either engine."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any, Literal

import gymnasium
import pytest

from envs.alfworld.benchmark import BENCHMARKS, RealOptions
from envs.alfworld.package_play import PACKAGES, PackageGone, PackagePlay
from envs.alfworld.real_games import find_games, game_content, game_digests
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.needs import missing_requirements
from lemur_ray.rollout.benchmark_tasks import parse_evaluation, tasks_and_settings

UNSEEN = "valid_unseen"


@pytest.fixture(scope="module")
def archive(data_dir: Path) -> Path:
    return data_dir / "alfworld" / "valid_unseen.tar.gz"


@pytest.fixture(scope="module")
def tasks(data_dir: Path) -> list[Task]:
    return list(BENCHMARKS[UNSEEN].load(RealOptions(), EvaluationRequest(data_dir)))


def play(task: Task, choose: Any, **options: Any) -> tuple[list[str], dict[str, Any]]:
    """Every text of one game, and the last info."""
    env = gymnasium.make(task.env_id, disable_env_checker=True)
    text, info = env.reset(seed=0, options={**task.options, **options, "hints": True})
    texts, over = [text], False
    while not over:
        text, _, won, cut, info = env.step(choose(info["hints"]))
        texts.append(text)
        over = won or cut
    env.close()
    return texts, info


def test_all_134_are_listed_by_their_paths(tasks: list[Task]) -> None:
    assert len(tasks) == len({task.id for task in tasks}) == 134
    assert tasks[0].id.startswith("look_at_obj_in_light-AlarmClock-None-DeskLamp-308/trial_")
    assert {task.max_turns for task in tasks} == {50}


def test_the_packages_engine_needs_the_package_before_anything_is_played(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(engine: Literal["own", "alfworld"]) -> list[str]:
        return missing_requirements(
            BENCHMARKS[UNSEEN].requirements(RealOptions(engine=engine), EvaluationRequest(data_dir))
        )

    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    for name in PACKAGES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    (said,) = lacks("alfworld")
    assert "needs the extra alfworld" in said
    assert "textworld is not installed: apt-get install" in said
    assert not lacks("own")


def test_a_folder_an_archive_and_the_variable_name_the_same_games(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: list[Task]
) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "data" / "json_2.1.1", filter="data")
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "data"))
    folder = find_games(UNSEEN, "", None)
    assert folder == tmp_path / "data" / "json_2.1.1" / UNSEEN
    names = [task.id for task in tasks]
    digests = game_digests(folder, UNSEEN)
    assert digests == game_digests(find_games(UNSEEN, str(archive), None), UNSEEN)
    assert list(digests) == names
    assert game_content(folder, UNSEEN, names[0]) == game_content(archive, UNSEEN, names[0])
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match=r"jobs/fetch_data\.py alfworld/valid_"):
        find_games(UNSEEN, "", None)
    with pytest.raises(ValueError, match="no games at "):
        list(BENCHMARKS["valid_seen"].load(RealOptions(), EvaluationRequest()))


def test_games_beneath_the_data_folder_come_before_those_that_the_package_left(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for root in (tmp_path / "data/alfworld", tmp_path / "home/.cache/alfworld", tmp_path / "elsewhere"):
        (root / UNSEEN).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    assert find_games(UNSEEN, "", tmp_path / "data") == tmp_path / "data/alfworld" / UNSEEN
    assert find_games(UNSEEN, "", tmp_path) == tmp_path / "home/.cache/alfworld" / UNSEEN
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "elsewhere"))
    assert find_games(UNSEEN, "", tmp_path) == tmp_path / "elsewhere" / UNSEEN
    assert find_games(UNSEEN, "", tmp_path / "data") == tmp_path / "data/alfworld" / UNSEEN


def test_games_in_another_grammar_are_other_games_to_an_evaluation(tmp_path: Path) -> None:
    def recipe(folder: str, **changed: str) -> str:
        file = tmp_path / folder / UNSEEN / "look-1/trial_1/game.tw-pddl"
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"pddl_problem": "p", "pddl_domain": "d", "grammar": "put {o} in/on {r}", "solvable": True}
        file.write_text(json.dumps({**content, **changed}))
        words = ["--benchmark", f"alfworld/{UNSEEN}", "--games", str(tmp_path / folder)]
        config = parse_evaluation(words, "")
        return tasks_and_settings(config, BENCHMARKS[UNSEEN])[1].hash

    old = recipe("old")
    assert recipe("copy") == old
    assert recipe("new", grammar="move {o} to {r}") != old
    assert recipe("other", pddl_problem="q") != old


def test_the_expert_plays_them_in_their_own_wording(tasks: list[Task]) -> None:
    won = 0
    for task in tasks[::8]:
        _, info = play(task, lambda hints: hints["expert"])
        won += info["solved"]
    assert won == 17, f"{won} of {len(tasks[::8])}"


def test_the_prompt_tells_the_command_that_the_game_has(tasks: list[Task]) -> None:
    env = gymnasium.make(tasks[0].env_id, disable_env_checker=True)
    _, info = env.reset(options=dict(tasks[0].options))
    assert "put <object> in/on <furniture>" in info["system"]
    assert "move <object>" not in info["system"]


def by_types(tasks: list[Task], each: int) -> list[Task]:
    """The first games of every kind."""
    kinds = sorted({task.category for task in tasks})
    return [task for kind in kinds for task in [t for t in tasks if t.category == kind][:each]]


def same_in_the_package(task: Task, seed: int) -> None:
    """The expert's game and a random one, word by word and command by command."""
    rng = random.Random(seed)

    def anything(hints: dict[str, Any]) -> str:
        seen.append(hints["admissible"])
        return rng.choice(hints["admissible"])

    for choose in (lambda hints: hints["expert"], anything):
        found = []
        for engine in ("own", "alfworld"):
            rng, seen = random.Random(seed), []
            texts, info = play(task, choose, engine=engine, max_steps=40)
            found.append((texts, seen, info["solved"]))
        assert found[0] == found[1], task.id


@pytest.mark.slow
@pytest.mark.sweep  # the slow tier plays in both games of every kind in test_alfworld_engine_against_textworld
def test_one_game_of_every_kind_is_the_same_in_the_package(oracle: Any, tasks: list[Task]) -> None:
    games = by_types(tasks, 1)
    assert len(games) == 6
    for number, task in enumerate(games):
        same_in_the_package(task, number)


@pytest.mark.sweep
@pytest.mark.timeout(0)
def test_all_of_them_are_the_same_in_the_package(oracle: Any, tasks: list[Task]) -> None:
    for number, task in enumerate(tasks):
        same_in_the_package(task, number)


def test_a_package_that_cannot_play_says_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "alfworld.py").write_text("raise ImportError('no planner here')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PackageGone, match="pip install 'lemur-ray"):
        PackagePlay({"grammar": ""})
