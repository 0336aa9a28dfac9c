"""Reads the logs of InterCode's published runs, selects the tasks of a replay, and states how far it must agree.

The format is princeton-nlp/intercode's log (c3e46d8): a JSON object keyed by task index, or one such object per line,
each episode with ``query``, ``turn_history`` (lists of equal length) and ``summary``. Plain or gzip. A log has the
action that upstream parsed, not the model's reply: it serves as the recorded reply, empty if nothing was parsed,
``skip`` if the episode was given up."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from lemur_ray.agents.recording import (
    RecordedEpisode,
    RecordedTurn,
    Recording,
    RecordingFormat,
    ReplayMode,
    task_number,
    trailing_number,
)
from lemur_ray.agents.replay_comparison import Comparison, EpisodeComparison
from lemur_ray.agents.replay_goals import Goal, PublishedRuns, RecordedRun, StrictReplays
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.host.json_files import read_json, read_json_lines
from lemur_ray.storage.bundles.host_path import HostPath

_NOT_CODE = ("No SQL code was found", "Format your SQL command as", "No code was found")
"""Beginnings of answers to a reply without code. Logs mark some of these turns as valid."""
_ENDED_BY_FAULT = "blocked"
"""Upstream's logged action for a turn in which the policy raised: the last turn, often without an observation."""
_GIVEN_UP = "skip"


@dataclass(frozen=True)
class InterCodeEpisode(RecordedEpisode):
    """An episode of a log. ``gold_output``: the logged output of the reference query or command, None without."""

    gold_output: str | None = None


@lru_cache(maxsize=4)
def read_recording(path: Path) -> Recording[InterCodeEpisode]:
    """Read a log, .json or .jsonl, plain or gzip. Raises FileNotFoundError, ValueError with file and record."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such recording")
    episodes: dict[str, InterCodeEpisode] = {}
    for place, key, value in _entries(path):
        try:
            episode = _episode(key, value)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            problem = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path}, {place}: {problem}; expected an episode as InterCode logs it") from error
        if episode.task in episodes:
            raise ValueError(f"{path}, {place}: task {episode.task} is recorded twice")
        episodes[episode.task] = episode
    if not episodes:
        raise ValueError(f"{path}: no episode in it")
    return Recording(path.name.split(".json")[0], episodes, task_number)


def _entries(path: Path) -> Iterator[tuple[str, str | None, Any]]:
    """Yield (position for messages, task index or None in ``.jsonl``, parsed value) of every record."""
    if ".jsonl" in path.name:
        for number, value in read_json_lines(path):
            yield f"line {number}", None, value
        return
    whole = read_json(path)
    if not isinstance(whole, dict):
        raise ValueError(f"{path}: a JSON {type(whole).__name__}, expected an object keyed by task index")
    for key, value in whole.items():
        yield f"task {key!r}", key, value


def _episode(key: str | None, value: Any) -> InterCodeEpisode:
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__}")
    index = int(value["task_id"] if key is None else key)
    history = value["turn_history"]
    actions, rewards = history["actions"], history["rewards"]
    observations = history["observations"]
    if actions and actions[-1] == _ENDED_BY_FAULT and len(observations) == len(actions) - 1:
        observations = [*observations, ""]
    if not len(actions) == len(observations) == len(rewards):
        raise ValueError(
            f"{len(actions)} actions, {len(observations)} observations and {len(rewards)} rewards do not go together"
        )
    turns = tuple(
        RecordedTurn(_reply(action, observation), str(observation), _finite(reward or 0.0))
        for action, observation, reward in zip(actions, observations, rewards, strict=True)
    )
    best = value.get("summary", {}).get("max_reward")
    if best is None:
        best = max((turn.reward or 0.0 for turn in turns), default=0.0)
    info = value.get("info")
    gold_output = info.get("eval_obs") if isinstance(info, dict) else None
    return InterCodeEpisode(
        task=str(index),
        question=str(value["query"]),
        turns=turns,
        solved=_finite(best) == 1,
        afterwards=_GIVEN_UP,
        gold_output=gold_output if isinstance(gold_output, str) else None,
    )


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a reward of {number}")
    return number


def _reply(action: Any, observation: Any) -> str:
    if not isinstance(action, str):
        raise ValueError(f"an action of type {type(action).__name__}")
    if action == _ENDED_BY_FAULT:
        return _GIVEN_UP
    return "" if str(observation).startswith(_NOT_CODE) else action


def recorded_tasks(
    tasks: Iterable[Task], recording: Recording[InterCodeEpisode], path: Path, mode: ReplayMode
) -> list[Task]:
    """The tasks of a recording (read from ``path``) in its order, each set up to replay its episode's turns in
    ``mode``. Tasks are matched by number, since upstream has reworded some questions. If several parts of a benchmark
    (file systems of Bash) have the number, the task with the same question is used, or else that of the part with most
    episodes. Raises ValueError if no task has an episode's number."""
    known: dict[str, list[Task]] = {}
    for task in tasks:
        known.setdefault(trailing_number(task.id), []).append(task)
    alike = {
        episode.task: _asking(known.get(episode.task, ()), episode.question) for episode in recording.episodes.values()
    }
    parts = Counter(_part(task) for task in alike.values() if task is not None)
    tasks = []
    for episode in recording.episodes.values():
        candidates = known.get(episode.task, [])
        known_task = alike[episode.task] or max(candidates, key=lambda one: parts[_part(one)], default=None)
        if known_task is None:
            raise ValueError(
                f"{path}, task {episode.task}: there is no task of that number ({episode.question[:100]!r});"
                " expected a log of the same data and benchmark"
            )
        turns = max(1, len(episode.turns))
        recorded = {"recorded": mode, "recording": HostPath(path.absolute()), "index": int(episode.task)}
        options = {**known_task.options, **recorded, "max_steps": turns}
        tasks.append(replace(known_task, options=options, max_turns=turns))
    return tasks


