"""Reads the logs of MINT's published runs (mint-bench: one JSON episode a line), and splits their messages into parts.

| in the log | here |
|---|---|
| an assistant's message | a reply, without the leading ``Assistant:`` line and one final line break |
| two user messages in a row | an empty reply |
| a user's message last | the model could not answer, since its context was full |

The subset of a log is in its file name (``gsm8k.results.jsonl.gz``), since five share a ``task_name``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lemur_ray.agents.recording import RecordedEpisode, RecordedTurn, Recording
from lemur_ray.agents.replay_goals import Goal, PublishedRuns, RecordedRun, StrictReplays
from lemur_ray.host.json_files import read_json_lines

SUBSETS = ("gsm8k", "math", "theoremqa", "hotpotqa", "mmlu", "humaneval", "mbpp", "alfworld")
PREFIX = "Assistant:\n"
FEEDBACK = "\nExpert feedback:\n"
TERMINATE_REASONS = ("task_success", "error", "max_propose_steps", "max_steps")
_COUNT_DOWN = re.compile(r"^You have (-?\d+) steps left and (-?\d+) chances to propose solution left\.$", re.MULTILINE)


@dataclass(frozen=True)
class MintEpisode(RecordedEpisode):
    """An episode of a log. ``task_name``: of the dataset ``subset``; ``first_message``: the prompt; ``counts``:
    propose_solution, use_tool, invalid_action; ``terminate_reason``: as logged; ``error``: why it was cut off, or
    None."""

    subset: str = ""
    task_name: str = ""
    first_message: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    terminate_reason: str = ""
    error: str | None = None


@dataclass(frozen=True)
class SeenMessage:
    """The parts of a user message: its text; ``left``: (steps, proposals) left; ``feedback``; None for missing ones."""

    text: str
    left: tuple[int, int] | None
    feedback: str | None


def split_observation(content: str) -> SeenMessage:
    """Split a user message of MINT's protocol at its last feedback and the last count-down before that."""
    body = content.removeprefix("Observation:\n")
    cut = body.rfind(FEEDBACK)
    feedback = None if cut < 0 else body[cut + len(FEEDBACK) :].removesuffix("\n")
    body = body if cut < 0 else body[:cut]
    matches = list(_COUNT_DOWN.finditer(body))
    if not matches:
        return SeenMessage(body.rstrip("\n"), None, feedback)
    left = int(matches[-1][1]), int(matches[-1][2])
    return SeenMessage(body[: matches[-1].start()].rstrip("\n"), left, feedback)


def after_observation(content: str) -> str:
    """The text of a user message up to its first count-down, trailing line breaks included; all of it without one."""
    body = content.removeprefix("Observation:\n")
    match = _COUNT_DOWN.search(body)
    return body if match is None else body[: match.start()].removesuffix("\n")


def text_of(turn: RecordedTurn) -> str | None:
    """The observation after a turn, without count-down lines and feedback; None after the last turn."""
    return None if turn.observation is None else split_observation(turn.observation).text


def subset_of(path: Path) -> str:
    """The subset in a log's file name; empty if there is none."""
    name = path.name.split(".")[0]
    return name if name in SUBSETS else ""


def name_of(file: Path) -> str:
    """Name of a recording: MODEL/SETTING, its two folders, if the file is named after a subset, else the file name."""
    return f"{file.parts[-3]}/{file.parts[-2]}" if subset_of(file) and len(file.parts) > 3 else file.name


def is_mint_recording(path: Path) -> bool:
    """Whether the first record of a file is in MINT's format. False for files that cannot be read."""
    try:
        _, first = next(read_json_lines(path))
    except (OSError, ValueError, StopIteration):
        return False
    return isinstance(first, dict) and isinstance(first.get("state"), dict) and "task" in first


def read_recording(path: Path, subset: str = "") -> Recording[MintEpisode]:
    """Read the episodes of a log (``.json``, ``.jsonl``, either with ``.gz``); of several of one task only the first.
    ``subset`` is by default that of the file name. Raises FileNotFoundError, ValueError that names file and line."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such recording")
    subset = subset or subset_of(path)
    first: dict[str, MintEpisode] = {}
    for number, value in read_json_lines(path):
        try:
            episode = _episode(value, subset)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{path}, line {number}: not an episode of MINT: {type(error).__name__}: {error}"
            ) from error
        first.setdefault(episode.task, episode)
    if not first:
        raise ValueError(f"{path}: no episode in it")
    return Recording(path.name, first)


def _episode(value: Mapping[str, Any], subset: str) -> MintEpisode:
    state, task = value["state"], value["task"]
    history = [(str(m["role"]), str(m["content"])) for m in state["history"]]
    if not history or history[0][0] != "user":
        raise ValueError("history does not begin with the user's message")
    if unknown := {role for role, _ in history} - {"user", "assistant"}:
        raise ValueError(f"history holds roles {sorted(unknown)}: expected user and assistant")
    reason = state["terminate_reason"]
    if reason not in TERMINATE_REASONS:
        raise ValueError(f"terminate_reason {reason!r}: expected one of {', '.join(TERMINATE_REASONS)}")
    return MintEpisode(
        task=str(task["task_id"]),
        question=str(task["prompt"]),
        turns=tuple(_turns(history[1:])),
        solved=bool(state["success"]),
        overflow=str(state["error"] or "no more"),
        subset=subset,
        task_name=str(task["task_name"]),
        first_message=history[0][1],
        counts={name: int(count) for name, count in state["agent_action_count"].items()},
        terminate_reason=reason,
        error=state["error"],
    )


def _turns(history: Sequence[tuple[str, str]]) -> Iterator[RecordedTurn]:
    """Yield the turns, a reply and the message after it, of a history without its first message. Raises ValueError."""
    reply: str | None = None
    for role, content in history:
        if role == "assistant":
            if reply is not None:
                raise ValueError("two assistant messages in a row")
            reply = content.removeprefix(PREFIX).removesuffix("\n")
        else:
            yield RecordedTurn(reply or "", content, feedback=split_observation(content).feedback)
            reply = None
    if reply is not None:
        yield RecordedTurn(reply)


_GOALS = (
    Goal("MINT graded again: solved alike", "mint/.*", 0.999, mode="grading"),
    Goal("MINT: counters alike", "mint/.*", 1.0, part="same_counters", mode="grading"),
    Goal("MINT: ends alike", "mint/.*", 1.0, part="same_terminate_reason", mode="grading"),
    Goal("MINT: count-down lines alike", "mint/.*", 1.0, "same_count_downs", "count_downs", mode="grading"),
    Goal("MINT played again: cells without search alike", "mint/.*", 0.97, "same_cells", "cells", mode="strict"),
    Goal("ALFWorld, by `done`: solved alike", "mint/alfworld", 1.0, mode="grading"),
)


def _runs_of_file(file: Path, name: str, strict: StrictReplays) -> Iterator[RecordedRun]:
    """Yield the replays of a log: graded again; if ``strict`` selects it and it has no feedback, also run again."""
    subset = subset_of(file)
    if not subset or not is_mint_recording(file):
        return
    yield RecordedRun(file, name, f"mint/{subset}", "grading")
    again = strict == "all" or (strict == "lemur" and "lemur" in file.parent.parent.name.lower())
    # Of ALFWorld every replay runs the code: it is what plays the game.
    if again and subset != "alfworld" and file.parent.name == "F=None":
        yield RecordedRun(file, f"{name} (strict)", f"mint/{subset}", "strict")


RUNS = PublishedRuns(_runs_of_file, _GOALS)
