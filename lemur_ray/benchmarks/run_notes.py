"""What a page says of a run beside its numbers: decided by the benchmark, drawn by the report.

Everything follows from settings, the policy's name and the ids of tasks; nothing from what a model or an environment
wrote. Knows no benchmark and draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lemur_ray.host.renamed_names import renamed_names

Settings = Mapping[str, Any]
UNKNOWN = "settings not recorded"


@dataclass(frozen=True)
class RecordedName:
    """What the name of a replay says of the recorded run.

    ``model`` as the paper names it where it does. ``teacher``: whose feedback it was given, or empty. ``turns``: at
    most so many, 0 where the name says none. ``whole``: the policy without the part of the data set.
    """

    model: str
    teacher: str = ""
    turns: int = 0
    whole: str = ""

    @property
    def shown(self) -> str:
        """How the run is called where its settings do not stand beside it."""
        parts = [f"{self.model}, recorded"]
        if self.teacher:
            parts.append(f"with feedback of {self.teacher}")
        if self.turns:
            parts.append(f"{self.turns} turn{'s' * (self.turns > 1)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class EvaluationRun:
    """What is known of a run. ``settings``: empty where they were not kept. ``tasks``: ids of what was played."""

    policy: str
    settings: Settings = field(default_factory=dict)
    tasks: Sequence[str] = ()


@dataclass(frozen=True)
class RunDescription:
    """``protocol``: settings by which runs are told apart, and ``words`` for them."""

    limits: tuple[str, ...] = ()
    """What the numbers do not show."""
    beside: tuple[str, ...] = ()
    """Those of them that stand at the numbers, too."""
    column: str = ""
    """The paper's column that has the same tasks; empty where there is none."""
    part: str = ""
    """Of a column that is a mean over several benchmarks (languages): which of them this is."""
    way: str = ""
    """In which further way the column was played: it stands in the column's cell, below, and in no mean of columns."""
    variant: str = ""
    """Which of several ways in which the paper has the column, and compares them; empty where it has one."""
    other_protocol: str = ""
    """How the column was played where it was played in another way."""
    departures: tuple[str, ...] = ()
    """Where the settings depart from the column's protocol. A teacher's feedback is no departure."""
    here: tuple[str, ...] = ()
    """Those of them that are of the machine and the data it was played with."""
    alone: tuple[str, ...] = ()
    """Those of them that are of this column alone: they stand below the name of its row, and make none of their own."""
    mode: str | None = ""
    """The one of them that names a whole protocol. None: of this column there is one protocol only, so that it stands
    in the rows of any."""
    protocol: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Of a setting: what is said of a value ({value}), and what is said where it is off or was not kept."""
    teacher: str = ""
    """Who gave feedback, in words."""
    grader: str = ""
    """Which of several verdicts ended the episodes."""
    comparable: bool = True
    """Whether that grader's verdicts can stand beside published ones."""
    engine: str = ""
    """On what queries ran."""
    recorded: RecordedName | None = None
    """Of a replay."""

    @property
    def known(self) -> bool:
        """Whether the settings were kept."""
        return UNKNOWN not in self.departures


def default_description(run: EvaluationRun) -> RunDescription:
    """Of a benchmark that says nothing of itself."""
    return RunDescription(departures=() if run.settings else (UNKNOWN,), protocol=protocol_settings(run))


def protocol_settings(run: EvaluationRun) -> dict[str, Any]:
    """The settings that make a protocol, where a benchmark adds nothing to them: a recording is who plays."""
    return {name: value for name, value in run.settings.items() if name not in ("recording", "replay")}


def common_departures(settings: Settings) -> list[str]:
    """Departures of any benchmark: a shorter prompt, drawn replies."""
    found = ["brief prompt"] if settings.get("prompt") == "brief" else []
    return [*found, f"temperature {settings['temperature']:g}"] if settings.get("temperature") else found


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, About="RunDescription", Run="EvaluationRun", plain="default_description", shared="protocol_settings",
        asked_otherwise="common_departures",
    )  # fmt: skip
