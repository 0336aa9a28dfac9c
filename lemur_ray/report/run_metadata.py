"""What benchmarks say of stored runs, or said when they were played. Draws nothing.

Where neither is known little is said: the runs are shown all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.discovery import describe_run
from lemur_ray.benchmarks.plugin_metadata import stored_description
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription
from lemur_ray.rollout.evaluation_folder import DEPARTURES, PLUGIN_METADATA


@dataclass(frozen=True)
class RunMetadata:
    """Settings by recipe hash, as ``evaluations.json`` has them."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, episodes: Sequence[Episode]) -> RunDescription:
        """Of the episodes of one run."""
        key = episodes[0].key
        tasks = sorted({episode.key.task for episode in episodes})
        settings = dict(self.settings.get(key.recipe, {}))
        here = settings.pop(DEPARTURES, ())
        kept = stored_description(settings.pop(PLUGIN_METADATA, None), key.benchmark, key.policy)
        said = kept or describe_run(key.benchmark, EvaluationRun(key.policy, settings, tasks))
        if not here:
            return said
        return replace(said, departures=(*said.departures, *here), here=tuple(here), alone=(*said.alone, *here))
