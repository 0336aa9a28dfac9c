"""The benchmark ``webarena/standin``: tasks in WebArena's format on web applications that replace WebArena's sites.

The applications are started on this machine. Its rates are not WebArena scores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from envs.webarena import options as of_browser
from envs.webarena.options import REPLY_TOKENS, STEP_S, BrowserOptions, playing, task_of
from envs.webarena.recording import as_named
from envs.webarena.run_notes import notes
from envs.webarena.sites.content import SEED
from envs.webarena.sites.software import SOFTWARE, missing
from envs.webarena.sites.suite.records import records, software_of
from envs.webarena.views import views
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest, location_option
from lemur_ray.benchmarks.needs import Requirement
from lemur_ray.benchmarks.resource_request import BROWSER
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription, default_description

NAME = "webarena/standin"
ENV_ID = "envs:lemur/WebArenaStandin-v0"
_LIMITS = (
    "Stand-in sites: applications, content and tasks are this project's. These rates are not WebArena scores.",
    "Every site is restored after each episode, so no task changes what another one sees.",
)


@dataclass(frozen=True)
class StandinOptions(BrowserOptions):
    """Options of the benchmark ``webarena/standin``: seed and number of copies of the sites, and the applications to
    leave out."""

    wait_s: float = 0.3
    """Seconds to wait at the start and after every action. These sites run on this machine."""
    seed_of_sites: int = SEED
    """Seed of all content on the sites."""
    site_copies: int = location_option(2, stored_as=int)
    """Maximum copies of each application per process, started when needed; limits its concurrent episodes."""
    without: str = ""
    """Applications to leave out with their tasks, comma-separated: shop, trac, forum, cms, wiki."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.site_copies < 1:
            raise ValueError(f"--site-copies {self.site_copies}: expected 1 or more")
        if unknown := [name for name in self.left_out if name not in SOFTWARE]:
            raise ValueError(f"--without {unknown[0]}: expected names of {', '.join(SOFTWARE)}")

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(name for name in self.without.split(",") if name)


def load(options: StandinOptions, request: EvaluationRequest) -> Iterator[Task]:
    """Yield the suite's tasks except those on applications that ``--without`` leaves out."""
    own = {"seed": options.seed_of_sites, "copies": options.site_copies, "settles_s": options.wait_s}
    for record in records(options.seed_of_sites):
        if not set(software_of(record)) & set(options.left_out):
            yield task_of(record, NAME, ENV_ID, {**playing(options, request), **own})


def needs(options: StandinOptions, request: EvaluationRequest) -> list[Requirement]:
    """Return what to check before a run: the browser, and the installation of each application in use."""
    played = [one for one in SOFTWARE.values() if one.name not in options.left_out]
    return [*of_browser.needs(options), *(Requirement(one.title, partial(_missing, one.name)) for one in played)]


def _missing(name: str) -> str | None:
    reason = missing(SOFTWARE[name])
    return f"{reason} (or --without {name})" if reason else None


def departures(options: StandinOptions, request: EvaluationRequest, tasks: Sequence[Task]) -> list[str]:
    """Return notes on how this run differs from the full suite: truncation, and applications left out."""
    return [*of_browser.departures(options), *(f"without {SOFTWARE[name].title}" for name in options.left_out)]


def about(run: EvaluationRun) -> RunDescription:
    return replace(default_description(run), limits=_LIMITS, beside=_LIMITS[:1])


STANDIN: Benchmark[StandinOptions] = Benchmark(
    StandinOptions,
    load,
    REPLY_TOKENS,
    version=4,  # words in backticks or quotes are words, as upstream reads them
    identity=of_browser.identity,
    needs=needs,
    min_step_s=STEP_S,
    resources=BROWSER,
    has_hints=True,
    details=BenchmarkDetails(
        endpoints=of_browser.asks,
        departures=departures,
        opening=lambda task: str(task.options["record"]["intent"]),
        size=f"{len(records())} (starts its own sites)",
        notes=notes,
        views=views,
        about=about,
        restored_task=as_named,
    ),
)
