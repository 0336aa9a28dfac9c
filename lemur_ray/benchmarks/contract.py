"""What a benchmark declares: its options, its tasks, what of them decides a score, and what a page says of it.

A benchmark is a value of ``Benchmark`` in a table ``BENCHMARKS`` by variant; ``lemur_ray.benchmarks.discovery`` finds
it by name. Knows no benchmark, no policy and no pool.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from lemur_ray.agents.recording import RecordingFormat, ReplayMode
from lemur_ray.agents.replay_goals import PublishedRuns
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.benchmarks.episode_artifacts import View
from lemur_ray.benchmarks.needs import Requirement, requirement_of
from lemur_ray.benchmarks.resource_request import TEXT, Resources
from lemur_ray.benchmarks.rows import content_digest
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription, default_description
from lemur_ray.benchmarks.task_validation import validated_tasks
from lemur_ray.host.renamed_names import renamed_names
from lemur_ray.outside_data.source import Source

Options = TypeVar("Options")
Prompt = Literal["full", "brief"]
NO_DATA = "outside data: fetch it (python jobs/fetch_data.py NAME) or say where it lies, --data DIR or LEMUR_DATA"


def location_option(
    default: str = "", stored_as: Callable[[str], str] = str, full_form: Callable[[str], str] | None = None
) -> Any:
    """A dataclass field for a folder or an address. It is no part of the recipe hash.

    ``stored_as``: the part of the value that files may hold, for example without a password. ``full_form``: from a
    stored value to the form in which a user must give it again, empty if the stored value suffices.
    """
    return field(default=default, metadata={"location": True, "stored_as": stored_as, "full_form": full_form})


def file_option(digest: Callable[[str], str] = content_digest) -> Any:
    """A dataclass field for the path of a file or folder, empty by default. The recipe hash holds ``digest(path)``."""
    return field(default="", metadata={"digest": digest})


def storable_options(options: Any) -> dict[str, Any]:
    """Options as they may be kept in a file."""
    rules = {f.name: f.metadata.get("stored_as") for f in fields(options)}
    return {name: rule(value) if (rule := rules[name]) else value for name, value in asdict(options).items()}


def options_to_repeat(options: Any) -> dict[str, str]:
    """Of options that were read from a file: the names of those that do not suffice as they were written down, each
    with the form of what has to be said."""
    rules = {f.name: f.metadata.get("full_form") for f in fields(options)}
    forms = {name: rule(getattr(options, name)) for name, rule in rules.items() if rule}
    return {name: form for name, form in forms.items() if form}


@dataclass(frozen=True)
class EvaluationRequest:
    """What every benchmark is told besides its own options."""

    data: Path | None = None
    """Folder of outside data sets."""
    prompt: Prompt = "full"
    recording: Path | None = None
    """Play the tasks of this recording, as they were when it was recorded."""
    mode: ReplayMode = "strict"
    """How, then."""
    epochs: int = 1
    """Episodes of each task."""

    def data_folder(self, content: str) -> Path:
        """The folder of outside data. Raises ValueError without one, which names ``content``: what would be in it."""
        if self.data is None:
            raise ValueError(f"{content} is {NO_DATA}")
        return self.data

    def outside(self, whose: str) -> Path:
        """Old name of ``data_folder``, for one release."""
        warnings.warn("outside() is now data_folder(): use that name", DeprecationWarning, stacklevel=2)
        return self.data_folder(whose)


def check_options(name: str, options: type[Any]) -> None:
    """Raises ValueError that names the benchmark where a type of options cannot be a command line's."""
    if not (isinstance(options, type) and is_dataclass(options)):
        raise ValueError(f"{name}: its options are no dataclass")
    for f in fields(options):
        if f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"{name}: its option {f.name} has no default; every option needs one")


def all_options(options: Any, request: EvaluationRequest) -> dict[str, Any]:
    """Every option that is no place; of a file or folder what it holds."""
    found = {f.name: getattr(options, f.name) for f in fields(options) if not f.metadata.get("location")}
    held = {f.name: f.metadata["digest"] for f in fields(options) if f.metadata.get("digest")}
    return {name: held[name](value) if name in held else value for name, value in found.items()}


def _nothing(options: Any, request: EvaluationRequest) -> tuple[Requirement, ...]:
    return ()


def _unknown(task: Task) -> str:
    return ""


def _as_upstream(options: Any, request: EvaluationRequest, tasks: Sequence[Task]) -> tuple[str, ...]:
    return ()


def _all_can(options: Any, request: EvaluationRequest, tasks: Sequence[Task]) -> tuple[str, ...]:
    return ()


def _nobody(options: Any) -> tuple[str, ...]:
    return ()


def _no_views(episode: Episode) -> Sequence[View]:
    return ()


def _the_same(task: Task, episode: Episode) -> Task:
    return task


