"""Protocols of question sets that are columns of the Lemur paper's Table 3, which has no prompts.

A column's expected settings are those of the script released with the paper's models, or if there is none the
benchmark's defaults. Settings that differ from them are departures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from lemur_ray.benchmarks.protocol_options import Protocol
from lemur_ray.benchmarks.run_notes import EvaluationRun, PublishedProtocol, RunDescription

AS_RELEASED = "lemur"
"""Value of ``mode`` for the protocol of the released scripts."""
_ANYWHERE: Mapping[str, Any] = {
    "temperature": 0.0, "top_p": 1.0, "policy_api": "chat", "policy_body": "", "chat_template": "",
    "episode_tokens": 0, "episode_s": 0.0, "episode_cost": 0.0,
}  # fmt: skip
"""Expected common settings of every column. All but the temperature are stored only if they differ from these."""
_OF_NO_SCORE = {f.name for f in fields(Protocol)} | {"sandbox"}
_SHORT = 20


@dataclass(frozen=True)
class ColumnProtocol(PublishedProtocol):
    """The protocol of a column of Table 3: that of the released script, or this project's if none was released. Its
    settings also come from the defaults of the benchmark's options, and a run's departures concern its column alone."""

    column: str = ""
    """The paper's name of the column; empty if the paper has none"""
    options: type[Any] | None = None
    """Class of the benchmark's options, with the column's settings as defaults"""
    max_tokens: int = 0
    """Maximum tokens of a reply; 0: not compared"""
    way: str = ""
    """Name of an additional way to play the column (``RunDescription.way``); empty: the usual one"""
    part: str = ""
    """Name of this benchmark (a language) within a column that is a mean over several"""
    released: bool = True
    """Whether a script was released for the column; if not, this project's protocol is used, whatever the mode"""
    begun: bool = True
    """Whether the released script begins a chat model's reply (``prefill``)"""
    not_compared: tuple[str, ...] = ()
    """Names of options that are left to ``further`` and ``wording``"""

    def described(self, about: RunDescription, run: EvaluationRun) -> RunDescription:
        """The description of a run with its column and departures, without the latter if its settings are unknown.
        ``about``: the description without them."""
        about = replace(about, column=self.column, part=self.part, way=self.way)
        about = replace(about, mode="" if self.released else None)
        if not run.settings:
            return about
        mode = str(run.settings.get("mode", AS_RELEASED)) if self.released else AS_RELEASED
        named = f"{mode} protocol" if mode != AS_RELEASED else ""
        row = ["brief prompt"] if run.settings.get("prompt") == "brief" else []
        alone = [*self.wording(run), *self.apart(run, mode)]
        departures = (*filter(None, [named]), *row, *alone)
        return replace(about, departures=departures, alone=tuple(alone), mode=named if self.released else None)

    def apart(self, run: EvaluationRun, mode: str) -> Sequence[str]:
        """Differences of a run's settings from the column's, as texts; maybe none. ``mode``: the run's protocol."""
        settings = run.settings
        own = {name: value for name, value in _defaults(self.options).items() if name not in self.not_compared}
        expected = {**_ANYWHERE, **own}
        expected |= {"max_tokens": self.max_tokens} if self.max_tokens else {}
        if mode == AS_RELEASED:
            expected |= {name: value for name, value in self.settings.items() if name != "mode"}
        if not settings.get("temperature"):
            del expected["top_p"]  # greedy replies do not depend on it
        kept = {name: settings.get(name, _ANYWHERE.get(name, value)) for name, value in expected.items()}
        of_files = {f.name for f in fields(self.options or Protocol) if f.metadata.get("digest")}
        words = [_departure(name, kept[name], value, name in of_files) for name, value in expected.items()]
        unbegun = settings.get("form", "base") == "chat" and not settings.get("prefill")
        if self.released and self.begun and mode == AS_RELEASED and unbegun:
            words.append("replies not begun")
        return [*filter(None, words), *self.further(run)]


def _defaults(options: type[Any] | None) -> dict[str, Any]:
    own = fields(options) if options is not None else ()
    return {f.name: f.default for f in own if f.name not in _OF_NO_SCORE and not f.metadata.get("location")}


def _departure(name: str, value: Any, expected: Any, of_file: bool) -> str:
    """The departure of one setting, in words; empty if it has the expected value. ``of_file``: hide its value."""
    if value == expected:
        return ""
    words = name.replace("_", " ")
    if isinstance(expected, bool):
        return words if value else f"no {words}"
    if isinstance(value, float):
        return f"{words} {value:g}"
    if not value and not isinstance(value, int):
        return f"no {words}"
    shown = not of_file and len(str(value)) < _SHORT and "/" not in str(value)
    return f"{words} {value}" if shown else f"another {words}"
