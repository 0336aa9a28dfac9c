"""The inputs of a report (run folders, ledgers, a corpus manifest), as named on the command line and as read.

A missing input becomes a line of ``missing``, which the page shows; a broken one is an error that names the file. Files
in buckets are copied to this host. Knows the layout of the folders, nothing of drawing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from lemur_ray.host.home import lemur_home, resolve_out
from lemur_ray.host.json_files import parse_json
from lemur_ray.report.ledgers.stored_episodes import StoredEpisode, stored_episodes
from lemur_ray.rollout.evaluation_folder import (
    DEPARTURES,
    LEDGER,
    PLUGIN_METADATA,
    EvaluationError,
    evaluation_folders,
    load_settings,
)
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.storage.folder_mirror import display_name, mirror_files

RUN_FILES, CORPUS_FILES = ("recipe.json", "result.json", "metrics.jsonl"), ("manifest.json",)
"""Files of a run folder and of a corpus folder that a report reads."""


class ReportError(Exception):
    """Raised if an input of a report is missing or broken; the message names the path and what to do."""


class Stage(StrEnum):
    """Kind of a training run. The values are used on pages and in report.json."""

    PRETRAINING = "pretraining"
    TUNING = "instruction tuning"


@dataclass(frozen=True)
class TrainingRun:
    """A run folder of pretraining or instruction tuning. ``hash``: of the recipe; ``init_from``: the model that it
    started from; ``metrics``: one dict for each logged step; ``result`` is empty if the run has not finished."""

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
        """URL or path of the folder, for display."""
        return display_name(self.folder)

    @property
    def mixture(self) -> Sequence[Mapping[str, Any]]:
        return self.result.get("mixture", [])

    @property
    def stage(self) -> Stage:
        """Kind of the run: instruction tuning trains on chat rows, pretraining on code and text."""
        kinds = {source.get("kind") for source in self.mixture}
        tuned = "chat" in kinds or (not kinds and bool(self.init_from))
        return Stage.TUNING if tuned else Stage.PRETRAINING

    def series(self, prefix: str) -> dict[str, list[tuple[float, float]]]:
        """Curves of metrics whose name begins with ``prefix``: rest of the name -> (step, value) pairs; maybe none."""
        out: dict[str, list[tuple[float, float]]] = {}
        for line in self.metrics:
            for key, value in line.items():
                if key.startswith(prefix) and isinstance(value, int | float):
                    out.setdefault(key.removeprefix(prefix), []).append((float(line["step"]), float(value)))
        return out

    def last(self, key: str) -> Any:
        """The newest value of a metric; None if it was never logged."""
        return next((line[key] for line in reversed(self.metrics) if line.get(key) is not None), None)


@dataclass
class Inputs:
    """All inputs of a report that exist: training runs, the corpus' manifest, evaluations; and a line of text for each
    that is missing."""

    runs: list[TrainingRun] = field(default_factory=list)
    corpus: Mapping[str, Any] = field(default_factory=dict)
    corpus_folder: Path | None = None
    ledgers: list[tuple[Path, list[StoredEpisode]]] = field(default_factory=list)
    """Folders and their episodes, ordered by the time of the last write."""
    settings: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Recipe hash of an evaluation -> its settings."""
    missing: list[str] = field(default_factory=list)
    missing_ledgers: list[str] = field(default_factory=list)
    """The lines of ``missing`` about evaluations."""

    @property
    def corpus_place(self) -> str:
        """URL or path of the corpus folder, for display; empty without a corpus."""
        return display_name(self.corpus_folder) if self.corpus_folder else ""

    @property
    def num_episodes(self) -> int:
        return sum(len(episodes) for _, episodes in self.ledgers)


def _not_a_number(name: str) -> None:
    """Replaces NaN and Infinity, which a diverging run logs, by None: JSON has no such numbers."""


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
    """Read a run folder. Raises ReportError if it has no recipe.json, or broken files."""
    if not (folder / "recipe.json").is_file():
        raise ReportError(f"{display_name(folder)} is not a run folder: it has no recipe.json")
    written = _json(folder / "recipe.json")
    result = _json(folder / "result.json") if (folder / "result.json").is_file() else {}
    recipe = written.get("recipe", written)
    digest, init_from = (str(written.get(name, "")) for name in ("hash", "init_from_path"))
    return TrainingRun(folder, recipe, digest, init_from, _metrics(folder / "metrics.jsonl"), result)


