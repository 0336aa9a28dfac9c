"""MINT's 586 tasks, read from the data folder, with prompts worded as in the published runs.

Layout: ``DATA/mint/tasks/<subset>.test_prompts.jsonl.gz``, ``DATA/mint/tasks/alfworld/`` and
``DATA/mint/in_context_examples/``; ``envs/outside_data.toml`` has the source of each file."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from envs.alfworld.games.game import Game
from envs.alfworld.games.game_file import digest_of_all, read_with_digests
from envs.alfworld.play import Play
from envs.mint.recording import SUBSETS, MintEpisode, subset_of
from envs.mint.wording import recorded_wording
from envs.outside_data import GAME_IDS, GAMES, mint_tasks_file, required
from lemur_ray.agents.recording import Recording
from lemur_ray.agents.trajectory import Task
from lemur_ray.grading.mint import grade
from lemur_ray.host.json_files import read_json_lines
from lemur_ray.storage.bundles.host_path import HostPath

ENV_ID = "envs:lemur/MINT-v0"
MAX_STEPS, MAX_PROPOSE = 5, 2
_PINNED_GAMES = "c0bca90a397760ec"
"""``digest_of_all`` of the 134 games that the published runs played."""
_HOUSE_FAMILY = {
    "pick_and_place_simple": "put",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "look_at_obj_in_light": "examine",
    "pick_two_obj_and_place": "puttwo",
}


def load_mint_tasks(subset: str, data: Path, limit: int = 0, options: Mapping[str, Any] | None = None) -> list[Task]:
    """The first ``limit`` (0: all) tasks of a subset. ``options`` are added to those of each task (table in
    ``envs.mint.mint_env``). Raises ValueError for an unknown subset or a malformed file (names file and line),
    FileNotFoundError with the missing file and its source."""
    if subset not in SUBSETS:
        raise ValueError(f"MINT has no subset {subset!r}: expected one of {', '.join(SUBSETS)}")
    shared = {"subset": subset, "max_steps": MAX_STEPS, **(options or {})}
    feedback = shared.get("feedback", "none") != "none"
    rows = _household_rows(data) if subset == "alfworld" else _rows(data, subset)
    texts = {str(row["id"]): task_text(subset, str(row["prompt"])) for row in rows}
    wording = recorded_wording(data / "mint" / "outputs", subset, texts)
    shared["wording"] = dataclasses.asdict(wording)
    known = [[texts[str(row["id"])], _reference(subset, {**row, "games": ""})] for row in rows]
    other = _games_unlike_pinned(data, rows) if subset == "alfworld" else []
    content = json.dumps([shared["wording"], feedback, known, *other], sort_keys=True)
    shared["database_id"] = hashlib.sha256(content.encode()).hexdigest()[:16]
    tasks = []
    for row in rows[: limit or None]:
        name, family = str(row["id"]), _family(subset, row)
        category = family.removeprefix("alfworld/") if subset == "alfworld" else row.get("answer_type", subset)
        own = {**_reference(subset, row), "id": name, "prompt": wording.lead + texts[name]}
        options = {**shared, **own, "example": _read(data, _example_file(family, feedback))}
        max_turns = 2 * int(shared["max_steps"])
        tasks.append(Task(f"mint/{subset}", name, ENV_ID, category, options, max_turns=max_turns))
    return tasks


def replay_options(file: Path, recording: Recording[MintEpisode], *, strict: bool) -> dict[str, Any]:
    """Environment options that replay ``file``, with its feedback. ``strict``: run the code, and answer searches from
    the recording; else only grade proposals, and run no code but ALFWorld's, which plays the game."""
    episodes = list(recording.episodes.values())
    options: dict[str, Any] = {"tools": "run" if strict or episodes[0].subset == "alfworld" else "skip"}
    options |= {"wikipedia": HostPath(file, prefix="log:"), "recording": HostPath(file)}
    if any(turn.feedback is not None for episode in episodes for turn in episode.turns):
        options |= {"feedback": "textual", "teacher": HostPath(file, prefix="log:")}
    return options


_FEW = 3
"""Number of tasks up to which a log is accepted even if all its questions are worded differently."""


