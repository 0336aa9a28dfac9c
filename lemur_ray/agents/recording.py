"""Recordings of earlier runs: the replies of each episode, turn by turn, and the data to compare a replay with.

A *recording* is data; a *replay* is an evaluation whose policy repeats its replies (``agents/replay.py``). Each
benchmark declares how its recordings are read, named and compared (``RecordingFormat``)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from lemur_ray.agents.messages import ToolCall
from lemur_ray.agents.replay_comparison import Comparison
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Task

ReplayMode = Literal["strict", "grading"]
"""Strict: a replay executes all recorded replies. Grading: it executes nothing and grades the recorded submissions."""
NOT_EXECUTED = "[Not executed: this replay only grades]"
"""Observation in place of a program's output if a replay runs no code"""


@dataclass(frozen=True)
class RecordedTurn:
    """One turn of a recorded episode: reply, observation after it, reward and a teacher's feedback, each None where the
    format stores none."""

    reply: str
    """Reply as the environment parses it; empty if the recording has none or its format could not read it"""
    observation: str | None = None
    """The whole message that followed the reply; None: there was none"""
    reward: float | None = None
    feedback: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    """As in ``ChatReply``"""


@dataclass(frozen=True)
class RecordedEpisode:
    """The recording of one episode: task, question, turns, success. Formats with more data subclass it."""

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
    """The task id in ``episode``, the text ``str(EpisodeKey)``. Raises ValueError for any other text."""
    return EpisodeKey.from_text(episode).task


def task_number(episode: str) -> str:
    """``trailing_number`` of the task id in ``episode``, the text ``str(EpisodeKey)``. Raises ValueError if the id does
    not end with a number."""
    return trailing_number(task_name(episode))


def trailing_number(task: str) -> str:
    """The number after the last hyphen of a task id, as text without leading zeros: the task's index in the data.
    Raises ValueError if there is none."""
    number = task.rpartition("-")[2]
    if not number.isdigit():
        raise ValueError(f"task {task!r}: its id does not end in the number of a task, so it cannot be in a log")
    return str(int(number))


@dataclass(frozen=True)
class Recording(Generic[E]):
    """Recorded episodes of one run by key. ``key_of``: from an episode's id, ``str(EpisodeKey)``, to its key here."""

    name: str
    episodes: Mapping[str, E]
    key_of: Callable[[str], str] = task_name

    def of(self, episode: str) -> E:
        """The recorded episode for the id ``episode``, ``str(EpisodeKey)``. Raises KeyError if there is none."""
        key = self.key_of(episode)
        if key not in self.episodes:
            raise KeyError(f"{self.name}: no episode of task {key!r} in the recording")
        return self.episodes[key]


@dataclass(frozen=True)
class RewordedTask:
    """A task whose question now reads differently (``now``) than in the recording (``recorded``)."""

    task: str
    recorded: str
    now: str


def reworded_tasks(
    tasks: Iterable[Task], recording: Recording[Any], question: Callable[[Task], str]
) -> list[RewordedTask]:
    """Tasks whose question differs from the recorded one by more than whitespace; empty if none do. ``question``:
    function from a task to its present question. Raises KeyError for a task that is not recorded."""
    changed = []
    for task in tasks:
        then, now = recording.of(str(EpisodeKey(task.benchmark, task.id, "", ""))).question, question(task)
        if "".join(then.split()) != "".join(now.split()):
            changed.append(RewordedTask(task.id, then, now))
    return changed


def record_episodes(episodes: Iterable[Episode], name: str) -> Recording[RecordedEpisode]:
    """A ledger's episodes as a recording called ``name``. After an episode's last turn a replay gets empty replies."""
    recorded = {}
    for episode in episodes:
        native = bool(episode.trajectory.tools)
        turns = tuple(
            RecordedTurn(s.reply, s.observation, s.reward, tool_calls=s.tool_calls if native else None)
            for s in episode.trajectory.steps
        )
        solved = episode.outcome is Outcome.SOLVED
        recorded[str(episode.key)] = RecordedEpisode(episode.key.task, "", turns, solved)
    return Recording(name, recorded, str)


@dataclass(frozen=True)
class RecordingFormat:
    """How recordings of a benchmark are read, named (``name``: by the file's path) and compared with their replays."""

    read: Callable[[Path], Recording[Any]]
    """Read a recording. Raises FileNotFoundError, or ValueError with the file and the place in it."""
    comparison: Comparison
    name: Callable[[Path], str] = attrgetter("name")
    question: Callable[[Task], str] | None = None
    """From a task to its question as recordings store it; None if they store none"""