def _no_notes(episodes: Sequence[Episode]) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Benchmark(Generic[Options]):
    """One benchmark. All functions are of their arguments alone."""

    options: type[Options]
    """A frozen dataclass of JSON values with defaults; its ``__post_init__`` raises ValueError. Each is a flag."""
    load: Callable[[Options, EvaluationRequest], Iterable[Task]]
    """The tasks, in their own order, each with JSON values alone; made one at a time, as the first shows what lacks.

    All of them are made where a sample is drawn, so what has no end, or makes more than anybody plays, says its
    ``default_limit``: then, and with --sample first, no more are made than are asked for. Raises ValueError, or an
    OSError that says how a missing file is fetched."""
    max_tokens: Mapping[Prompt, int]
    """Of one reply, by prompt."""
    identity: Callable[[Options, EvaluationRequest], Mapping[str, Any]] = all_options
    """What of the options decides a score: part of the recipe hash."""
    version: int | Callable[[Options], int] = 1
    """Raised when the same reply would score otherwise; part of the recipe hash from 2 on. A function of the options
    where that holds under some of them alone."""
    default_limit: int = 0
    """Tasks where nobody says how many, of a benchmark that makes as many as it is asked for. 0: it has so many."""
    stop: tuple[str, ...] = ()
    """Texts at which a reply ends."""
    asks: Callable[[Options], Sequence[str]] = _nobody
    """The endpoints that its environments ask themselves, each ``openai:URL#MODEL``."""
    sources: tuple[Source, ...] = ()
    """Files of others that its tasks are read from: what jobs/fetch_data.py fetches."""
    layouts: tuple[str, ...] = ()
    """Other files that its tasks are read from where somebody brought them: patterns below the data folder, of files
    with .gz or without."""
    step_s: float = 5.0
    """Within so many seconds a step has ended whatever a policy does in it, by limits of the benchmark's own: with less
    time for a step (--step-s), what a policy does could pass for a fault of the environment, and is refused."""
    takes: Resources = TEXT
    """What an episode takes of the host it is played on: asked of a cluster before it is played there."""
    leases: bool = False
    """Whether its environments lease what they share with others (``agents.leases``): kept on one host for all."""
    has_hints: bool = False
    """Whether the expert and random policies can play it."""
    notes: Callable[[Sequence[Episode]], Mapping[str, Any]] = _no_notes
    """Numbers that belong beside the success rate. The episodes come without their texts."""
    needs: Callable[[Options, EvaluationRequest], Sequence[Requirement]] = _nothing
    """What must be there before the first episode, looked at before its tasks are loaded."""
    unplayable: Callable[[Options, EvaluationRequest, Sequence[Task]], Sequence[str]] = _all_can
    """Why some of the chosen tasks cannot be played here, and what to do about it, in a line each."""
    departures: Callable[[Options, EvaluationRequest, Sequence[Task]], Sequence[str]] = _as_upstream
    """What of this machine and its data makes the tasks other ones than upstream's, in words that stand in every table
    beside the run. No part of the recipe hash."""
    opening: Callable[[Task], str] = _unknown
    """What a model is shown first, as far as that is known without playing: a bound from below."""
    cluster: Callable[[Task], str] = attrgetter("cluster")
    """What a task has in common with others, where its ``cluster`` cannot say so: of tasks that stored runs know."""
    size: str = ""
    """How many tasks there are, in words."""
    recordings: RecordingFormat | None = None
    """Of its recorded runs, where it knows any."""
    replays: ReplayMode = "strict"
    """How these are replayed where nobody says: ``grading`` where submissions alone are worth anything."""
    published: PublishedRuns | None = None
    """Which files of recorded runs its authors published, and what their replays must reach."""

    as_in_paper: Mapping[str, Any] = field(default_factory=dict)
    """Options, and fields of every evaluation (temperature), under which the paper's column was played, where the
    defaults are others: suites play with these."""
    with_teacher: Mapping[str, Any] = field(default_factory=dict)
    """Options that add a teacher's feedback, where there can be one."""
    views: Callable[[Episode], Sequence[View]] = _no_views
    """What was seen in an episode, where it was kept in files: a page shows it beside the turns."""
    about: Callable[[EvaluationRun], RunDescription] = default_description
    """What a page says of a run."""
    said_again: Callable[[Task, Episode], Task] = _the_same
    """The task for a stored episode whose replies are said again: what they name may be called otherwise by now."""

    def needed(self, options: Options, request: EvaluationRequest) -> Sequence[Requirement]:
        """Its needs; of a benchmark that declares none, that its first task can be had."""
        if self.needs is not _nothing:
            return self.needs(options, request)
        made = partial(validated_tasks, "the benchmark", lambda: self.load(options, request), 1)
        return [requirement_of("data" if self.sources else "", lambda: list(made()))]

    def identity_of(self, options: Options, request: EvaluationRequest, replay: str) -> dict[str, Any]:
        """What of an evaluation belongs to the benchmark. ``replay``: as it was asked for, ``auto`` too."""
        found = dict(self.identity(options, request))
        if self.recordings is not None:
            found["replay"] = replay
        version = self.version(options) if callable(self.version) else self.version
        if version > 1:
            found["version"] = version
        return found


def place(
    default: str = "", written_as: Callable[[str], str] = str, to_say_again: Callable[[str], str] | None = None
) -> Any:
    """Old name of ``location_option``, for one release."""
    warnings.warn("place() is now location_option(): use that name", DeprecationWarning, stacklevel=2)
    return location_option(default, written_as, to_say_again)


def content(held: Callable[[str], str] = content_digest) -> Any:
    """Old name of ``file_option``, for one release."""
    warnings.warn("content() is now file_option(): use that name", DeprecationWarning, stacklevel=2)
    return file_option(held)


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, Asked="EvaluationRequest", written="storable_options", to_say_again="options_to_repeat",
        whole="all_options",
    )  # fmt: skip
