"""Metadata of installed benchmarks that is stored with a run, because its records outlive the package.

Built-in benchmarks need none: they are called again for every page."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.discovery import is_ours
from lemur_ray.benchmarks.plugin_calls import call_about
from lemur_ray.benchmarks.run_notes import EvaluationRun, RecordedName, RunDescription

PluginMetadata = dict[str, dict[str, dict[str, Any]]]
"""By benchmark name in the tasks, then by policy: value of --benchmark, version, licences, description of the run"""


def plugin_metadata(name: str, benchmark: Benchmark[Any], stated: str, run: EvaluationRun) -> PluginMetadata:
    """Metadata of the benchmark ``name`` to store with a run, as JSON values: {``stated``: {the run's policy:
    {benchmark, version, licences, about}}}; {} for a built-in benchmark. ``stated``: benchmark name in the tasks.
    about: the benchmark's description of ``run``, without its protocol if that is no JSON."""
    if is_ours(name):
        return {}
    about = asdict(call_about(name, benchmark, run))
    try:
        json.dumps(about, allow_nan=False)
    except (TypeError, ValueError):  # the package's protocol may hold values that JSON has not
        about["protocol"] = {}
    licences = sorted({source.licence for source in benchmark.sources})
    return {
        stated: {run.policy: {"benchmark": name, "version": benchmark.version, "licences": licences, "about": about}}
    }


def stored_benchmark_name(kept: Any, stated: str, policy: str) -> str:
    """The value of --benchmark with which ``policy`` was played, from a run's stored metadata ``kept``; empty if it has
    none. ``stated``: benchmark name in the tasks."""
    try:
        return str(kept[stated][policy]["benchmark"])
    except (KeyError, TypeError):
        return ""


def stored_description(kept: Any, stated: str, policy: str) -> RunDescription | None:
    """The description of the run of ``policy`` in a run's stored metadata ``kept``; None if it has none, or it cannot
    be read. ``stated``: benchmark name in the tasks."""
    try:
        about = kept[stated][policy]["about"]
        values = {f.name: _value(about[f.name], f.default) for f in fields(RunDescription) if f.name in about}
        values["words"] = {name: (text, off) for name, (text, off) in dict(values.get("words", {})).items()}
        if values.get("recorded") is not None:
            values["recorded"] = RecordedName(**values["recorded"])
        return RunDescription(**values)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _value(kept: Any, default: Any) -> Any:
    if isinstance(default, tuple):
        return tuple(map(str, kept))
    if isinstance(default, str | bool) and type(kept) is not type(default):
        raise TypeError(f"{kept!r}, expected a {type(default).__name__}")
    return dict(kept) if isinstance(kept, Mapping) else kept