def read_settings(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Recipe hash -> settings of the evaluations in a folder; empty if none are stored. Among the settings,
    ``DEPARTURES`` lists deviations from upstream and ``PLUGIN_METADATA`` a plug-in's run notes. Raises ReportError if
    ``evaluations.json`` is damaged."""
    try:
        return {
            recipe: {
                **stored["settings"],
                **{name: stored[name] for name in (DEPARTURES, PLUGIN_METADATA) if stored.get(name)},
            }
            for recipe, stored in load_settings(folder).items()
        }
    except (EvaluationError, KeyError, TypeError) as error:
        raise ReportError(f"{folder}/evaluations.json: {error}; mend or remove it") from error


def collect_inputs(runs: Sequence[Path], episodes: Sequence[Path], corpus: Path | None) -> Inputs:
    """Read run folders, folders of episodes and a corpus folder; missing ones are listed in ``missing``. Raises
    ReportError for broken files, and if there is no episode at all."""
    inputs = Inputs()
    _add_runs(inputs, runs)
    _add_ledgers(inputs, episodes)
    manifest = corpus / "manifest.json" if corpus is not None else None
    if manifest is not None and manifest.is_file():
        inputs.corpus, inputs.corpus_folder = _json(manifest), corpus
    else:
        inputs.missing.append(f"no corpus manifest at {display_name(manifest)}" if manifest else "no corpus was given")
    return inputs


def _add_runs(inputs: Inputs, folders: Sequence[Path]) -> None:
    for folder in folders:
        run = read_run(folder)
        inputs.runs.append(run)
        if not run.metrics:
            inputs.missing.append(f"run {run.place}: no metrics yet, so no curves")
        if not run.result:
            inputs.missing.append(
                f"run {run.place}: not finished (no result.json); its numbers are those of the last line"
            )
    inputs.runs.sort(key=lambda run: (run.stage is not Stage.PRETRAINING, run.name))
    stages = {run.stage for run in inputs.runs}
    inputs.missing += [f"no {stage} run was found" for stage in Stage if stage not in stages]


def _add_ledgers(inputs: Inputs, folders: Sequence[Path]) -> None:
    for folder in folders:
        path = folder / "episodes.jsonl"
        if not path.is_file():
            inputs.missing_ledgers.append(f"{display_name(folder)} has no episodes.jsonl")
        elif episodes := stored_episodes(path):
            inputs.ledgers.append((folder, episodes))
            inputs.settings |= read_settings(folder)
        else:
            inputs.missing_ledgers.append(f"{display_name(path)} holds no finished episode")
    inputs.missing += inputs.missing_ledgers
    inputs.ledgers = _with_unique_anchors(inputs.ledgers)
    inputs.ledgers.sort(key=lambda ledger: (ledger[0] / "episodes.jsonl").stat().st_mtime_ns)
    if not inputs.num_episodes:
        places = ", ".join(map(display_name, folders)) or "no folder was given, and none is under LEMUR_HOME/episodes"
        raise ReportError(
            f"no episodes found ({places}): run jobs/agent_eval.py first, or name the folder that "
            "an evaluation wrote to (its --out) with --episodes"
        )


def _with_unique_anchors(ledgers: list[tuple[Path, list[StoredEpisode]]]) -> list[tuple[Path, list[StoredEpisode]]]:
    """Ledgers with a numbered anchor for each further copy of an episode, for example in a copied ledger."""
    count: dict[str, int] = {}
    out = []
    for folder, episodes in ledgers:
        for episode in episodes:
            count[episode.anchor] = count.get(episode.anchor, 0) + 1
        numbered = [(e, count[e.anchor]) for e in episodes]
        out.append((folder, [replace(e, anchor=f"{e.anchor}-{n}") if n > 1 else e for e, n in numbered]))
    return out


def discover(home: Path) -> tuple[list[Path], list[Path], Path | None]:
    """The inputs of a report below ``home`` (LEMUR_HOME): run folders, episode folders, corpus folder or None."""
    runs = sorted(p.parent for p in home.glob("runs/*/recipe.json"))
    episodes = sorted(p.parent for p in home.glob("episodes/*/episodes.jsonl"))
    corpora = sorted(home.glob("corpus/*/manifest.json"), key=lambda p: (p.parent.name != "embedded", p.parent.name))
    return runs, episodes, corpora[0].parent if corpora else None


@dataclass(frozen=True)
class ReportJob:
    """Render the report, or search or export the episodes that it would show."""

    runs: tuple[str, ...] = ()
    """Run folders of pretraining and tuning. Empty: every run under LEMUR_HOME/runs, or with --episodes none."""
    episodes: tuple[str, ...] = ()
    """Folders with an episodes.jsonl, or of suites. Empty: every one under LEMUR_HOME/episodes."""
    corpus: str = ""
    """Corpus folder. Empty: LEMUR_HOME/corpus/embedded, or with --episodes none."""
    out: str = ""
    """Folder of the page; all of these may lie in a bucket, gs:// or s3://. Empty: LEMUR_HOME/report."""
    find: str = ""
    """Write no page; print every message of the episodes that has this text in it."""
    eval: str = ""
    """Write no page but logs that `inspect view` opens: FILE.eval for one run, else a folder."""

    def folders(self) -> tuple[list[Path], list[Path], Path | None]:
        """Run folders, episode folders and the corpus: those named, by default all under LEMUR_HOME. Copies the files
        that a report reads from a bucket to this host. Raises OSError, ImportError, and EvaluationError for a named
        folder without a ledger; an empty ledger, of an evaluation that has only begun, is a folder like any other."""
        runs, episodes, corpus = discover(lemur_home())
        if self.episodes:
            runs, corpus = [], None
        runs = [_here(run, RUN_FILES) for run in self.runs] or runs
        named = evaluation_folders(self.episodes)
        for folder in named:
            if not (folder / LEDGER).is_file():
                raise EvaluationError(f"{folder} has no {LEDGER}: give the folder that jobs/agent_eval.py wrote to")
        episodes = named or episodes
        return runs, episodes, _here(self.corpus, CORPUS_FILES) if self.corpus else corpus


def _here(named: str, files: Sequence[str]) -> Path:
    place = resolve_out(named, "")
    return mirror_files(place, files) if is_bucket(place) else Path(place)
