"""Descriptions of stored runs: from their benchmark, or as stored when they were played, else empty. Draws nothing.

Also joins recorded runs that are stored in several files, one for each part of a data set."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks import discovery
from lemur_ray.benchmarks.plugin_metadata import stored_description
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription
from lemur_ray.rollout.evaluation_folder import DEPARTURES, PLUGIN_METADATA


@dataclass(frozen=True)
class RunMetadata:
    """Describes stored runs. ``settings``: of their evaluations by recipe hash, as in ``evaluations.json``."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def about(self, episodes: Sequence[Episode]) -> RunDescription:
        """Description of the run of these episodes (at least one), with the departures recorded when they were played:
        as stored, else from the benchmark."""
        key = episodes[0].key
        tasks = sorted({episode.key.task for episode in episodes})
        settings = dict(self.settings.get(key.recipe, {}))
        here = settings.pop(DEPARTURES, ())
        stored = stored_description(settings.pop(PLUGIN_METADATA, None), key.benchmark, key.policy)
        notes = stored or discovery.describe_run(key.benchmark, EvaluationRun(key.policy, settings, tasks))
        if not here:
            return notes
        return replace(notes, departures=(*notes.departures, *here), here=tuple(here), alone=(*notes.alone, *here))


_OF_A_PART = ("data", "recording")


def join_parts(
    runs: Sequence[list[Episode]],
    settings: Mapping[str, Mapping[str, Any]],
    about: Callable[[Sequence[Episode]], RunDescription],
) -> tuple[list[list[Episode]], dict[str, Mapping[str, Any]]]:
    """Join the parts of each recorded run. Returns the runs and the settings by recipe. Parts belong to one run if only
    data and recording differ. The joined run takes the position and recipe of its first part, and the name without the
    part. Runs that share a task are not joined. about: describes the run of given episodes."""
    places: dict[tuple[str, str, str], int] = {}
    out: list[list[Episode]] = []
    known = dict(settings)
    for run in runs:
        key, named = run[0].key, about(run).recorded
        same = {name: value for name, value in settings.get(key.recipe, {}).items() if name not in _OF_A_PART}
        identity = (key.benchmark, named.whole if named else key.policy, repr(sorted(same.items())))
        if named is None or named.whole == key.policy or not same:
            out.append(run)
            continue
        place = places.get(identity)
        taken = {(e.key.task, e.key.epoch) for e in out[place]} if place is not None else set()
        if place is None or taken & {(e.key.task, e.key.epoch) for e in run}:
            places.setdefault(identity, len(out))
            recipe, before = key.recipe, []
        else:
            recipe, before = out[place][0].key.recipe, out[place]
        renamed = [replace(e, key=replace(e.key, policy=named.whole, recipe=recipe)) for e in run]
        if before:
            assert place is not None
            out[place] = before + renamed
            data = [*known[recipe].get("data", []), *settings[key.recipe].get("data", [])]
            known[recipe] = {**known[recipe], "data": sorted(set(data)), "recording": "several"}
        else:
            out.append(renamed)
    return out, known
