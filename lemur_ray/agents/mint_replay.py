"""MINT's recorded runs: reads the logs of mint-bench (one JSON episode a line) and says their replies again.

| in the log | here |
|---|---|
| an assistant's message | a reply, without the ``Assistant:`` line in front and one final line break |
| two user messages in a row | an empty reply |
| a user's message last | the model could not answer any more: ContextOverflow |

A log does not say which benchmark it is of (``task_name`` is "reasoning" for five of them): its file name does, as in
``gsm8k.results.jsonl.gz``. Knows no environment.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from lemur_ray.agents.messages import ChatReply, ChatRequest, ContextOverflow

SUBSETS = ("gsm8k", "math", "theoremqa", "hotpotqa", "mmlu", "humaneval", "mbpp", "alfworld")
PREFIX = "Assistant:\n"
FEEDBACK = "\nExpert feedback:\n"
NOT_EXECUTED = "[Not executed: this replay only grades]"
"""What stands in place of a cell's output where a replay runs no code."""
TERMINATE_REASONS = ("task_success", "error", "max_propose_steps", "max_steps")
_COUNT_DOWN = re.compile(r"^You have (-?\d+) steps left and (-?\d+) chances to propose solution left\.$", re.MULTILINE)


@dataclass(frozen=True)
class LoggedTurn:
    """A reply and what followed it; ``content`` is the whole user message, None after the last turn."""

    reply: str
    content: str | None

    @property
    def observation(self) -> str | None:
        """What the tool or the environment said, without count-down and feedback."""
        return None if self.content is None else split_observation(self.content).text

    @property
    def feedback(self) -> str | None:
        return None if self.content is None else split_observation(self.content).feedback


@dataclass(frozen=True)
class LoggedEpisode:
    """One episode of a log. ``counts``: propose_solution, use_tool, invalid_action."""

    subset: str
    task_id: str
    task_name: str
    prompt: str
    first_message: str
    turns: tuple[LoggedTurn, ...]
    success: bool
    counts: Mapping[str, int]
    terminate_reason: str
    error: str | None

    @property
    def saw_traceback(self) -> bool:
        """Whether any message after the first showed a Python traceback (Table 9 of the Lemur paper)."""
        return any("Traceback (most recent call last)" in (turn.content or "") for turn in self.turns)


@dataclass(frozen=True)
class SeenMessage:
    """The parts of a user message: text, (steps left, proposals left), feedback."""

    text: str
    left: tuple[int, int] | None
    feedback: str | None


def split_observation(content: str) -> SeenMessage:
    """Takes a user message of MINT's protocol apart; the last count-down before the last feedback is the real one."""
    body = content.removeprefix("Observation:\n")
    cut = body.rfind(FEEDBACK)
    feedback = None if cut < 0 else body[cut + len(FEEDBACK) :].removesuffix("\n")
    body = body if cut < 0 else body[:cut]
    found = list(_COUNT_DOWN.finditer(body))
    if not found:
        return SeenMessage(body.rstrip("\n"), None, feedback)
    left = int(found[-1][1]), int(found[-1][2])
    return SeenMessage(body[: found[-1].start()].rstrip("\n"), left, feedback)


def after_observation(content: str) -> str:
    """The text of a user message as it was sent, line breaks at its end included, without count-down and feedback."""
    body = content.removeprefix("Observation:\n")
    found = _COUNT_DOWN.search(body)
    return body if found is None else body[: found.start()].removesuffix("\n")


def subset_of(path: Path) -> str:
    """The benchmark that a log's file name says; empty where it says none."""
    name = path.name.split(".")[0]
    return name if name in SUBSETS else ""


def is_mint_log(path: Path) -> bool:
    """Whether the first record of a file looks like one of MINT's; False for what cannot be read at all."""
    try:
        with _opened(path) as lines:
            first = json.loads(next(line for line in lines if line.strip()))
    except (OSError, EOFError, ValueError, StopIteration, zlib.error):
        return False
    return isinstance(first, dict) and isinstance(first.get("state"), dict) and "task" in first


