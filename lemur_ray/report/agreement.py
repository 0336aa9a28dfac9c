"""Agreement of a replay with its recording. Knows no environment and no reward rule.

| number | meaning |
|---|---|
| agreement | share of episodes that are solved in both or in neither |
| shares of counts | declared by the benchmark, for example turns in both with the same reward |
| reworded | tasks whose question differs from the recorded one: both texts, cut |
| observations | exact, equal after normalising, same class of error, different, where a benchmark compares them |

An episode without a score counts as a disagreement on success and is listed by name; its turns are not compared."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lemur_ray.agents.recording import Recording, RecordingFormat, reworded_tasks
from lemur_ray.agents.replay_comparison import LIKENESS, Comparison
from lemur_ray.agents.trajectory import Episode, Outcome, Task

SHOWN_CHARS = 300
"""Maximum characters of a reworded task in the result."""


@dataclass
class Agreement:
    """Sums over a replay. ``episodes``: those with a score; of these, ``solved`` are solved here, ``recorded_solved``
    in the recording, and ``same_success`` in both or neither. ``differing``: tasks solved in only one of the two;
    ``missing``: tasks without a score. ``counts``, ``cells``, ``answers`` and ``different_cells`` (task first) are
    comparisons of the benchmark (``agents/replay_comparison.py``)."""

    comparison: Comparison
    episodes: int = 0
    same_success: int = 0
    recorded_solved: int = 0
    solved: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    cells: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    different_cells: list[tuple[str, int, str, str]] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def cell_agreement(self) -> float | None:
        """Share of cells whose observation is equal when normalised, or an error of one class; None without any."""
        total = sum(self.cells[kind] for kind in LIKENESS)
        return _share(total - self.cells["different"], total)

    def to_json(self) -> dict[str, Any]:
        """The sums as JSON values, for the last line that a replay prints."""
        counts = self.counts
        result: dict[str, Any] = {"agreement": _share(self.same_success, self.episodes + len(self.missing))}
        for name, (part, whole) in self.comparison.shares.items():
            result[name] = _share(counts[part], counts[whole])
        own = {name: counts[name] for name in self.comparison.counts}
        both = {"recorded_solved": self.recorded_solved, "solved": self.solved}
        result["agreement_counts"] = {"episodes": self.episodes, "same_success": self.same_success, **own, **both}
        if self.comparison.has_cells:
            answers = {f"answer_{kind}": n for kind, n in self.answers.items()}
            result |= {"observation_agreement": self.cell_agreement, "observation_counts": {**self.cells, **answers}}
        return {**result, "differing": list(self.differing), "agreement_missing": list(self.missing)}


def compare_recording(
    recording: str, recordings: RecordingFormat | None, episodes: Iterable[Episode], tasks: Iterable[Task] = ()
) -> dict[str, Any]:
    """Agreement of replayed episodes with the file ``recording`` as JSON values; empty if no file was replayed.
    ``recordings``: how the benchmark's recordings are read. ``tasks``: tasks of the replay; ``reworded`` in the result
    lists those whose question differs from the recorded one. Raises KeyError for an episode that is not recorded."""
    if not recording or recordings is None:
        return {}
    recorded = recordings.read(Path(recording))
    result = measure_agreement(episodes, recorded, recordings.comparison).to_json()
    if recordings.question is not None and (changed := reworded_tasks(tasks, recorded, recordings.question)):
        result["reworded"] = [_cut(asdict(one)) for one in changed]
    return result


def _cut(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..." for name, text in texts.items()}


def measure_agreement(episodes: Iterable[Episode], recording: Recording[Any], comparison: Comparison) -> Agreement:
    """Compare the scored episodes of a replay with their recording by ``comparison``; episodes without a score are only
    listed. Raises KeyError for an episode that the recording lacks."""
    total = Agreement(comparison)
    for episode in episodes:
        if not episode.outcome.scored:
            total.missing.append(episode.key.task)
            continue
        recorded = recording.of(str(episode.key))
        solved = episode.outcome is Outcome.SOLVED
        total.episodes += 1
        total.solved += solved
        total.recorded_solved += recorded.solved
        total.same_success += solved == recorded.solved
        if solved != recorded.solved:
            total.differing.append(episode.key.task)
        compared = comparison.of(episode, recorded)
        total.counts.update(compared.counts)
        total.cells.update(compared.cells)
        total.answers.update(compared.answers)
        total.different_cells += [(episode.key.task, *cell) for cell in compared.different_cells]
    return total


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
