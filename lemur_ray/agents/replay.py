"""The policy that repeats a recorded run, and the tasks of that run.

An environment that is told ``recorded`` takes a reply as the recorded action itself and parses nothing: a recording
holds what upstream's parser made of the model's words, not the words. A turn in which nothing was understood is an
empty reply. Knows no environment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lemur_ray.agents.messages import ChatReply, ChatRequest
from lemur_ray.agents.recording import Recording, ReplayMode, read_recording
from lemur_ray.agents.trajectory import Task

GIVEN_UP = "skip"
"""What is said where the recording has no further turn."""


class ReplayPolicy:
    """Says, turn by turn, what a recording says. Which episode it is stands in the request."""

    wants_hints = False

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._recording = read_recording(path)
        self._turns: dict[str, int] = {}

    def reply(self, request: ChatRequest) -> ChatReply:
        """A request without any reply in it begins its episode anew, for example after a fault that was not ours."""
        begins = all(message.role != "assistant" for message in request.messages)
        turn = 0 if begins else self._turns[request.episode] + 1
        self._turns[request.episode] = turn
        turns = self._recording.episodes[index_of(request.episode.split("|")[1])].turns
        return ChatReply(turns[turn].action or "" if turn < len(turns) else GIVEN_UP)


def index_of(task_id: str) -> int:
    """The index of a task in its data set: the number its id ends in. Raises ValueError where there is none."""
    number = task_id.rpartition("-")[2]
    if not number.isdigit():
        raise ValueError(f"task {task_id!r}: its id does not end in the number of a task, so it cannot be in a log")
    return int(number)


def recorded_tasks(tasks: Iterable[Task], recording: Recording, path: Path, mode: ReplayMode) -> list[Task]:
    """The tasks that a recording holds, each with as many turns as it took then, in the order of the recording.

    Raises ValueError where an episode has no task of its index and question: then the log is of other data.
    """
    known = {(index_of(task.id), _question(task)): task for task in tasks}
    found = []
    for episode in recording.episodes.values():
        task = known.get((episode.index, " ".join(episode.query.split())))
        if task is None:
            raise ValueError(
                f"{path}, task {episode.index}: no task of that number asks {episode.query[:100]!r};"
                " expected a log of the same data and benchmark"
            )
        turns = max(1, len(episode.turns))
        recorded = {"recorded": mode, "recording": str(path.absolute()), "index": episode.index}
        options = {**task.options, **recorded, "max_steps": turns}
        found.append(replace(task, options=options, max_turns=turns))
    return found


def _question(task: Task) -> str:
    return " ".join(str(task.options.get("question", "")).split())