def read_log(path: Path, subset: str = "") -> list[LoggedEpisode]:
    """The episodes of a log (``.json``, ``.jsonl``, either with ``.gz``), the first of each task.

    ``subset``: of which benchmark; empty: as the file name says. Raises FileNotFoundError, ValueError that names file
    and line.
    """
    subset = subset or subset_of(path)
    first: dict[str, LoggedEpisode] = {}
    for where, value in _lines(path):
        try:
            episode = _episode(value, subset)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{where}: not an episode of MINT: {type(error).__name__}: {error}") from error
        first.setdefault(episode.task_id, episode)
    if not first:
        raise ValueError(f"{path}: no episode in it")
    return list(first.values())


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such recording")
    with _opened(path) as lines:
        try:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    yield f"{path}, line {number}", json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"{path}, line {number}: not JSON: {error}") from error
        except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
            raise ValueError(f"{path}: cannot be read: {error}") from error


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8"))
    return path.open(encoding="utf-8")


def _episode(value: Mapping[str, Any], subset: str) -> LoggedEpisode:
    state, task = value["state"], value["task"]
    history = [(str(m["role"]), str(m["content"])) for m in state["history"]]
    if not history or history[0][0] != "user":
        raise ValueError("history does not begin with the user's message")
    if unknown := {role for role, _ in history} - {"user", "assistant"}:
        raise ValueError(f"history holds roles {sorted(unknown)}: expected user and assistant")
    reason = state["terminate_reason"]
    if reason not in TERMINATE_REASONS:
        raise ValueError(f"terminate_reason {reason!r}: expected one of {', '.join(TERMINATE_REASONS)}")
    return LoggedEpisode(
        subset=subset,
        task_id=str(task["task_id"]),
        task_name=str(task["task_name"]),
        prompt=str(task["prompt"]),
        first_message=history[0][1],
        turns=tuple(_turns(history[1:])),
        success=bool(state["success"]),
        counts={name: int(count) for name, count in state["agent_action_count"].items()},
        terminate_reason=reason,
        error=state["error"],
    )


def _turns(history: Sequence[tuple[str, str]]) -> Iterator[LoggedTurn]:
    """Turns of a history without its first message."""
    said: str | None = None
    for role, content in history:
        if role == "assistant":
            if said is not None:
                raise ValueError("two assistant messages in a row")
            said = content.removeprefix(PREFIX).removesuffix("\n")
        else:
            yield LoggedTurn(said or "", content)
            said = None
    if said is not None:
        yield LoggedTurn(said, None)


class MintReplay:
    """A policy that says what a log's model said, whatever the environment answers."""

    wants_hints = False

    def __init__(self, episodes: Sequence[LoggedEpisode], name: str = "replay") -> None:
        self.name = name
        self._episodes = {episode.task_id: episode for episode in episodes}

    def reply(self, request: ChatRequest) -> ChatReply:
        """The next reply of the episode that ``request.episode`` (benchmark|task|...) names. Raises ContextOverflow
        where the log's model could not answer, KeyError for a task that the log does not hold."""
        task = request.episode.split("|")[1]
        if task not in self._episodes:
            raise KeyError(f"{self.name}: no episode of task {task!r} in the log")
        turns = self._episodes[task].turns
        turn = sum(message.role == "user" for message in request.messages) - 1
        if turn >= len(turns):
            raise ContextOverflow(f"the log ends after {len(turns)} turns: {self._episodes[task].error or 'no more'}")
        return ChatReply(turns[turn].reply)


def recomputed_reason(episode: LoggedEpisode, max_steps: int = 5, max_propose: int = 2) -> str:
    """Why an episode ended by MINT's rules, from its counters alone."""
    if episode.success:
        return "task_success"
    if episode.error is not None:
        return "error"
    if episode.counts["propose_solution"] >= max_propose:
        return "max_propose_steps"
    return "max_steps" if sum(episode.counts.values()) >= max_steps else "running"