def _asking(candidates: Sequence[Task], question: str) -> Task | None:
    """The first candidate with this question, ignoring whitespace; None if there is none."""
    words = question.split()
    return next((task for task in candidates if question_of(task).split() == words), None)


def _part(task: Task) -> str:
    """The id of a task without its number."""
    return task.id.rpartition("-")[0]


def question_of(task: Task) -> str:
    """A task's question, worded as in the logs; empty if it has none."""
    return str(task.options.get("question", ""))


def recorded_episode(options: Mapping[str, Any]) -> InterCodeEpisode:
    """The logged episode with the key ``options["index"]`` in the file ``options["recording"]``. Raises KeyError if the
    file or ``options`` lacks it, FileNotFoundError, ValueError for a malformed file."""
    return read_recording(Path(options["recording"])).episodes[str(options["index"])]


def recorded_with(reward_tolerance: float = 0.0051) -> RecordingFormat:
    """InterCode's log format, for ``BenchmarkDetails.recording_format``. A replayed reward agrees within
    ``reward_tolerance``: logs round rewards to 0.01."""
    shares = {"reward_agreement": ("same_reward", "turns")}
    comparison = Comparison(partial(_rewards, reward_tolerance), ("turns", "same_reward"), shares)
    return RecordingFormat(read_recording, comparison, question=question_of)


def _rewards(tolerance: float, episode: Episode, recorded: InterCodeEpisode) -> EpisodeComparison:
    pairs = list(zip(episode.trajectory.steps, recorded.turns, strict=False))
    same = sum(abs(step.reward - (turn.reward or 0.0)) <= tolerance for step, turn in pairs)
    return EpisodeComparison({"turns": len(pairs), "same_reward": same})


_NAME = re.compile(r"ic_(sql|bash|ctf|python)_")
_BY_ORDER = ("vicuna", "starchat")
"""Models whose published SQL rewards are row overlap times agreement of order (``--reward tau``)."""

_GPT_HANDICAP, _GPT_BASH = r"gpt-3\.5.*10_turns_handicap", r"gpt-3\.5.*fs_[134]"
_GOALS = (
    Goal("SQL, gpt-3.5, 10 turns, handicap: solved alike", "intercode/sql", 0.989, file=_GPT_HANDICAP, under="sqlite"),
    Goal("SQL, gpt-3.5, 10 turns, handicap: solved alike", "intercode/sql", 0.993, file=_GPT_HANDICAP, under="mysql"),
    Goal("SQL, vicuna: solved alike", "intercode/sql", 0.998, file="vicuna", under="mysql"),
    Goal("SQL, text-bison, handicap: solved alike", "intercode/sql", 0.990, file="bison.*handicap", under="mysql"),
    Goal("Bash, gpt-3.5, fs 1, 3, 4: solved alike", "intercode/bash", 0.92, file=_GPT_BASH, under="bwrap"),
    Goal("Bash, gpt-3.5, fs 1, 3, 4: solved alike", "intercode/bash", 0.93, file=_GPT_BASH, under="docker"),
    Goal("CTF: rewards alike", "intercode/ctf", 1.0, part="same_reward", whole="turns"),
)


def _runs_of_file(file: Path, name: str, strict: StrictReplays) -> Iterator[RecordedRun]:
    match = _NAME.match(file.name)
    if match is None or "_react_" in file.name:
        return
    kind = match[1]
    flags: tuple[str, ...] = ()
    if kind == "sql":
        order = "tau" if any(model in name for model in _BY_ORDER) else "iou"
        flags = ("--reward", order, *(("--handicap",) if "handicap" in name else ()))
    elif kind == "bash":
        flags = ("--compat",)
    yield RecordedRun(file, name, f"intercode/{kind}", "grading" if kind == "ctf" else "strict", flags)


RUNS = PublishedRuns(_runs_of_file, _GOALS)
