"""What a benchmark declares to the library: options, tasks, scoring identity, requirements, page texts.

A benchmark is a value of ``Benchmark`` in a module's table ``BENCHMARKS`` (variant to value), which
``lemur_ray.benchmarks.discovery`` imports by name."""

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from lemur_ray.agents.messages import Message
from lemur_ray.agents.recording import RecordingFormat, ReplayMode
from lemur_ray.agents.replay_goals import PublishedRuns
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.benchmarks.episode_artifacts import View
from lemur_ray.benchmarks.needs import NoDataFolder, Requirement, requirement_of
from lemur_ray.benchmarks.resource_request import TEXT, Resources
from lemur_ray.benchmarks.rows import content_digest
from lemur_ray.benchmarks.run_notes import EvaluationRun, PublishedProtocol, RunDescription, default_description
from lemur_ray.benchmarks.task_validation import validated_tasks
from lemur_ray.host.renamed_names import renamed_names
from lemur_ray.outside_data.source import Source

Options = TypeVar("Options")
Class = TypeVar("Class", bound=type)
Prompt = Literal["full", "brief"]


def location_option(
    default: Any = "", stored_as: Callable[[Any], Any] = str, full_form: Callable[[str], str] | None = None
) -> Any:
    """A dataclass field for a benchmark's option that is a folder or an address, which is not part of the recipe hash.
    ``stored_as``: from a value to what files of a run may hold, for example without a password. ``full_form``: from a
    stored value to the form in which a user must enter it again, empty if the stored one suffices."""
    return field(default=default, metadata={"location": True, "stored_as": stored_as, "full_form": full_form})


def file_option(digest: Callable[[str], str] = content_digest) -> Any:
    """A dataclass field for a benchmark's option that is the path of an input file or folder; the recipe hash has
    ``digest(path)``, by default of its content, instead of the path."""
    return field(default="", metadata={"digest": digest})


def storable_options(options: Any) -> dict[str, Any]:
    """A benchmark's options (a dataclass value) as JSON values for the files of a run, without passwords."""
    rules = {f.name: f.metadata.get("stored_as") for f in fields(options)}
    return {name: rule(value) if (rule := rules[name]) else value for name, value in asdict(options).items()}


def options_to_repeat(options: Any) -> dict[str, str]:
    """Options whose stored value is incomplete (a URL without its password): name -> form in which a user must enter it
    again. ``options``: as read from a file of a run."""
    rules = {f.name: f.metadata.get("full_form") for f in fields(options)}
    forms = {name: rule(getattr(options, name)) for name, rule in rules.items() if rule}
    return {name: form for name, form in forms.items() if form}


def all_options(options: Any, request: "EvaluationRequest") -> dict[str, Any]:
    """The options that scores depend on, as JSON values; default of ``Benchmark.identity``. All except locations
    (``location_option``), with a digest of each file's content instead of its path."""
    values = {f.name: getattr(options, f.name) for f in fields(options) if not f.metadata.get("location")}
    digests = {f.name: f.metadata["digest"] for f in fields(options) if f.metadata.get("digest")}
    return {name: digests[name](value) if name in digests else value for name, value in values.items()}


def check_options(name: str, options: type[Any]) -> None:
    """Raise ValueError, with the benchmark's name, unless its options are a dataclass with defaults for all fields."""
    if not (isinstance(options, type) and is_dataclass(options)):
        raise ValueError(f"{name}: its options are no dataclass")
    for f in fields(options):
        if f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"{name}: its option {f.name} has no default; every option needs one")


@dataclass(frozen=True)
class EvaluationRequest:
    """Settings of an evaluation that every benchmark gets, besides its own options."""

    data: Path | None = None
    """Folder of outside data sets"""
    prompt: Prompt = "full"
    recording: Path | None = None
    """Recording to replay: its tasks are loaded with the wording that they had then"""
    mode: ReplayMode = "strict"
    """Whether a replay executes the recorded replies (strict) or only grades the submissions (grading)"""
    epochs: int = 1
    """Number of episodes of each task"""

    def data_folder(self, content: str) -> Path:
        """The folder of downloaded data sets (``--data``). Raises NoDataFolder if none is set; ``content``: what is
        looked for there, for the message."""
        if self.data is None:
            raise NoDataFolder(content)
        return self.data

    def outside(self, whose: str) -> Path:
        """Old name of ``data_folder``, for one release."""
        warnings.warn("outside() is now data_folder(): use that name", DeprecationWarning, stacklevel=2)
        return self.data_folder(whose)


