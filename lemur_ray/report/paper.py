"""Published numbers of the Lemur paper (ICLR 2024, arXiv 2310.06830), Tables 3 to 7, 9 and 10, Figures 3 to 5.

All values are percentages as printed, and stand in ``paper.toml``. ``NOTES`` says where a printed number is known to
differ from its public log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lemur_ray.host.json_files import toml_beside

_PAPER = toml_beside(__file__)
MODELS: tuple[str, ...] = _PAPER["models"]


@dataclass(frozen=True)
class Published:
    """One column of a table of the paper. ``n``: number of tasks; ``values``: published score in % by model;
    ``setting``: how it was measured."""

    table: str
    column: str
    n: int
    values: Mapping[str, float]
    setting: str
    note: str = ""
    mean_of: str = ""
    """Name of the categories that the column is an unweighted mean of. Empty: the share of all tasks."""
    beside: str = ""
    """Name of the categories whose mean is printed below the share of all tasks."""


@dataclass(frozen=True)
class Feedback:
    """A row of Table 6: success in % without and with GPT-4 feedback, on reasoning, code, and both."""

    model: str
    without: tuple[float, float, float]
    with_feedback: tuple[float, float, float] | None = None
    gain: float | None = None


def _row(values: Sequence[float]) -> dict[str, float]:
    """Values of the first models."""
    return dict(zip(MODELS, values, strict=False))


COLUMNS: Mapping[str, Published] = {
    one["column"]: Published(**{**one, "values": _row(one["values"])}) for one in _PAPER["columns"]
}
TABLE_6: tuple[Feedback, ...] = tuple(Feedback(**row) for row in _PAPER["table_6"])
TABLE_3_AVERAGE: Mapping[str, float] = _row(_PAPER["table_3_average"])
"""As printed. The mean of Lemur's eight numbers is 56.24."""
TABLE_4_MICRO: Mapping[str, float] = _row(_PAPER["table_4_micro"])
"""Micro average of the five columns of Table 4 (n = 316)."""
TABLE_9: Mapping[str, tuple[float, float]] = _PAPER["table_9"]
"""M-MATH without feedback: % of all 100 episodes that failed after a traceback; and that had an invalid action."""
TABLE_10: Mapping[str, tuple[int, int, int, int]] = _PAPER["table_10"]
"""InterCode-SQL with the schema shown: solved of 248 easy, 446 medium, 174 hard and 166 extra hard questions."""
FIGURE_4: Mapping[str, Mapping[str, tuple[float, float]]] = _PAPER["figure_4"]
"""By column: % of 812 tasks solved with symbolic actions, and with Python calls (14, 33, 43 and 17, 38, 46 of them)."""
FIGURE_4_VARIANTS = ("symbolic actions", "Python calls")
FIGURE_5_GPT_4: Mapping[str, tuple[int, int]] = _PAPER["figure_5_gpt_4"]
"""InterCode-CTF, gpt-4: (solved, tasks) by category, 37 of 100 in all; counted in its log of 93 of the tasks."""
SQL_BY_TURN: Mapping[str, tuple[float, ...]] = _PAPER["sql_by_turn"]
"""InterCode-SQL: % of 1034 solved within 1 to 10 turns."""
NOTES: tuple[str, ...] = _PAPER["notes"]
