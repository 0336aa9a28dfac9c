"""Recordings of earlier runs: the replies of each episode, turn by turn, and the data to compare a replay with.

A *recording* is data, a *replay* plays it again (``agents/replay.py``). The benchmark declares how files are read,
named and compared (``RecordingFormat``). Knows no format and no environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from lemur_ray.agents.replay_comparison import Comparison
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Task

ReplayMode = Literal["strict", "grading"]
"""A replay executes the recorded replies (strict), or only grades the recorded submissions (grading)."""
NOT_EXECUTED = "[Not executed: this replay only grades]"
"""Placeholder of an output when a replay runs no code"""


@dataclass(frozen=True)
class RecordedTurn:
    """A recorded turn."""

    reply: str
    """In the form that the environment parses; empty if there was no reply or none that was understood"""
    observation: str | None = None
    """The whole message that followed; None: there was none"""
    reward: float | None = None
    """None if the format has no reward per turn"""
    feedback: str | None = None
    """A teacher's feedback after the turn"""


@dataclass(frozen=True)
class RecordedEpisode:
    """A recorded episode. Formats with more data subclass it."""

    task: str
    question: str
    turns: tuple[RecordedTurn, ...]
    solved: bool
    afterwards: str = ""
    """The reply after the last recorded turn"""
    overflow: str | None = None
    """Recorded error message if the episode ended because the context was full, else None"""


E = TypeVar("E", bound=RecordedEpisode)


def task_name(episode: str) -> str:
    """The task in the id of an episode (``str(EpisodeKey)``)."""
    return EpisodeKey.from_text(episode).task


def task_number(episode: str) -> str:
    """The number that the task of an episode ends in (see ``number_in``)."""
    return trailing_number(task_name(episode))


def trailing_number(task: str) -> str:
    """The number that the id of a task ends in: its index in its data set. Raises ValueError where it ends in none."""
    number = task.rpartition("-")[2]
    if not number.isdigit():
        raise ValueError(f"task {task!r}: its id does not end in the number of a task, so it cannot be in a log")
    return str(int(number))


@dataclass(frozen=True)
class Recording(Generic[E]):
    """The episodes of a run by key. ``key_of``: from the id of an episode (``str(EpisodeKey)``) to its key."""

    name: str
    episodes: Mapping[str, E]
    key_of: Callable[[str], str] = task_name

    def of(self, episode: str) -> E:
        """The recorded episode of an episode id. Raises KeyError if there is none."""
        key = self.key_of(episode)
        if key not in self.episodes:
            raise KeyError(f"{self.name}: no episode of task {key!r} in the recording")
        return self.episodes[key]


@dataclass(frozen=True)
class RewordedTask:
    """A task whose wording differs from its recording; the task number is the same."""

    task: str
    recorded: str
    now: str


def reworded_tasks(
    tasks: Iterable[Task], recording: Recording[Any], question: Callable[[Task], str]
) -> list[RewordedTask]:
    """Tasks whose wording differs from the recording by more than whitespace.

    ``question``: from a task to its current wording. Raises KeyError for a task that is not recorded."""
    changed = []
    for task in tasks:
        then, now = recording.of(str(EpisodeKey(task.benchmark, task.id, "", ""))).question, question(task)
        if "".join(then.split()) != "".join(now.split()):
            changed.append(RewordedTask(task.id, then, now))
    return changed


def record_episodes(episodes: Iterable[Episode], name: str) -> Recording[RecordedEpisode]:
    """Episodes of a ledger as a recording. A replay that lasts longer than its episode gets empty replies."""
    recorded = {}
    for episode in episodes:
        turns = tuple(RecordedTurn(s.reply, s.observation, s.reward) for s in episode.trajectory.steps)
        solved = episode.outcome is Outcome.SOLVED
        recorded[str(episode.key)] = RecordedEpisode(episode.key.task, "", turns, solved)
    return Recording(name, recorded, str)


def _file_name(file: Path) -> str:
    return file.name


@dataclass(frozen=True)
class RecordingFormat:
    """Reader, naming and comparison of a benchmark's recordings."""

    read: Callable[[Path], Recording[Any]]
    """Raises FileNotFoundError, ValueError naming file and place."""
    comparison: Comparison
    name: Callable[[Path], str] = _file_name
    question: Callable[[Task], str] | None = None
    """A task's wording as recordings store it; None if they store none"""
