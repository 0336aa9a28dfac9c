"""MINT's 586 tasks from the data folder: prompts as the recorded runs had them. Knows no policy.

Layout: ``DATA/mint/tasks/<subset>.test_prompts.jsonl.gz``, ``DATA/mint/tasks/alfworld/`` and
``DATA/mint/in_context_examples/``; ``outside_data`` says where each file comes from.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from envs.alfworld.games.game import Game
from envs.alfworld.games.game_file import read_archive
from envs.alfworld.play import Play
from envs.mint.outside_data import GAME_IDS, GAMES, required, tasks_file
from envs.mint.wording import recorded_wording
from lemur_ray.agents.mint_replay import SUBSETS, LoggedEpisode
from lemur_ray.agents.trajectory import Task
from lemur_ray.grading.mint import grade

ENV_ID = "envs:lemur/MINT-v0"
MAX_STEPS, MAX_PROPOSE = 5, 2
SIZES: Mapping[str, int] = dict(zip(SUBSETS, (48, 100, 49, 43, 76, 45, 91, 134), strict=True))
_HOUSE_FAMILY = {
    "pick_and_place_simple": "put",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "look_at_obj_in_light": "examine",
    "pick_two_obj_and_place": "puttwo",
}


def load_mint_tasks(subset: str, data: Path, limit: int = 0, options: Mapping[str, Any] | None = None) -> list[Task]:
    """The tasks of a subset, in the data's order. ``options`` go to every episode (see ``mint_env``).

    Raises ValueError for an unknown subset or a malformed file (names file and line), FileNotFoundError that says what
    is missing and where it comes from.
    """
    if subset not in SUBSETS:
        raise ValueError(f"MINT has no subset {subset!r}: expected one of {', '.join(SUBSETS)}")
    folder, shared = data / "mint", {"subset": subset, "max_steps": MAX_STEPS, **(options or {})}
    feedback = shared.get("feedback", "none") != "none"
    rows = _household_rows(folder) if subset == "alfworld" else _rows(folder, subset)
    texts = {str(row["id"]): task_text(subset, str(row["prompt"])) for row in rows}
    wording = recorded_wording(folder / "outputs", subset, texts)
    shared["wording"] = dataclasses.asdict(wording)
    known = [[texts[str(row["id"])], _given(subset, {**row, "games": ""})] for row in rows]
    content = json.dumps([shared["wording"], feedback, known], sort_keys=True)
    shared["database_id"] = hashlib.sha256(content.encode()).hexdigest()[:16]
    tasks = []
    for row in rows[: limit or None]:
        family = _family(subset, row)
        example = _read(folder, f"in_context_examples/{family}/with_tool{'_and_feedback' * feedback}.txt")
        tasks.append(
            Task(
                benchmark=f"mint/{subset}",
                id=str(row["id"]),
                env_id=ENV_ID,
                category=family.removeprefix("alfworld/") if subset == "alfworld" else row.get("answer_type", subset),
                options={
                    **shared,
                    **_given(subset, row),
                    "id": str(row["id"]),
                    "prompt": wording.lead + texts[str(row["id"])],
                    "example": example,
                },
                max_turns=2 * int(shared["max_steps"]),
            )
        )
    return tasks


def replayed(log: Path, episodes: Sequence[LoggedEpisode], *, strict: bool) -> dict[str, Any]:
    """Options of a replay. ``strict``: code is run and search answers as recorded; else proposals alone are graded
    (and ALFWorld's code, which plays the game). Feedback is the recorded one."""
    options: dict[str, Any] = {"tools": "run" if strict or episodes[0].subset == "alfworld" else "skip"}
    options |= {"wikipedia": f"log:{log}", "recording": str(log)}
    if any(turn.feedback is not None for episode in episodes for turn in episode.turns):
        options |= {"feedback": "textual", "teacher": f"log:{log}"}
    return options


def tasks_of_log(tasks: Sequence[Task], log: Sequence[LoggedEpisode], path: Path | None) -> list[Task]:
    """The tasks that a recorded run has. Raises ValueError where it is one of other tasks."""
    subset = tasks[0].options["subset"]
    texts = {task.id: str(task.options["prompt"]).strip() for task in tasks}
    for episode in log:
        if episode.task_id not in texts:
            raise ValueError(f"{path}: task {episode.task_id!r} is not one of mint/{subset}")
    # A few tasks were worded differently in some runs; a log of another subset has no wording in common.
    same = sum(_without_blanks(texts[e.task_id]) == _without_blanks(e.prompt) for e in log)
    if 2 * same < len(log):
        raise ValueError(
            f"{path}: {same} of its {len(log)} tasks are worded as mint/{subset}'s: is it a run of another?"
        )
    known = {episode.task_id for episode in log}
    return [task for task in tasks if task.id in known]


def _without_blanks(text: str) -> str:
    return "".join(text.split())


def _given(subset: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What grades the answer."""
    if subset == "alfworld":
        return {"games": row["games"], "reference": ""}
    given = {"reference": row["reference"]}
    if subset == "theoremqa":
        given["answer_type"] = row["answer_type"]
    return given


def task_text(subset: str, raw: str) -> str:
    """The task's own text as the recorded runs show it."""
    if subset == "mbpp":
        return raw.replace('"""', "").strip()
    return raw if subset in ("mmlu", "humaneval", "alfworld") else raw.strip()


def household_prompt(game: Game) -> str:
    """The text of a game: its opening without the welcome line."""
    room, task = Play(game).opening.split("\n\n")[1:]
    return f"{room}\n{task}"


@cache
def household_games(archive: Path) -> Mapping[str, Game]:
    """The games of an archive by id (``<task>/<trial>``), read once a process. Raises ValueError on none."""
    return read_archive(archive)


def _household_rows(folder: Path) -> list[dict[str, Any]]:
    archive = required(folder, GAMES)
    games = household_games(archive)
    ids = _read(folder, GAME_IDS).split()
    ids = ["/".join(Path(i).parts[-2:]) for i in ids]
    if missing := [i for i in ids if i not in games]:
        raise ValueError(f"{archive}: lacks {len(missing)} of {len(ids)} games, first {missing[0]}")
    return [{"id": i, "games": str(archive), "prompt": household_prompt(games[i])} for i in ids]


def _family(subset: str, row: Mapping[str, Any]) -> str:
    if subset == "alfworld":
        return f"alfworld/{_HOUSE_FAMILY[row['id'].split('-')[0]]}"
    return subset if subset in ("humaneval", "mbpp") else "reasoning"


def _rows(folder: Path, subset: str) -> list[dict[str, Any]]:
    path = required(folder, tasks_file(subset))
    try:
        lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}; expected gzipped lines of JSON") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            needed = {"id", "prompt", "reference"} | ({"answer_type"} if subset == "theoremqa" else set())
            if missing := needed - set(row):
                raise ValueError(f"lacks {', '.join(sorted(missing))}")
            _check_gradable(subset, row)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not a task of {subset}: {error}") from error
        rows.append(row)
    return rows


def _check_gradable(subset: str, row: Mapping[str, Any]) -> None:
    """Raises ValueError where no answer to the task could be graded."""
    if subset not in ("humaneval", "mbpp"):
        grade(subset, "0", row["reference"], prompt=row["prompt"], answer_type=row.get("answer_type", ""))


def _read(folder: Path, name: str) -> str:
    return required(folder, name).read_text(encoding="utf-8")
