"""Run notes of stored runs: from their benchmark, or as stored when they were played. Draws nothing.

A run without either gets empty notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks import discovery
from lemur_ray.benchmarks.plugin_metadata import stored_description
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription
from lemur_ray.rollout.evaluation_folder import DEPARTURES, PLUGIN_METADATA


@dataclass(frozen=True)
class RunMetadata:
    """Settings by recipe hash, as in ``evaluations.json``."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def about(self, episodes: Sequence[Episode]) -> RunDescription:
        """Notes on the run of these episodes, with departures of the session that played them."""
        key = episodes[0].key
        tasks = sorted({episode.key.task for episode in episodes})
        settings = dict(self.settings.get(key.recipe, {}))
        here = settings.pop(DEPARTURES, ())
        stored = stored_description(settings.pop(PLUGIN_METADATA, None), key.benchmark, key.policy)
        notes = stored or discovery.describe_run(key.benchmark, EvaluationRun(key.policy, settings, tasks))
        if not here:
            return notes
        return replace(notes, departures=(*notes.departures, *here), here=tuple(here), alone=(*notes.alone, *here))
