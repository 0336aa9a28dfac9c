"""A recording: what was said in a run, turn by turn, and what there is to compare a replay of it with.

Two words for two things: a *recording* is the data, a *replay* is playing it again (``agents/replay.py``). How a file
is read, what it is called and what is compared is declared by the benchmark it is of (``RecordingFormat``). Knows no
format and no environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from lemur_ray.agents.replay_comparison import Comparison
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Task

ReplayMode = Literal["strict", "grading"]
"""A replay carries out what was said (strict), or grades what was recorded and runs no code (grading)."""
NOT_EXECUTED = "[Not executed: this replay only grades]"
"""What stands in place of an output where a replay runs no code."""


@dataclass(frozen=True)
class RecordedTurn:
    """One turn."""

    reply: str
    """As an environment of that recording takes it; empty where nothing was said or understood."""
    observation: str | None = None
    """The whole message that followed; None where none did."""
    reward: float | None = None
    """None where the format holds none for a turn."""
    feedback: str | None = None
    """What a teacher said after it."""


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode. Formats that hold more derive from it."""

    task: str
    question: str
    turns: tuple[RecordedTurn, ...]
    solved: bool
    afterwards: str = ""
    """Said where there is no further turn."""
    overflow: str | None = None
    """Where a further turn means that the model's context was full: what was said of it."""


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
        """What was recorded of an episode, by its id. Raises KeyError where it holds none."""
        key = self.key_of(episode)
        if key not in self.episodes:
            raise KeyError(f"{self.name}: no episode of task {key!r} in the recording")
        return self.episodes[key]


@dataclass(frozen=True)
class RewordedTask:
    """A task that asks in other words than it did when it was recorded; it is still the task of that number."""

    task: str
    recorded: str
    now: str


def reworded_tasks(
    tasks: Iterable[Task], recording: Recording[Any], question: Callable[[Task], str]
) -> list[RewordedTask]:
    """The tasks whose words differ from the recorded ones by more than blanks. Raises KeyError for one that is not
    recorded. ``question``: what a task asks today."""
    found = []
    for task in tasks:
        then, now = recording.of(str(EpisodeKey(task.benchmark, task.id, "", ""))).question, question(task)
        if "".join(then.split()) != "".join(now.split()):
            found.append(RewordedTask(task.id, then, now))
    return found


def record_episodes(episodes: Iterable[Episode], name: str) -> Recording[RecordedEpisode]:
    """Our own episodes as a recording, by their ids. One that goes on longer than before is another one: it hears
    empty replies."""
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
    """How the recordings of a benchmark are read, called in keys, and compared with a replay."""

    read: Callable[[Path], Recording[Any]]
    """Raises FileNotFoundError, ValueError naming file and place."""
    comparison: Comparison
    name: Callable[[Path], str] = _file_name
    question: Callable[[Task], str] | None = None
    """What a task asks, as recordings have it; None where they hold no words of tasks."""
