"""Benchmarks ``alfworld/text`` (generated games), ``valid_seen`` and ``valid_unseen`` (ALFWorld's own games).

All have text actions, one command a turn, and 50 turns."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from envs.alfworld.demonstrations import demonstrations
from envs.alfworld.games.catalogue import class_names
from envs.alfworld.games.game_file import digest_of_all
from envs.alfworld.package_play import package_missing
from envs.alfworld.real_games import SPLITS, find_games, game_digests
from envs.alfworld.tasks import ENV_ID, MAX_TURNS, games
from envs.outside_data import SETS
from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest, location_option
from lemur_ray.benchmarks.needs import Requirement, requirement_of
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription, default_description
from lemur_ray.storage.bundles.host_path import HostPath


@dataclass(frozen=True)
class TextOptions:
    """Command-line options of the benchmark of generated games: from which split they are drawn."""

    split: Literal["heldout", "train", "novel_object"] = "heldout"
    """Split the games are drawn from. Solved games of train may become training data (jobs/export_sft.py)."""


_LIMITS = (
    "The games are generated and smaller than ALFWorld's own (about 13 receptacles against 25, 12 objects against "
    "more than 40). These rates are not ALFWorld scores.",
    "Held out means that no (task type, object, target) triple was seen in training. Every goal object has been "
    "the goal of some training game: games with an object that was never a goal in training are not in these "
    "numbers, and nothing here shows that the model could solve one.",
    "The model imitates an expert on games of the same generator. It shows that the chain works end to end, not "
    "that a model of this size has general skill.",
)
"""Limits of success rates on generated games, printed on report pages."""


def _load(options: TextOptions, request: EvaluationRequest) -> Iterator[Task]:
    return games(options.split, prompt=request.prompt)


@dataclass(frozen=True)
class RealOptions:
    """Command-line options of the benchmarks of ALFWorld's own games: where the games are, and which engine plays
    them."""

    games: str = location_option()
    """Folder or archive of ALFWorld's games. Empty: alfworld below --data, else $ALFWORLD_DATA or ~/.cache/alfworld."""
    engine: Literal["own", "alfworld"] = "own"
    """own: this project's engine; alfworld: that package plays each game in a separate process (extra alfworld)."""


def _load_real(split: str, options: RealOptions, request: EvaluationRequest) -> list[Task]:
    where = find_games(split, options.games, request.data)
    games = game_digests(where, split)
    if len(games) != SPLITS[split]:
        warning = f"{len(games)} solvable games of {split}, ALFWorld's has {SPLITS[split]}: rates are of these alone"
        print(f"{where}: {warning}", file=sys.stderr, flush=True)
    shared = {"file": HostPath(where), "real_split": split, "engine": options.engine, "prompt": request.prompt}
    shared["database_id"] = digest_of_all(games)
    made = partial(Task, f"alfworld/{split}", env_id=ENV_ID, max_turns=MAX_TURNS)
    return [
        made(name, category=name.partition("-")[0], options={**shared, "id": name}, cluster=name.partition("/")[0])
        for name in games
    ]


def _needs_real(split: str, options: RealOptions, request: EvaluationRequest) -> list[Requirement]:
    required = [requirement_of("data", partial(find_games, split, options.games, request.data))]
    return [*required, Requirement("alfworld package", package_missing)] if options.engine == "alfworld" else required


_REAL_LIMITS = (
    "ALFWorld's own games with text actions, one a turn: not the protocol of the paper's column, which calls "
    "tools from Python in five turns.",
)
_PROTOCOL = published_protocol("alfworld")


def _about(limits: tuple[str, ...], run: EvaluationRun) -> RunDescription:
    other = "actions from Python tool calls, few turns"
    return replace(default_description(run), limits=limits, column="ALFWorld", other_protocol=other)


BENCHMARKS = {
    **{
        split: Benchmark(
            RealOptions,
            partial(_load_real, split),
            {"full": 256, "brief": 32},
            needs=partial(_needs_real, split),
            sources=SETS["alfworld"],
            has_hints=True,
            details=BenchmarkDetails(size=str(SPLITS[split]), about=partial(_about, _REAL_LIMITS), protocol=_PROTOCOL),
        )
        for split in SPLITS
    },
    "text": Benchmark(
        TextOptions,
        _load,
        {"full": 256, "brief": 32},
        # The ids of its tasks name the split, and a stored ledger has no more in its hash.
        identity=lambda options, request: {},
        default_limit=120,
        has_hints=True,
        details=BenchmarkDetails(
            size="any number (120 by default)",
            demonstrations=demonstrations,
            vocabulary=class_names,
            about=partial(_about, _LIMITS),
            protocol=_PROTOCOL,
        ),
    ),
}