def recorded_tasks(tasks: Sequence[Task], recording: Recording[MintEpisode], path: Path | None) -> list[Task]:
    """Those of ``tasks`` that the recording has, matched by id, since some runs have other wordings of questions.
    Raises ValueError if the recording is another subset's or has an unknown task."""
    subset = tasks[0].options["subset"]
    texts = {task.id: "".join(str(task.options["prompt"]).split()) for task in tasks}
    known = {task.id for task in tasks}
    for task_id, episode in recording.episodes.items():
        if task_id not in known:
            raise ValueError(f"{path}: task {task_id!r} is not one of mint/{subset}")
        if episode.task_name and episode.task_name.split("/")[0] != _log_name(subset):
            raise ValueError(f"{path}: task {task_id!r} is of {episode.task_name!r}, not of mint/{subset}")
    named = subset_of(path) if path is not None else ""
    same = sum(texts[e.task] == "".join(e.question.split()) for e in recording.episodes.values())
    if (named and named != subset) or (not same and len(recording.episodes) > _FEW):
        raise ValueError(f"{path}: nothing in it is mint/{subset}'s: is it a run of another?")
    return [task for task in tasks if task.id in recording.episodes]


def _log_name(subset: str) -> str:
    """The name that MINT's logs give to the tasks of a subset."""
    return subset if subset in ("humaneval", "mbpp", "alfworld") else "reasoning"


def _reference(subset: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a task by which its answer is graded: a reference, or for alfworld the archive of games."""
    if subset == "alfworld":
        return {"games": row["games"], "reference": ""}
    given = {"reference": row["reference"]}
    if subset == "theoremqa":
        given["answer_type"] = row["answer_type"]
    return given


def task_text(subset: str, raw: str) -> str:
    """A task's text as the published runs show it: ``raw``, its text in the data of the subset, without the outer
    whitespace or (mbpp) docstring quotes that those runs remove."""
    if subset == "mbpp":
        return raw.replace('"""', "").strip()
    return raw if subset in ("mmlu", "humaneval", "alfworld") else raw.strip()


def household_prompt(game: Game) -> str:
    """The prompt for an ALFWorld game: the room and the task in the game's words, without its welcome line."""
    room, task = Play(game).opening.split("\n\n")[1:]
    return f"{room}\n{task}"


@cache
def _games_in_archive(archive: Path) -> Mapping[str, tuple[Game, str]]:
    return read_with_digests(archive)


@cache
def household_games(archive: Path) -> Mapping[str, Game]:
    """The games of an archive by id (``<task>/<trial>``), read once per process. Raises ValueError without any."""
    return {name: game for name, (game, _) in _games_in_archive(archive).items()}


def _games_unlike_pinned(data: Path, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Empty if the games are those of the published runs, else their digest, which is then in task identity."""
    games = _games_in_archive(required(data, GAMES))
    digest = digest_of_all({row["id"]: games[row["id"]][1] for row in rows})
    return [] if digest == _PINNED_GAMES else [digest]


def _household_rows(data: Path) -> list[dict[str, Any]]:
    archive = required(data, GAMES)
    games = household_games(archive)
    ids = _read(data, GAME_IDS).split()
    ids = ["/".join(Path(i).parts[-2:]) for i in ids]
    if missing := [i for i in ids if i not in games]:
        raise ValueError(f"{archive}: lacks {len(missing)} of {len(ids)} games, first {missing[0]}")
    return [{"id": i, "games": HostPath(archive), "prompt": household_prompt(games[i])} for i in ids]


def _family(subset: str, row: Mapping[str, Any]) -> str:
    if subset == "alfworld":
        return f"alfworld/{_HOUSE_FAMILY[row['id'].split('-')[0]]}"
    return _log_name(subset)


def _rows(data: Path, subset: str) -> list[dict[str, Any]]:
    path = required(data, mint_tasks_file(subset))
    rows = []
    for number, row in read_json_lines(path):
        try:
            needed = {"id", "prompt", "reference"} | ({"answer_type"} if subset == "theoremqa" else set())
            if missing := needed - set(row):
                raise ValueError(f"lacks {', '.join(sorted(missing))}")
            if subset not in ("humaneval", "mbpp"):  # raises ValueError if no answer to the task could be graded
                grade(subset, "0", row["reference"], prompt=row["prompt"], answer_type=row.get("answer_type", ""))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not a task of {subset}: {error}") from error
        rows.append(row)
    return rows


def example_files(subset: str, *, with_feedback: bool) -> list[str]:
    """Paths, below the data folder, of the in-context examples for a subset."""
    households = [f"alfworld/{name}" for name in _HOUSE_FAMILY.values()]
    families = households if subset == "alfworld" else [_log_name(subset)]
    return [_example_file(family, with_feedback) for family in families]


def _example_file(family: str, with_feedback: bool) -> str:
    return f"mint/in_context_examples/{family}/with_tool{'_and_feedback' * with_feedback}.txt"


def _read(data: Path, name: str) -> str:
    return required(data, name).read_text(encoding="utf-8")
