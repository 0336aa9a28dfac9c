"""Finds, beneath a data folder, recorded runs that paper authors published and that a benchmark can replay."""

from collections.abc import Iterator
from pathlib import Path

from lemur_ray.agents.replay_goals import Goal, PublishedRuns, RecordedRun, StrictReplays
from lemur_ray.benchmarks.discovery import offers


def publications() -> list[PublishedRuns]:
    """The readers of published runs (``PublishedRuns``) of all benchmarks that can be played, without duplicates."""
    playable = [one.benchmark for one in offers() if one.benchmark is not None and not one.why]
    every = [runs for benchmark in playable if (runs := benchmark.details.published_runs) is not None]
    return list({id(runs): runs for runs in every}.values())


def goals() -> tuple[Goal, ...]:
    """The agreement with the recordings that replays of all published runs must reach."""
    return tuple(goal for runs in publications() for goal in runs.goals)


def recorded_runs(data: Path, *, strict: StrictReplays = "lemur") -> Iterator[RecordedRun]:
    """Recorded runs in the files below the folder ``data`` that some benchmark can replay, in order of path; possibly
    none. ``strict``: models whose recorded code is executed again. Raises FileNotFoundError without the folder."""
    if not data.is_dir():
        raise FileNotFoundError(f"{data}: no folder; give the one that holds the recorded runs (--data, LEMUR_DATA)")
    known = publications()
    for file in sorted(path for path in data.rglob("*.json*") if path.is_file()):
        name = file.relative_to(data).as_posix().split(".json")[0]
        for runs in known:
            yield from runs.of_file(file, name, strict)
