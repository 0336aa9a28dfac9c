"""Safe calls of a benchmark's optional functions, so that their errors never end a run or a page.

An error is printed once to stderr and takes the place of the result."""

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
"""Key of the error text in the notes of a run"""
Result = TypeVar("Result")


def call_about(name: str, benchmark: Benchmark[Any], run: EvaluationRun) -> RunDescription:
    """The benchmark's description of a run; after an error the default one, with the error among its ``limits``."""

    def look() -> RunDescription:
        result = benchmark.details.about(run)
        if not isinstance(result, RunDescription):
            raise TypeError(f"{type(result).__name__}, expected RunDescription")
        protocol = benchmark.details.protocol
        return protocol.described(result, run) if protocol else result

    result, why = _tried(f"{name}: what it says of its runs cannot be had", look)
    return result or replace(default_description(run), limits=(why,))


def call_notes(benchmark: Benchmark[Any], episodes: Sequence[Episode]) -> dict[str, Any]:
    """The benchmark's further results as JSON values; after an error only its text, under ``NOTES_FAILED``."""

    def look() -> dict[str, Any]:
        result = dict(benchmark.details.notes(episodes))
        json.dumps(result, allow_nan=False)
        return result

    result, why = _tried("notes of the benchmark cannot be made", look)
    return {NOTES_FAILED: why} if result is None else result


def call_views(name: str, benchmark: Benchmark[Any], episode: Episode) -> Sequence[View]:
    """Screenshots and texts that the benchmark ``name`` stored in an episode; none after an error (printed)."""

    def look() -> list[View]:
        result = list(benchmark.details.views(episode))
        if wrong := [one for one in result if not isinstance(one, View)]:
            raise TypeError(f"{type(wrong[0]).__name__}, expected View")
        return result

    result, _ = _tried(f"{name}: what was seen in an episode cannot be had", look)
    return result or ()


def _tried(what: str, look: Callable[[], Result]) -> tuple[Result | None, str]:
    """(result of ``look``, ""), or after an error, which is printed, (None, its text). ``what``: start of that text."""
    try:
        return look(), ""
    except (Exception, SystemExit) as error:  # an installed package may raise anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{what}: {type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
        _say(why)
        return None, why


@cache
def _say(why: str) -> None:
    print(why, file=sys.stderr, flush=True)