@dataclass(frozen=True)
class BenchmarkDetails:
    """Optional declarations of a benchmark, for example its column of a paper, shared sites, judges, recorded runs. All
    functions must depend on their arguments alone."""

    size: str = ""
    """Number of tasks, in words"""
    endpoints: Callable[[Any], Sequence[str]] = lambda options: ()
    """Endpoints that the environments query (a judge, a simulated user), each ``openai:URL#MODEL``"""
    uses_leases: bool = False
    """Whether environments lock shared sites with ``agents.task_leases``; one host then keeps the locks of all hosts"""
    file_patterns: tuple[str, ...] = ()
    """Further input files that a user may bring: glob patterns below the data folder, each with or without .gz"""
    cluster: Callable[[Task], str] = attrgetter("cluster")
    """Group of dependent tasks that a task belongs to, for confidence intervals; also for stored tasks that lack it"""
    opening: Callable[[Task], str] = lambda task: ""
    """Text that a task's first prompt contains at least, for the check of the model's context length"""
    unplayable: Callable[[Any, EvaluationRequest, Sequence[Task]], Sequence[str]] = lambda options, request, tasks: ()
    """Reasons why some of the chosen tasks cannot be played on this machine, each one line that also has the remedy"""
    notes: Callable[[Sequence[Episode]], Mapping[str, Any]] = lambda episodes: {}
    """Further results besides the success rate, as JSON values. The episodes come without their texts"""
    about: Callable[[EvaluationRun], RunDescription] = default_description
    """Description of a run for report pages"""
    views: Callable[[Episode], Sequence[View]] = lambda episode: ()
    """Pictures and texts that an environment stored in files during an episode, for its transcript page"""
    departures: Callable[[Any, EvaluationRequest, Sequence[Task]], Sequence[str]] = lambda options, request, tasks: ()
    """Differences from the original tasks that come from this machine and its data. Every table shows them beside the
    run; they are not part of the recipe hash"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Options and common flags (temperature) that differ from the defaults in the paper's column, besides those that
    ``protocol`` prescribes; suites set both"""
    protocol: PublishedProtocol | None = None
    """The protocol of the published numbers; departures from it stand beside every run"""
    teacher_settings: Mapping[str, Any] = field(default_factory=dict)
    """Options that switch on feedback of a teacher model; empty if the benchmark has none"""
    recording_format: RecordingFormat | None = None
    """How recordings of earlier runs are read; None if the benchmark has none"""
    replay_mode: ReplayMode = "strict"
    """Default of --replay. ``grading`` if only the recorded submissions are comparable"""
    published_runs: PublishedRuns | None = None
    """Recorded runs that the authors published, and the agreement that replays must reach"""
    demonstrations: Callable[[int, float], Iterable[tuple[str, Sequence[Message]]]] = lambda count, slips: ()
    """Transcripts (id, messages) of up to ``count`` tasks that an expert solved, as instruction data. ``slips``: share
    of the turns with a mistake before them, which has weight 0"""
    vocabulary: Callable[[], Sequence[str]] = lambda: ()
    """Nouns of the environment that a tokenizer trained for it should know"""
    restored_task: Callable[[Task, Episode], Task] = lambda task, episode: task
    """Adapt a task for the replay of a stored episode, whose replies may use names that have changed since"""

    @property
    def published_settings(self) -> Mapping[str, Any]:
        """Value by name of all options and flags that play the published protocol; those of ``protocol`` win over
        ``settings``."""
        return {**self.settings, **(self.protocol.settings if self.protocol else {})}


FIELDS_OF_LAST_RELEASE = {
    "takes": "resources", "step_s": "min_step_s", "asks": "endpoints", "leases": "uses_leases",
    "layouts": "file_patterns", "as_in_paper": "settings", "with_teacher": "teacher_settings",
    "recordings": "recording_format", "replays": "replay_mode", "published": "published_runs",
    **{name: name for name in ("size", "cluster", "opening", "unplayable", "notes", "about", "views", "departures")},
    "said_again": "restored_task",
}  # fmt: skip
"""Keyword of ``Benchmark`` in the last release -> present field of ``Benchmark`` or ``BenchmarkDetails``."""
_IN_DETAILS = frozenset(f.name for f in fields(BenchmarkDetails))


