"""What a benchmark of somebody else said of a run, kept with it: its records outlive the package.

Ours are asked anew whenever a page is made. Knows no page and no ledger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.discovery import is_ours
from lemur_ray.benchmarks.plugin_calls import call_about
from lemur_ray.benchmarks.run_notes import EvaluationRun, RecordedName, RunDescription

PluginMetadata = dict[str, dict[str, dict[str, Any]]]
"""What tasks say that they are of -> policy -> by which name it was played, version, licences, ``About``."""


def plugin_metadata(name: str, benchmark: Benchmark[Any], said: str, run: EvaluationRun) -> PluginMetadata:
    """As JSON values; empty for one of ours. ``said``: of what its tasks say that they are."""
    if is_ours(name):
        return {}
    about = asdict(call_about(name, benchmark, run))
    try:
        json.dumps(about, allow_nan=False)
    except (TypeError, ValueError):  # protocol is anything that the package likes
        about["protocol"] = {}
    licences = sorted({source.licence for source in benchmark.sources})
    return {said: {run.policy: {"benchmark": name, "version": benchmark.version, "licences": licences, "about": about}}}


def stored_benchmark_name(kept: Any, said: str, policy: str) -> str:
    """By which name a run of somebody else's benchmark was played; empty where that was not kept."""
    try:
        return str(kept[said][policy]["benchmark"])
    except (KeyError, TypeError):
        return ""


def stored_description(kept: Any, said: str, policy: str) -> RunDescription | None:
    """Inverse of ``told``; None where nothing was kept, or what is no ``About``."""
    try:
        found = kept[said][policy]["about"]
        values = {f.name: _value(found[f.name], f.default) for f in fields(RunDescription) if f.name in found}
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
