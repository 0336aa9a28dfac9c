"""Descriptions of runs for report pages: each benchmark describes its runs, the report renders the description.

They depend on settings, the policy's name and task ids only, never on text of a model or an environment. A *departure*
is a difference between a run's settings and the protocol of the paper's column that the run belongs to."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lemur_ray.host.renamed_names import renamed_names

Settings = Mapping[str, Any]
UNKNOWN = "settings not recorded"
"""The departure of a run whose ``RunDescription.known`` is False."""
_NOT_STORED = {"temperature": 0.0, "top_p": 1.0}
"""Values of settings that are stored only if they differ."""


@dataclass(frozen=True)
class RecordedName:
    """Facts about a recorded run, read from the policy name of its replay. ``model``: by the paper's name if it has
    one. ``teacher``: source of feedback, or empty. ``turns``: maximum per episode; 0: unknown. ``whole``: the policy's
    name without the part of the data set that this recording covers."""

    model: str
    teacher: str = ""
    turns: int = 0
    whole: str = ""

    @property
    def shown(self) -> str:
        """Display name of the recorded run: model, teacher and number of turns."""
        parts = [f"{self.model}, recorded"]
        if self.teacher:
            parts.append(f"with feedback of {self.teacher}")
        if self.turns:
            parts.append(f"{self.turns} turn{'s' * (self.turns > 1)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class EvaluationRun:
    """A policy's run of a benchmark. ``policy``: its name in episode keys; ``settings``: stored flags, empty if
    unknown; ``tasks``: ids of the tasks played."""

    policy: str
    settings: Settings = field(default_factory=dict)
    tasks: Sequence[str] = ()


@dataclass(frozen=True)
class RunDescription:
    """Description of a run for report pages: warnings, and how it was played compared with the paper's table, with
    ``column``, the column that it belongs to. ``protocol``: settings that distinguish runs; ``words``: their texts."""

    limits: tuple[str, ...] = ()
    """Warnings: what limits the validity of the run's numbers, one sentence each"""
    beside: tuple[str, ...] = ()
    """Those of ``limits`` that pages repeat beside the numbers"""
    column: str = ""
    """Column of the paper's table that has the same tasks; empty: none"""
    part: str = ""
    """Name of this benchmark (a language) within a column that is a mean over several"""
    way: str = ""
    """Name of an additional way to play the column: its number is in the same cell, below, and in no mean of columns"""
    variant: str = ""
    """Name of the variant, if the paper compares several for the column"""
    other_protocol: str = ""
    """Protocol of the paper's column, if the run has another, which makes their numbers incomparable"""
    departures: tuple[str, ...] = ()
    """Departures from the column's protocol, in words. A teacher's feedback does not count as one"""
    here: tuple[str, ...] = ()
    """Those of ``departures`` that come from the machine and its data"""
    alone: tuple[str, ...] = ()
    """Those of ``departures`` that concern this column alone: noted below the row's name, without a separate row"""
    mode: str | None = ""
    """The departure that is another protocol as a whole; empty: the default protocol. None: the column has only one"""
    protocol: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Name of a setting -> its text ({value} is replaced), and the text if the setting is off or was not stored"""
    teacher: str = ""
    """Source of the feedback that the policy got, in words; empty: none"""
    grader: str = ""
    """Name of the grader whose verdict ended the episodes, if the benchmark has several"""
    known: bool = True
    """Whether the run's settings were stored and its departures are therefore known"""
    comparable: bool = True
    """Whether verdicts of ``grader`` are comparable with published ones"""
    engine: str = ""
    """Name of the SQL engine that ran the queries"""
    recorded: RecordedName | None = None
    """The recorded run, if this run is a replay"""


@dataclass(frozen=True)
class PublishedProtocol:
    """How the published numbers of a benchmark were made, in words, and the settings that play it so here. A run
    departs from it in every setting that differs."""

    prompt: str
    shots: str
    metric: str
    decoding: str = "greedy"
    judge: str = "none"
    estimator: str = "one reply to each task"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Options and common flags with their values by the protocol, which ``--protocol published`` sets"""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Name of a setting -> text of its departure, with {value}; other settings are named with their value"""
    own_words: str = ""
    """Texts that are in this project's words, because the published ones are in no file that is fetched: always a
    departure, except of recorded runs, which had the published texts, and of runs with the ``text_option``"""
    text_option: str = ""
    """Option that brings texts of the user's in the place of ``own_words``: a text, or a file known by its digest"""
    text_digest: str = ""
    """The first 16 hex digits of the SHA-256 of the published text or file, by which it is recognised"""
    given_words: str = ""
    """The departure of a run whose ``text_option`` brings another text; empty: another, and the option's name"""
    further: Callable[[EvaluationRun], Sequence[str]] = lambda run: ()
    """Departures that are no difference of one setting, in words"""

    def described(self, about: RunDescription, run: EvaluationRun) -> RunDescription:
        """The description of a run with its departures from this protocol, if the run's settings are known. ``about``:
        the description without them."""
        if not run.settings:
            return about
        own = [] if about.recorded else self.wording(run)
        departures = (*about.departures, *own, *self.departures(run))
        return replace(about, departures=departures, alone=(*about.alone, *own))

    def wording(self, run: EvaluationRun) -> list[str]:
        """The departure of a run whose texts (prompts) are not the published ones, in words; [] if they are."""
        given = str(run.settings.get(self.text_option) or "") if self.text_option else ""
        if not given:
            return [self.own_words] if self.own_words else []
        is_published = self.text_digest in (given, hashlib.sha256(given.encode()).hexdigest()[:16])
        return [] if is_published else [self.given_words or f"another {self.text_option.replace('_', ' ')}"]

    def departures(self, run: EvaluationRun) -> list[str]:
        """The other departures of a run, in words; empty if there are none. A setting that was not stored has the
        protocol's value, except sampling parameters, whose default is greedy."""
        stored = {**self.settings, **_NOT_STORED, **run.settings}
        changed = [
            self.texts.get(name, f"{name.replace('_', ' ')} {{value}}").format(value=stored[name])
            for name, value in self.settings.items()
            if stored[name] != value
        ]
        rest = {name: value for name, value in run.settings.items() if name not in self.settings}
        return [*changed, *common_departures(rest), *self.further(run)]

    def lines(self) -> list[str]:
        """One line for each part of the protocol, and one for what is in this project's words."""
        parts = ("prompt", "shots", "decoding", "judge", "metric", "estimator")
        lines = [f"{part}: {getattr(self, part)}" for part in parts]
        return [*lines, f"different here: {self.own_words}"] if self.own_words else lines


def default_description(run: EvaluationRun) -> RunDescription:
    """Description of a run whose benchmark declares none (``BenchmarkDetails.about``)."""
    known = bool(run.settings)
    return RunDescription(departures=() if known else (UNKNOWN,), known=known, protocol=protocol_settings(run))


def protocol_settings(run: EvaluationRun) -> dict[str, Any]:
    """A run's settings except ``recording`` and ``replay``, which belong to the policy."""
    return {name: value for name, value in run.settings.items() if name not in ("recording", "replay")}


def common_departures(settings: Settings) -> list[str]:
    """Departures that any benchmark can have, in words: brief prompt, temperature above 0."""
    words = ["brief prompt"] if settings.get("prompt") == "brief" else []
    return [*words, f"temperature {settings['temperature']:g}"] if settings.get("temperature") else words


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, About="RunDescription", Run="EvaluationRun", plain="default_description", shared="protocol_settings",
        asked_otherwise="common_departures",
    )  # fmt: skip
