"""Reads recorded runs of tau-bench: a JSON list of episodes, each with its task as it was then, messages and reward.

Replays repeat the agent's messages and the user's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import parse_tool_calls
from lemur_ray.agents.recording import RecordedEpisode, RecordedTurn, Recording, RecordingFormat, task_name
from lemur_ray.agents.replay_comparison import Comparison, EpisodeComparison
from lemur_ray.agents.replay_goals import Goal, PublishedRuns, RecordedRun, StrictReplays
from lemur_ray.agents.trajectory import Episode
from lemur_ray.host.json_files import read_json

DOMAINS = ("retail", "airline")
FOLDER = "historical_trajectories"


@dataclass(frozen=True)
class TauEpisode(RecordedEpisode):
    """A recorded conversation. ``user``: the user's messages; ``index``: number of the task, which is ``definition``
    with its gold actions."""

    user: tuple[str, ...] = ()
    index: int = 0
    definition: Mapping[str, Any] = field(default_factory=dict)


@lru_cache(maxsize=4)
def read_recording(path: Path) -> Recording[TauEpisode]:
    """Read a recorded run. Raises FileNotFoundError, ValueError naming file and episode."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such recording")
    rows = read_json(path)
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{path}: expected a list of episodes, as tau-bench writes it")
    episodes: dict[str, TauEpisode] = {}
    for number, row in enumerate(rows):
        try:
            if row["traj"]:  # an episode that failed by an error of the harness has none
                episode = _episode(row)
                episodes[episode.task] = episode
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise ValueError(f"{path}, episode {number}: {error!r}; expected one as tau-bench writes it") from error
    return Recording(path.name.split(".json")[0], episodes, lambda key: task_name(key).partition("/")[2])


def _episode(row: Mapping[str, Any]) -> TauEpisode:
    index, trial, messages = int(row["task_id"]), int(row["trial"]), row["traj"]
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    turns = tuple(
        RecordedTurn(
            messages[place]["content"] or "",
            str(messages[place + 1]["content"]) if place + 1 < len(messages) else None,
            tool_calls=parse_tool_calls(messages[place])[:1],
        )
        for place in places
    )
    user = tuple(str(message["content"]) for message in messages if message["role"] == "user")
    definition = row["info"]["task"]
    return TauEpisode(
        f"{index}/trial-{trial}", str(definition["instruction"]), turns, float(row["reward"]) == 1, "", None,
        user, index, definition,
    )  # fmt: skip


def _alike(episode: Episode, recorded: TauEpisode) -> EpisodeComparison:
    pairs = list(zip(episode.trajectory.steps, recorded.turns, strict=False))
    same = sum(step.observation == turn.observation for step, turn in pairs)
    return EpisodeComparison({"turns": len(pairs), "same_observation": same})


FORMAT = RecordingFormat(
    read_recording,
    Comparison(_alike, ("turns", "same_observation"), {"observation_agreement": ("same_observation", "turns")}),
)


def _runs_of_file(file: Path, name: str, strict: StrictReplays) -> Iterator[RecordedRun]:
    for domain in DOMAINS:
        if FOLDER in name and name.endswith(f"-{domain}"):
            yield RecordedRun(file, name, f"tau_bench/{domain}", "strict")


RUNS = PublishedRuns(_runs_of_file, (Goal("tau-bench: solved alike", "tau_bench/.*", 1.0),))
