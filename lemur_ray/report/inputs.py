"""What a report is made from: run folders, ledgers, a corpus manifest. Reads, never writes.

A missing piece becomes a line of ``missing`` that the page shows; a broken one is an error that names the file. Knows
the layout of the folders and nothing of how anything is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lemur_ray.host.json_files import parse_json
from lemur_ray.report.ledgers.stored_episodes import StoredEpisode, stored_episodes
from lemur_ray.rollout.evaluation_folder import DEPARTURES, PLUGIN_METADATA, EvaluationError, load_settings
from lemur_ray.storage.folder_mirror import display_name

OF_RUN, OF_CORPUS = ("recipe.json", "result.json", "metrics.jsonl"), ("manifest.json",)
"""Files of a run folder and of a corpus that are read here."""


class ReportError(Exception):
    """Nothing can be reported, or an input is broken; the message names the place and what to do."""


@dataclass(frozen=True)
class TrainingRun:
    """A run folder of pretraining or instruction tuning. ``result`` is empty where the run has not finished."""

    folder: Path
    recipe: Mapping[str, Any]
    hash: str
    init_from: str
    metrics: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def place(self) -> str:
        """Where it lies, for people."""
        return display_name(self.folder)

    @property
    def mixture(self) -> Sequence[Mapping[str, Any]]:
        return self.result.get("mixture", [])

    @property
    def stage(self) -> str:
        """What the run was: instruction tuning trains on chat rows, pretraining on code and text."""
        kinds = {source.get("kind") for source in self.mixture}
        tuned = "chat" in kinds or (not kinds and bool(self.init_from))
        return "instruction tuning" if tuned else "pretraining"

    def series(self, prefix: str) -> dict[str, list[tuple[float, float]]]:
        """(step, value) of every metric whose name begins with ``prefix``, by the rest of the name."""
        out: dict[str, list[tuple[float, float]]] = {}
        for line in self.metrics:
            for key, value in line.items():
                if key.startswith(prefix) and isinstance(value, int | float):
                    out.setdefault(key.removeprefix(prefix), []).append((float(line["step"]), float(value)))
        return out

    def last(self, key: str) -> Any:
        """The newest value of a metric, None where it was never logged."""
        return next((line[key] for line in reversed(self.metrics) if line.get(key) is not None), None)


@dataclass
class Inputs:
    """Everything that was found, and what was not."""

    runs: list[TrainingRun] = field(default_factory=list)
    corpus: Mapping[str, Any] = field(default_factory=dict)
    corpus_folder: Path | None = None
    ledgers: list[tuple[Path, list[StoredEpisode]]] = field(default_factory=list)
    """Folders and their episodes; the ledger that was written last comes last."""
    settings: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Recipe hash of an evaluation -> the settings it stands for."""
    missing: list[str] = field(default_factory=list)

    @property
    def corpus_place(self) -> str:
        """Where the corpus lies, for people; empty where there is none."""
        return display_name(self.corpus_folder) if self.corpus_folder else ""

    @property
    def num_episodes(self) -> int:
        return sum(len(episodes) for _, episodes in self.ledgers)


def _not_a_number(name: str) -> None:
    """NaN and Infinity, as a diverging run logs them: no value, as JSON has none for them."""


def _json(path: Path) -> Any:
    try:
        return parse_json(path.read_bytes(), path, constant=_not_a_number)
    except ValueError as error:
        raise ReportError(f"{path} is not JSON ({error}): move it away or make it again") from error


def _metrics(path: Path) -> list[Mapping[str, Any]]:
    """The lines of ``metrics.jsonl``; the first line of a step wins, a torn last line is ignored."""
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    first: dict[int, Mapping[str, Any]] = {}
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = parse_json(line, path, number, _not_a_number)
            first.setdefault(int(record["step"]), record)
        except (ValueError, KeyError, TypeError) as error:
            raise ReportError(f"{path}, line {number}: not a metrics record ({error!r}); mend or remove it") from error
    return [first[step] for step in sorted(first)]


