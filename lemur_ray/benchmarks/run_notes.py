"""Descriptions of runs for report pages: chosen by the benchmark, rendered by the report.

They depend on settings, the policy's name and task ids only, never on text of a model or an environment. Knows no
benchmark and renders nothing.
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
    """A recorded run, as the name of its replay describes it.

    ``model``: with the paper's name if it has one. ``teacher``: source of the feedback, or empty. ``turns``: maximum
    number, 0: unknown. ``whole``: the policy without the part of the data set.
    """

    model: str
    teacher: str = ""
    turns: int = 0
    whole: str = ""

    @property
    def shown(self) -> str:
        """Display name of the run where its settings are not shown."""
        parts = [f"{self.model}, recorded"]
        if self.teacher:
            parts.append(f"with feedback of {self.teacher}")
        if self.turns:
            parts.append(f"{self.turns} turn{'s' * (self.turns > 1)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class EvaluationRun:
    """A run to describe. ``settings``: empty if they were not stored. ``tasks``: ids of the played tasks."""

    policy: str
    settings: Settings = field(default_factory=dict)
    tasks: Sequence[str] = ()


@dataclass(frozen=True)
class RunDescription:
    """A benchmark's description of a run. ``protocol``: settings that distinguish runs; ``words``: texts for them."""

    limits: tuple[str, ...] = ()
    """Limits of the numbers' validity"""
    beside: tuple[str, ...] = ()
    """Those limits that pages repeat beside the numbers"""
    column: str = ""
    """The paper's column with the same tasks; empty: none"""
    part: str = ""
    """This benchmark's part of a column that is a mean over several (languages)"""
    way: str = ""
    """A further way to play the column: shown below in its cell, and in no mean of columns"""
    variant: str = ""
    """The variant, if the paper compares several for the column"""
    other_protocol: str = ""
    """The paper's protocol for the column, if it differs"""
    departures: tuple[str, ...] = ()
    """Differences of the settings to the column's protocol. A teacher's feedback is none"""
    here: tuple[str, ...] = ()
    """Those departures that come from the machine and its data"""
    alone: tuple[str, ...] = ()
    """Those departures that concern this column alone: shown below the row's name, without a row of their own"""
    mode: str | None = ""
    """The departure that names a whole protocol. None: the column has one protocol, so it belongs to every row"""
    protocol: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Setting -> its text ({value} stands for the value), and the text if it is off or was not stored"""
    teacher: str = ""
    """Source of feedback, in words"""
    grader: str = ""
    """The grader whose verdict ended the episodes, if there are several"""
    comparable: bool = True
    """Whether that grader's verdicts are comparable with published ones"""
    engine: str = ""
    """SQL engine of the queries"""
    recorded: RecordedName | None = None
    """The recorded run, for a replay"""

    @property
    def known(self) -> bool:
        """Whether the settings were stored."""
        return UNKNOWN not in self.departures


def default_description(run: EvaluationRun) -> RunDescription:
    """The description for a benchmark without ``about``."""
    return RunDescription(departures=() if run.settings else (UNKNOWN,), protocol=protocol_settings(run))


def protocol_settings(run: EvaluationRun) -> dict[str, Any]:
    """All settings except the recording, which belongs to the policy."""
    return {name: value for name, value in run.settings.items() if name not in ("recording", "replay")}


def common_departures(settings: Settings) -> list[str]:
    """Departures that any benchmark can have: brief prompt, temperature above 0."""
    words = ["brief prompt"] if settings.get("prompt") == "brief" else []
    return [*words, f"temperature {settings['temperature']:g}"] if settings.get("temperature") else words


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, About="RunDescription", Run="EvaluationRun", plain="default_description", shared="protocol_settings",
        asked_otherwise="common_departures",
    )  # fmt: skip
