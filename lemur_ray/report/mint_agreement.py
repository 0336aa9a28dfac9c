"""How far MINT episodes that were played again agree with their recorded run, turn by turn.

| number | what |
|---|---|
| agreement | share of episodes that are solved in both or in neither; one without a score agrees in nothing |
| counters, count-down, terminate reason | shares that are exactly equal |
| observations | exact, equal after normalising, same class of error, different; search cells apart |

Normalising leaves out paths, addresses, cell numbers and blanks; of a traceback it keeps what stood before it and its
last line. Knows no environment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lemur_ray.agents.mint_replay import NOT_EXECUTED, LoggedEpisode, split_observation
from lemur_ray.agents.trajectory import Episode, Outcome, Step

_DASHES = "-" * 75
_ERROR_LINE = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*", re.MULTILINE)
_MAX_PROPOSE = 2


@dataclass
class Agreement:
    """Counts over episodes and turns. ``differing``: ids solved in one of the two only."""

    episodes: int = 0
    same_success: int = 0
    same_counters: int = 0
    same_reason: int = 0
    count_downs: int = 0
    same_count_downs: int = 0
    solved: int = 0
    recorded_solved: int = 0
    cells: Counter[str] = field(default_factory=Counter)
    """Observations of code: exact, normalised, same_error, different; the same with ``search_`` in front."""
    answers: Counter[str] = field(default_factory=Counter)
    """Observations of proposals and of replies that were not understood: equal, different."""
    differing: list[str] = field(default_factory=list)
    missing_tasks: list[str] = field(default_factory=list)
    """Ids of episodes without a score; they are not among ``episodes``."""
    different_cells: list[tuple[str, int, str, str]] = field(default_factory=list)
    """(task, turn, recorded, ours) of every cell that differs."""

    @property
    def missing(self) -> int:
        """Episodes without a score."""
        return len(self.missing_tasks)

    @property
    def cell_agreement(self) -> float | None:
        """Share of cells without search whose observation is equal after normalising or of the same error class."""
        kinds = ("exact", "normalised", "same_error", "different")
        total = sum(self.cells[kind] for kind in kinds)
        return (total - self.cells["different"]) / total if total else None

    def to_json(self) -> dict[str, Any]:
        """What the last line of a replay says."""
        asked = self.episodes + self.missing
        return {
            "agreement": self.same_success / asked if asked else None,
            "agreement_counts": {
                "episodes": self.episodes,
                "same_success": self.same_success,
                "same_counters": self.same_counters,
                "same_terminate_reason": self.same_reason,
                "count_downs": self.count_downs,
                "same_count_downs": self.same_count_downs,
                "recorded_solved": self.recorded_solved,
                "solved": self.solved,
            },
            "observation_agreement": self.cell_agreement,
            "observation_counts": dict(self.cells) | {f"answer_{kind}": n for kind, n in self.answers.items()},
            "differing": list(self.differing),
            "agreement_missing": list(self.missing_tasks),
        }


def agreement_of(episodes: Iterable[Episode], log: Sequence[LoggedEpisode]) -> Agreement:
    """Compare episodes with the log that was replayed. Raises KeyError for an episode that is not in it."""
    recorded = {episode.task_id: episode for episode in log}
    total = Agreement()
    for episode in episodes:
        if not episode.outcome.scored:
            total.missing_tasks.append(episode.key.task)
            continue
        _compare(episode, recorded[episode.key.task], total)
    return total


def _compare(episode: Episode, logged: LoggedEpisode, total: Agreement) -> None:
    solved, steps = episode.outcome is Outcome.SOLVED, episode.trajectory.steps
    total.episodes += 1
    total.solved += solved
    total.recorded_solved += logged.success
    total.same_success += solved == logged.success
    if solved != logged.success:
        total.differing.append(episode.key.task)
    total.same_counters += counters_of(steps) == {k: v for k, v in logged.counts.items() if v}
    total.same_reason += terminate_reason(episode) == logged.terminate_reason
    for number, (step, turn) in enumerate(zip(steps, logged.turns, strict=False)):
        if turn.content is None:
            continue
        theirs, ours = split_observation(turn.content), split_observation(step.observation)
        if theirs.left is not None:
            total.count_downs += 1
            total.same_count_downs += theirs.left == ours.left
        if step.action is None or not step.action.startswith("<execute>"):
            total.answers["equal" if theirs.text == ours.text else "different"] += 1
            continue
        if ours.text.startswith(NOT_EXECUTED):
            continue
        kind = likeness(theirs.text, ours.text)
        search = "wikipedia_search" in step.action
        total.cells[f"search_{kind}" if search else kind] += 1
        if kind == "different":
            total.different_cells.append((episode.key.task, number, theirs.text, ours.text))


def counters_of(steps: Sequence[Step]) -> dict[str, int]:
    """MINT's three counters from the actions that were understood, without those that are 0."""
    names = [
        "invalid_action"
        if step.action is None
        else "propose_solution"
        if step.action.startswith("<solution>")
        else "use_tool"
        for step in steps
    ]
    return dict(Counter(names))


def terminate_reason(episode: Episode) -> str:
    """MINT's word for how an episode ended."""
    if episode.outcome is Outcome.SOLVED:
        return "task_success"
    if episode.outcome is Outcome.CONTEXT_OVERFLOW:
        return "error"
    proposals = counters_of(episode.trajectory.steps).get("propose_solution", 0)
    return "max_propose_steps" if proposals >= _MAX_PROPOSE else "max_steps"


def likeness(recorded: str, ours: str) -> str:
    """exact, normalised, same_error or different."""
    if recorded == ours:
        return "exact"
    if normalised(recorded) == normalised(ours):
        return "normalised"
    theirs = _error_class(recorded)
    return "same_error" if theirs is not None and theirs == _error_class(ours) else "different"


def normalised(text: str) -> str:
    """What of an observation does not depend on the machine."""
    if "Traceback (most recent call last)" in text or "Cell In[" in text or _ERROR_LINE.search(text):
        lines = _ERROR_LINE.findall(text) or [line for line in text.splitlines() if line.strip()]
        text = f"{text.split(_DASHES)[0].strip()} | {lines[-1]}"
    text = re.sub(r"0x[0-9a-f]{6,}", "ADDRESS", text)
    text = re.sub(r"File .*?[:,]", "FILE", text)
    text = re.sub(r"(In|Out)\[\d+\]", r"\1[]", text)
    return " ".join(text.split())


def _error_class(text: str) -> str | None:
    found = _ERROR_LINE.findall(text)
    return found[-1].split(":")[0] if found else None
