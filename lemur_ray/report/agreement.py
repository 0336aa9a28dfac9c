"""How far a replay agrees with the recording it replays. Knows no environment and no reward rule.

| number | what |
|---|---|
| success | share of episodes that are solved in both or in neither: the ``agreement`` of a report |
| reward | share of turns played in both whose rewards differ by no more than the tolerance |

An episode without a score agrees in nothing: it counts against the success and is named. It has no turns to compare.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemur_ray.agents.mint_replay import is_mint_log, read_log
from lemur_ray.agents.recording import Recording, read_recording
from lemur_ray.agents.replay import index_of
from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.report import mint_agreement


@dataclass(frozen=True)
class Agreement:
    """Counts of a replay. ``differing``: tasks that are solved in one of the two only; ``missing``: without a score.

    ``episodes`` counts the others, those that could be compared.
    """

    episodes: int
    same_success: int
    turns: int
    same_reward: int
    recorded_solved: int
    solved: int
    differing: tuple[str, ...]
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "agreement": _share(self.same_success, self.episodes + len(self.missing)),
            "reward_agreement": _share(self.same_reward, self.turns),
            "agreement_counts": {
                "episodes": self.episodes,
                "same_success": self.same_success,
                "turns": self.turns,
                "same_reward": self.same_reward,
                "recorded_solved": self.recorded_solved,
                "solved": self.solved,
            },
            "differing": list(self.differing),
            "agreement_missing": list(self.missing),
        }


def agreement(recording: str, episodes: Iterable[Episode], tolerance: float) -> dict[str, Any]:
    """The agreement with a recorded file as JSON values; nothing where no file was replayed."""
    if not recording:
        return {}
    file = Path(recording)
    if is_mint_log(file):
        return mint_agreement.agreement_of(episodes, read_log(file)).to_json()
    return agreement_of(episodes, read_recording(file), tolerance).to_json()


def agreement_of(episodes: Iterable[Episode], recording: Recording, tolerance: float) -> Agreement:
    """Compare scored episodes with what was recorded. ``tolerance``: of a turn's reward; logs round to 0.01."""
    counts = {"episodes": 0, "same_success": 0, "turns": 0, "same_reward": 0, "recorded_solved": 0, "solved": 0}
    differing, missing = [], []
    for episode in episodes:
        if not episode.outcome.scored:
            missing.append(episode.key.task)
            continue
        recorded = recording.episodes[index_of(episode.key.task)]
        solved = episode.outcome is Outcome.SOLVED
        pairs = list(zip(episode.trajectory.steps, recorded.turns, strict=False))
        counts["episodes"] += 1
        counts["same_success"] += solved == recorded.solved
        counts["solved"] += solved
        counts["recorded_solved"] += recorded.solved
        counts["turns"] += len(pairs)
        counts["same_reward"] += sum(abs(step.reward - turn.reward) <= tolerance for step, turn in pairs)
        if solved != recorded.solved:
            differing.append(episode.key.task)
    return Agreement(**counts, differing=tuple(differing), missing=tuple(missing))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
