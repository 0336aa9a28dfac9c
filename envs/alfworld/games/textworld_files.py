"""Writes a generated game as the files that textworld loads, with the installed alfworld's domain and grammar.

The engine needs none of this: it is for people who want to play the same game in textworld, and for the tests, where
textworld is the oracle. Needs the extra ``[alfworld]``.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from envs.alfworld.games.game import Game, GameSpec
from envs.alfworld.games.pddl import trajectory_data, write_problem
from envs.alfworld.games.walkthrough import walkthrough


def textworld_game(problem: str, task: str, commands: list[str]) -> dict[str, Any]:
    """The content of ``game.tw-pddl``. Raises ModuleNotFoundError that names the extra if alfworld is missing."""
    try:
        data = resources.files("alfworld") / "data"
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "alfworld is not installed: pip install 'lemur-ray[alfworld]'", name="alfworld"
        ) from error
    return {
        "pddl_domain": (data / "alfred.pddl").read_text(encoding="utf-8"),
        "grammar": (data / "alfred.twl2").read_text(encoding="utf-8").replace("UNKNOWN GOAL", task),
        "pddl_problem": problem,
        "solvable": True,
        "walkthrough": commands,
    }


def write_game(spec: GameSpec, folder: Path) -> Path:
    """Write problem, trajectory keys, meta data and ``game.tw-pddl``; returns the path of the last."""
    folder.mkdir(parents=True, exist_ok=True)
    problem, commands = write_problem(spec), walkthrough(Game.from_spec(spec))
    content = textworld_game(problem, spec.task, commands)
    (folder / "initial_state.pddl").write_text(problem, encoding="utf-8")
    (folder / "traj_data.json").write_text(json.dumps(trajectory_data(spec), indent=1), encoding="utf-8")
    meta = {**spec.to_json(), "walkthrough": commands}
    (folder / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