def _with_old_keywords(benchmark: Class) -> Class:
    """Class decorator of ``Benchmark``: accept the keywords of the last release, with a warning, for one release."""
    wrapped: Any = benchmark
    init = wrapped.__init__

    @functools.wraps(init)
    def accepting(self: Any, *args: Any, **keywords: Any) -> None:
        old = {name: keywords.pop(name) for name in FIELDS_OF_LAST_RELEASE.keys() & keywords.keys()}
        if old:
            new = {FIELDS_OF_LAST_RELEASE[name]: value for name, value in old.items()}
            details = {name: value for name, value in new.items() if name in _IN_DETAILS}
            advice = ", ".join(f"{name}= is now {_place_of(name)}" for name in sorted(old))
            warnings.warn(f"Benchmark: {advice}", DeprecationWarning, stacklevel=2)
            keywords |= {name: value for name, value in new.items() if name not in details}
            keywords["details"] = replace(keywords.get("details", BenchmarkDetails()), **details)
        init(self, *args, **keywords)

    wrapped.__init__ = accepting
    return benchmark


def _place_of(old: str) -> str:
    new = FIELDS_OF_LAST_RELEASE[old]
    return f"details=BenchmarkDetails({new}=...)" if new in _IN_DETAILS else f"{new}="


def _no_requirements(options: Any, request: EvaluationRequest) -> tuple[Requirement, ...]:
    return ()


@_with_old_keywords
@dataclass(frozen=True)
class Benchmark(Generic[Options]):
    """One benchmark: its options, how its tasks are loaded, limits and stop strings of replies, and what it needs to be
    played. All functions must depend on their arguments alone."""

    options: type[Options]
    """Frozen dataclass of JSON values with defaults; each field is a flag. ``__post_init__`` may raise ValueError"""
    load: Callable[[Options, EvaluationRequest], Iterable[Task]]
    """Yield the tasks in their order, lazily. --sample draws from all of them, so an endless or very large benchmark
    needs a ``default_limit``. Raises ValueError, or an OSError that names the command which fetches a missing file."""
    max_tokens: Mapping[Prompt, int]
    """Maximum tokens of one reply, for the full and the brief prompt"""
    identity: Callable[[Options, EvaluationRequest], Mapping[str, Any]] = all_options
    """The options that affect scores, as JSON values: part of the recipe hash"""
    version: int | Callable[[Options], int] = 1
    """Increased whenever the same reply would score differently; part of the recipe hash from 2 on"""
    default_limit: int = 0
    """Number of tasks without --limit, for a benchmark that generates any number; 0: all tasks"""
    stop: tuple[str, ...] = ()
    """Stop strings of a reply"""
    sources: tuple[Source, ...] = ()
    """Input files that jobs/fetch_data.py can fetch"""
    resources: Resources = TEXT
    """Resource request of one episode, for scheduling on a cluster"""
    min_step_s: float = 5.0
    """Minimum of --step-s in seconds: by then the environment's own time limits end every step, so that a step which
    takes longer is the environment's fault and not the policy's"""
    needs: Callable[[Options, EvaluationRequest], Sequence[Requirement]] = _no_requirements
    """Requirements (data, sandboxes, services) that are checked before tasks are loaded"""
    has_hints: bool = False
    """Whether tasks have reference replies or hints, which the expert and random policies need"""
    details: BenchmarkDetails = BenchmarkDetails()
    """Optional declarations"""

    def requirements(self, options: Options, request: EvaluationRequest) -> Sequence[Requirement]:
        """What must be there to play, as ``needs`` declares; without ``needs``, that the first task can be loaded."""
        if self.needs is not _no_requirements:
            return self.needs(options, request)
        first = partial(validated_tasks, "the benchmark", lambda: self.load(options, request), 1)
        return [requirement_of("data" if self.sources else "", lambda: list(first()))]

    def identity_of(self, options: Options, request: EvaluationRequest, replay: str) -> dict[str, Any]:
        """The benchmark's part of the recipe hash. ``replay``: value of --replay, also if it is ``auto``."""
        identity = dict(self.identity(options, request))
        if self.details.recording_format is not None:
            identity["replay"] = replay
        version = self.version(options) if callable(self.version) else self.version
        if version > 1:
            identity["version"] = version
        return identity

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Value of a field by its name in the last release, with a warning, for one release."""
            if name not in FIELDS_OF_LAST_RELEASE:
                raise AttributeError(f"'Benchmark' object has no attribute {name!r}")
            new = FIELDS_OF_LAST_RELEASE[name]
            where = f"details.{new}" if new in _IN_DETAILS else new
            warnings.warn(f"Benchmark.{name} is now Benchmark.{where}", DeprecationWarning, stacklevel=2)
            return attrgetter(where)(self)


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
        whole="all_options", About="RunDescription", Run="EvaluationRun", Takes="Resources", Need="Requirement",
        there="requirement_of",
    )  # fmt: skip
