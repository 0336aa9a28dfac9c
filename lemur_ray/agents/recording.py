"""A recorded run of InterCode, read into typed turns: what was done, what came back, what it was worth.

The format is princeton-nlp/intercode's log (c3e46d8): a JSON object keyed by task index, or one such object per line,
each episode with ``query``, ``turn_history`` (lists of equal length) and ``summary``. Plain or gzip. Knows no
environment and no reward rule.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

ReplayMode = Literal["strict", "grading"]

_NOT_CODE = ("No SQL code was found", "Format your SQL command as", "No code was found")
"""How the answers to a reply without code begin; the logs mark some of these turns as valid."""
_ENDED_BY_FAULT = "blocked"
"""Upstream's action of a turn whose policy raised. The last one, and without an observation."""


@dataclass(frozen=True)
class RecordedTurn:
    """One turn. ``action`` is None where nothing was understood, "skip" where the episode was given up."""

    action: str | None
    observation: str
    reward: float


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode. ``max_reward`` is what its summary says."""

    index: int
    query: str
    turns: tuple[RecordedTurn, ...]
    max_reward: float
    gold_output: str | None = None
    """What the gold printed, as it was recorded; None where the log does not say."""

    @property
    def solved(self) -> bool:
        return self.max_reward == 1


@dataclass(frozen=True)
class Recording:
    """All episodes of a file by the index of their task."""

    name: str
    episodes: Mapping[int, RecordedEpisode]


@lru_cache(maxsize=4)
def read_recording(path: Path) -> Recording:
    """Read ``.json`` or ``.jsonl``, either with ``.gz``. Raises FileNotFoundError, ValueError naming file and place."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such recording")
    episodes: dict[int, RecordedEpisode] = {}
    for place, key, value in _entries(path):
        try:
            episode = _episode(key, value)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path}, {place}: {_said(error)}; expected an episode as InterCode logs it") from error
        if episode.index in episodes:
            raise ValueError(f"{path}, {place}: task {episode.index} is recorded twice")
        episodes[episode.index] = episode
    if not episodes:
        raise ValueError(f"{path}: no episode in it")
    return Recording(path.name.split(".json")[0], episodes)


def _entries(path: Path) -> Iterator[tuple[str, str | None, Any]]:
    """Place, key (None in lines) and value of every record."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}; expected JSON in UTF-8, plain or gzip") from error
    if ".jsonl" in path.name:
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield f"line {number}", None, _parsed(line, path, number - 1)
        return
    whole = _parsed(text, path, 0)
    if not isinstance(whole, dict):
        raise ValueError(f"{path}: a JSON {type(whole).__name__}, expected an object keyed by task index")
    for key, value in whole.items():
        yield f"task {key!r}", key, value


def _parsed(text: str, path: Path, lines_before: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno + lines_before}, column {error.colno}"
        raise ValueError(f"{path}, {at}: {error.msg}; expected JSON") from error
    except RecursionError as error:
        raise ValueError(f"{path}, line {lines_before + 1}: nested too deeply; expected JSON") from error


def _episode(key: str | None, value: Any) -> RecordedEpisode:
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
        RecordedTurn(_action(action, observation), str(observation), _finite(reward or 0.0))
        for action, observation, reward in zip(actions, observations, rewards, strict=True)
    )
    best = value.get("summary", {}).get("max_reward")
    if best is None:
        best = max((turn.reward for turn in turns), default=0.0)
    info = value.get("info")
    said = info.get("eval_obs") if isinstance(info, dict) else None
    return RecordedEpisode(index, str(value["query"]), turns, _finite(best), said if isinstance(said, str) else None)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a reward of {number}")
    return number


def _action(action: Any, observation: Any) -> str | None:
    if not isinstance(action, str):
        raise ValueError(f"an action of type {type(action).__name__}")
    if action == _ENDED_BY_FAULT:
        return "skip"
    return None if str(observation).startswith(_NOT_CODE) else action


def _said(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)
