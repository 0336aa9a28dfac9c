"""Tables 4, 5, 6, 7 and 9 of the Lemur paper from counted MINT episodes, each cell beside the printed number.

Averages are micro averages: successes over episodes. Table 6 is reasoning and code without ALFWorld (452 episodes).
Knows no ledger beyond the function that counts its episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lemur_ray.agents.trajectory import Episode, Outcome, Step
from lemur_ray.report.paper import COLUMNS, TABLE_4_MICRO, TABLE_6, TABLE_9

REASONING = ("gsm8k", "math", "theoremqa", "hotpotqa", "mmlu")
CODE = ("humaneval", "mbpp")
DECISION = ("alfworld",)
GROUPS: Mapping[str, tuple[str, ...]] = {
    "reasoning": REASONING,
    "code": CODE,
    "micro": REASONING + CODE,
    "all": REASONING + CODE + DECISION,
}
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Count:
    """``hits`` of ``n`` episodes."""

    hits: int
    n: int

    @property
    def percent(self) -> float | None:
        """Two decimals, as the paper prints; None of no episodes."""
        return round(100 * self.hits / self.n, 2) if self.n else None

    def __add__(self, other: Count) -> Count:
        return Count(self.hits + other.hits, self.n + other.n)


@dataclass(frozen=True)
class SubsetCounts:
    """One subset of one run. ``with_traceback`` and ``with_invalid`` count failed episodes (Table 9)."""

    solved: Count
    with_traceback: Count
    with_invalid: Count


Run = Mapping[str, SubsetCounts]
"""Subset -> its counts, of one model in one setting."""


@dataclass(frozen=True)
class Cell:
    """One cell: ours beside the printed value, which is None where the paper has none."""

    table: str
    column: str
    ours: Count
    printed: float | None
    note: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether ours is the printed number, to the two decimals that are printed; None without a printed one."""
        if self.printed is None or self.ours.percent is None:
            return None
        return abs(self.ours.percent - self.printed) < 0.0051


def count_episodes(episodes: Iterable[Episode]) -> SubsetCounts:
    """Counts of our own episodes of one subset; those without a score are left out."""
    scored = [e for e in episodes if e.outcome.scored]
    return _counts([(e.outcome is Outcome.SOLVED, saw_traceback(e), had_invalid_action(e)) for e in scored])


def saw_traceback(episode: Episode) -> bool:
    """Whether the model was shown a Python traceback."""
    return any(_TRACEBACK in step.observation for step in _seen(episode))


def had_invalid_action(episode: Episode) -> bool:
    """Whether any reply was not understood."""
    return any(step.action is None for step in episode.trajectory.steps)


def _seen(episode: Episode) -> Sequence[Step]:
    """Turns whose observation the model was shown: not the last one's, unless it was asked once more in vain."""
    steps = episode.trajectory.steps
    return steps if episode.outcome is Outcome.CONTEXT_OVERFLOW else steps[:-1]


def _counts(episodes: list[tuple[bool, bool, bool]]) -> SubsetCounts:
    n = len(episodes)
    return SubsetCounts(
        solved=Count(sum(solved for solved, _, _ in episodes), n),
        with_traceback=Count(sum(traceback and not solved for solved, traceback, _ in episodes), n),
        with_invalid=Count(sum(invalid and not solved for solved, _, invalid in episodes), n),
    )


def group(run: Run, name: str) -> Count:
    """Successes over a group of subsets (see GROUPS). Raises KeyError where the run lacks one of them."""
    missing = [subset for subset in GROUPS[name] if subset not in run]
    if missing:
        raise KeyError(f"average {name!r} needs {', '.join(missing)} as well")
    total = Count(0, 0)
    for subset in GROUPS[name]:
        total += run[subset].solved
    return total


def without_feedback(run: Run, model: str) -> list[Cell]:
    """Tables 4, 5, 7 and 9 for one model's run without feedback: the cells whose subsets the run has.

    ``model``: the name in the paper; any other name has no printed values.
    """
    cells = []
    for subset in GROUPS["all"]:
        if subset in run:
            column = COLUMNS[f"mint/{subset}"]
            cells.append(Cell(column.table, column.column, run[subset].solved, column.values.get(model)))
        if subset == REASONING[-1] and all(s in run for s in REASONING):
            cells.append(Cell("Table 4", "Micro Avg", group(run, "reasoning"), TABLE_4_MICRO.get(model)))
    if "math" in run:
        traceback, invalid = TABLE_9.get(model, (None, None))
        cells.append(Cell("Table 9", "M-MATH, failed with a traceback", run["math"].with_traceback, traceback))
        cells.append(Cell("Table 9", "M-MATH, failed with an invalid action", run["math"].with_invalid, invalid))
    return cells


def table_6(without: Run, with_feedback: Run | None, model: str) -> list[Cell]:
    """Table 6 for one model: reasoning, code and both, without and with GPT-4 feedback. ALFWorld is not in it."""
    printed = next((row for row in TABLE_6 if row.model == model), None)
    cells = []
    settings = [("without feedback", without, printed.without if printed else None)]
    if with_feedback is not None:
        settings.append(("with feedback", with_feedback, printed.with_feedback if printed else None))
    for setting, run, values in settings:
        for i, name in enumerate(("reasoning", "code", "micro")):
            note = _NOTES_6.get((model, setting, name), "")
            cells.append(Cell("Table 6", f"{name}, {setting}", group(run, name), values[i] if values else None, note))
    return cells


def feedback_gain(without: Run, with_feedback: Run) -> float:
    """Points that feedback adds to the micro average of Table 6; rounded after the subtraction, as printed."""
    before, after = group(without, "micro"), group(with_feedback, "micro")
    if not before.n or not after.n:
        raise ValueError("no episodes: a gain of nothing")
    return round(100 * (after.hits / after.n - before.hits / before.n), 2)


_NOTES_6: Mapping[tuple[str, str, str], str] = {
    ("Lemur-70B-Chat", "with feedback", "reasoning"): (
        "printed 35.76 = 113/316 stands in no public log (logged 103/316 = 32.59, with a wrong chat template in four "
        "of the five tasks)"
    ),
    ("Lemur-70B-Chat", "with feedback", "micro"): (
        "printed 38.50 = 174/452 stands in no public log (logged 164/452 = 36.28)"
    ),
    ("gpt-4", "without feedback", "micro"): (
        "printed 69.11 = 405/586 includes ALFWorld, unlike every other row; without it 292/452 = 64.60"
    ),
}