def read_run(folder: Path) -> TrainingRun:
    """Read a run folder. Raises ReportError where it holds no recipe.json, or broken files."""
    if not (folder / "recipe.json").is_file():
        raise ReportError(f"{display_name(folder)} is not a run folder: it has no recipe.json")
    written = _json(folder / "recipe.json")
    result = _json(folder / "result.json") if (folder / "result.json").is_file() else {}
    recipe = written.get("recipe", written)
    metrics = _metrics(folder / "metrics.jsonl")
    return TrainingRun(
        folder, recipe, str(written.get("hash", "")), str(written.get("init_from_path", "")), metrics, result
    )


def read_settings(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Recipe hash -> settings of the evaluations in a folder; empty where they were not kept. Raises ReportError.

    Among them, under ``DEPARTURES``, what was not as upstream has it where episodes were played, and under
    ``PLUGIN_METADATA``
    what a benchmark that is none of ours said of the runs.
    """
    try:
        return {
            recipe: {
                **kept["settings"],
                **{name: kept[name] for name in (DEPARTURES, PLUGIN_METADATA) if kept.get(name)},
            }
            for recipe, kept in load_settings(folder).items()
        }
    except (EvaluationError, KeyError, TypeError) as error:
        raise ReportError(f"{folder}/evaluations.json: {error}; mend or remove it") from error


def collect_inputs(runs: Sequence[Path], episodes: Sequence[Path], corpus: Path | None) -> Inputs:
    """Read what the folders hold. Raises ReportError where no episode is found at all."""
    found = Inputs()
    for folder in runs:
        run = read_run(folder)
        found.runs.append(run)
        if not run.metrics:
            found.missing.append(f"run {run.place}: no metrics yet, so no curves")
        if not run.result:
            said = "not finished (no result.json); its numbers are those of the last line"
            found.missing.append(f"run {run.place}: {said}")
    found.runs.sort(key=lambda run: (run.stage != "pretraining", run.name))
    for stage in ("pretraining", "instruction tuning"):
        if not any(run.stage == stage for run in found.runs):
            found.missing.append(f"no {stage} run was found")
    for folder in episodes:
        path = folder / "episodes.jsonl"
        if not path.is_file():
            found.missing.append(f"{display_name(folder)} has no episodes.jsonl")
            continue
        read = stored_episodes(path)
        if read:
            found.ledgers.append((folder, read))
            found.settings |= read_settings(folder)
        else:
            found.missing.append(f"{display_name(path)} holds no finished episode")
    found.ledgers = _apart(found.ledgers)
    found.ledgers.sort(key=lambda ledger: (ledger[0] / "episodes.jsonl").stat().st_mtime_ns)
    if not found.num_episodes:
        places = ", ".join(map(display_name, episodes)) or "no folder was given or found under LEMUR_HOME/episodes"
        raise ReportError(f"no episodes found ({places}): run jobs/agent_eval.py first, or pass --episodes")
    manifest = corpus / "manifest.json" if corpus is not None else None
    if manifest is not None and manifest.is_file():
        found.corpus, found.corpus_folder = _json(manifest), corpus
    else:
        found.missing.append(f"no corpus manifest at {display_name(manifest)}" if manifest else "no corpus was given")
    return found


def _apart(ledgers: list[tuple[Path, list[StoredEpisode]]]) -> list[tuple[Path, list[StoredEpisode]]]:
    """An episode that stands in two ledgers (one is a copy of the other) has an address in each."""
    seen: dict[str, int] = {}
    out = []
    for folder, episodes in ledgers:
        for episode in episodes:
            seen[episode.anchor] = seen.get(episode.anchor, 0) + 1
        again = [(e, seen[e.anchor]) for e in episodes]
        out.append((folder, [replace(e, anchor=f"{e.anchor}-{n}") if n > 1 else e for e, n in again]))
    return out


def discover(home: Path) -> tuple[list[Path], list[Path], Path | None]:
    """Run folders, episode folders and the corpus under a LEMUR_HOME."""
    runs = sorted(p.parent for p in home.glob("runs/*/recipe.json"))
    episodes = sorted(p.parent for p in home.glob("episodes/*/episodes.jsonl"))
    corpora = sorted(home.glob("corpus/*/manifest.json"), key=lambda p: (p.parent.name != "embedded", p.parent.name))
    return runs, episodes, corpora[0].parent if corpora else None
