"""What a benchmark says beside its scores: whatever goes wrong in saying it costs its words, never a run or a page.

What went wrong is said once on stderr and stands where the words would have stood. Knows no benchmark.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.episode_artifacts import View
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription, default_description

NOTES_FAILED = "notes_failed"
"""Among the notes of a run, where they could not be made: why."""
Found = TypeVar("Found")


def call_about(name: str, benchmark: Benchmark[Any], run: EvaluationRun) -> RunDescription:
    """What it says of a run; where it cannot, what holds for all and that it could not."""

    def look() -> RunDescription:
        found = benchmark.details.about(run)
        if not isinstance(found, RunDescription):
            raise TypeError(f"{type(found).__name__}, expected About")
        return found

    found, why = _tried(f"{name}: what it says of its runs cannot be had", look)
    return found or replace(default_description(run), limits=(why,))


def call_notes(benchmark: Benchmark[Any], episodes: Sequence[Episode]) -> dict[str, Any]:
    """Numbers beside the success rate, as JSON values; where they cannot be made, why (``NOTES_FAILED``)."""

    def look() -> dict[str, Any]:
        found = dict(benchmark.details.notes(episodes))
        json.dumps(found, allow_nan=False)
        return found

    found, why = _tried("notes of the benchmark cannot be made", look)
    return {NOTES_FAILED: why} if found is None else found


def call_views(name: str, benchmark: Benchmark[Any], episode: Episode) -> Sequence[View]:
    """What was seen in an episode; nothing where that cannot be said."""

    def look() -> list[View]:
        found = list(benchmark.details.views(episode))
        if wrong := [one for one in found if not isinstance(one, View)]:
            raise TypeError(f"{type(wrong[0]).__name__}, expected View")
        return found

    found, _ = _tried(f"{name}: what was seen in an episode cannot be had", look)
    return found or ()


def _tried(what: str, look: Callable[[], Found]) -> tuple[Found | None, str]:
    """What it finds, or None and why not."""
    try:
        return look(), ""
    except (Exception, SystemExit) as error:  # whatever the package of somebody else raises
        place = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{what}: {type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
        _say(why)
        return None, why


@cache
def _say(why: str) -> None:
    print(why, file=sys.stderr, flush=True)
