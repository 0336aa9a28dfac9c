"""The benchmark ``webarena/webarena``: 812 web tasks on the user's sites; options, order, requirements."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from envs.outside_data import required
from envs.webarena import options as of_browser
from envs.webarena.evaluators.verified import VERSION, published_tasks, reworded_record
from envs.webarena.fixed_sites import SitesConfig, answers
from envs.webarena.options import REPLY_TOKENS, STEP_S, BrowserOptions, playing, task_of
from envs.webarena.ordering import in_order, read_order, spread
from envs.webarena.recording import RENDERED, as_named, read_recording
from envs.webarena.run_notes import PROTOCOL, about, notes
from envs.webarena.sites.benchmark_standin import STANDIN
from envs.webarena.tasks import FILE, TABS, read_records, sites_named
from envs.webarena.views import views
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest, file_option, location_option
from lemur_ray.benchmarks.needs import Requirement, requirement_of
from lemur_ray.benchmarks.resource_request import BROWSER
from lemur_ray.benchmarks.task_dependencies import played_dependencies
from lemur_ray.storage.bundles.host_path import HostOnly

NAME = "webarena/webarena"
ENV_ID = "envs:lemur/WebArena-v0"
ANY_ORDER = "any"


@dataclass(frozen=True)
class WebOptions(BrowserOptions):
    """Options of the benchmark ``webarena/webarena``: files of the sites, of the tasks and of their order, and the
    interpreter of the second scorer."""

    sites_file: str = location_option()
    """JSON file with the addresses of the sites (docs/guides/webarena.md)."""
    task_file: str = file_option()
    """JSON file of tasks in WebArena's format, played instead of its 812."""
    order: str = location_option()
    """JSON file that maps a task id to the ids of tasks that must end before it starts. Empty: one after another, as
    the published sites require. any: no order, for sites that are reset after each episode."""
    verified: str = location_option()
    """Python with the package webarena-verified: play WebArena in its words, and have its scorer judge each episode,
    too (docs/guides/webarena.md). Empty: WebArena alone."""


def load(options: WebOptions, request: EvaluationRequest) -> Iterator[Task]:
    """Yield the tasks, each after those it depends on; with a recording, only the tasks that were recorded."""
    records = {record["task_id"]: record for record in read_records(_file(options, request))}
    recorded = read_recording(request.recording).episodes if request.recording else {}
    if request.recording:
        records = {task: record for task, record in records.items() if str(task) in recorded}
    verified = published_tasks(options.verified) if options.verified else {}
    sites = _sites(options)
    waiting = _after(options, list(records), sites)
    after = {} if waiting is None else {task: played_dependencies(task, waiting, records) for task in records}
    apart = None if waiting is None else spread(list(records), after, len(sites.lasting))
    more = {**playing(options, request), "sites": sites.to_json()}
    for task in in_order(list(records), after):
        own: dict[str, Any] = {"named": recorded[str(task)].named()} if request.recording else {}
        if apart is not None:
            own |= {"chain": {"copy": apart.copy_of[task], "lanes": apart.lanes}, "epoch": 0}
        record = records[task]
        if options.verified:
            if task not in verified:
                raise ValueError(f"WebArena-Verified has no task {task}: leave out --verified")
            record = reworded_record(record, verified[task], TABS)
            own["verified"] = {"python": HostOnly(options.verified, _ONE_HOST), "task": verified[task]}
        made = task_of(record, NAME, ENV_ID, {**more, **own}, tuple(map(str, after.get(task, ()))))
        yield replace(made, lanes=apart.lanes if apart else 0)


_ONE_HOST = "--verified is a program of the driver's host: play on the driver's host alone (--actors 0)"


def _file(options: WebOptions, request: EvaluationRequest) -> Path:
    if options.task_file:
        return Path(options.task_file).expanduser()
    return required(request.data_folder("what WebArena asks"), FILE.path)


def _sites(options: WebOptions) -> SitesConfig:
    if not options.sites_file:
        raise ValueError(
            "WebArena's sites are not configured: say where they are, --sites-file FILE (docs/guides/webarena.md); "
            "webarena/standin plays on sites that are started here"
        )
    return SitesConfig.read(Path(options.sites_file).expanduser())


def _after(options: WebOptions, ids: Sequence[int], sites: SitesConfig) -> dict[int, tuple[int, ...]] | None:
    """Map each task id to the ids that must end before it, some of which may not be played. None: no order."""
    if options.order == ANY_ORDER or not sites.lasting:
        return None
    if options.order:
        return read_order(Path(options.order).expanduser())
    return {task: (before,) for before, task in itertools.pairwise(ids)}


def needs(options: WebOptions, request: EvaluationRequest) -> list[Requirement]:
    """What must be there before a run: browser, option files, the task file, and sites that all answer."""
    verified = [requirement_of("webarena-verified", lambda: published_tasks(options.verified))]
    return [
        *of_browser.needs(options),
        *(verified if options.verified else []),
        requirement_of("tasks", lambda: read_records(_file(options, request))),
        requirement_of("sites", lambda: _answer(_sites(options))),
    ]


def identity(options: WebOptions, request: EvaluationRequest) -> dict[str, Any]:
    """Return the options that affect scores; the words and the scorer of WebArena-Verified by its version."""
    return of_browser.identity(options, request) | ({"verified": VERSION} if options.verified else {})


def _answer(config: SitesConfig) -> None:
    silent = sorted({url for copy in config.copies for url in copy.urls.values() if not answers(url)})
    if silent:
        raise ConnectionError(f"sites that do not answer: {', '.join(silent)}: start them, or mend --sites-file")


def unplayable(options: WebOptions, request: EvaluationRequest, tasks: Sequence[Task]) -> list[str]:
    """Messages on what prevents the run, empty if nothing does: a copy of the sites lacks a site that tasks need, or
    ``--epochs`` repeats tasks on copies that cannot be reset."""
    problems = []
    for copy in _sites(options).copies:
        lacking: dict[str, list[str]] = {}
        for task in tasks:
            for name in sites_named(task.options["record"]) - copy.urls.keys():
                lacking.setdefault(name, []).append(task.id)
        for name, ids in sorted(lacking.items()):
            who = f"{len(ids)} of {len(tasks)} tasks have to do with {name}, such as {ids[0]}"
            what = "name one in --sites-file, or choose other --tasks"
            problems.append(f"{who}, and site set {copy.name!r} has no address for it: {what}")
    lanes = min((task.lanes for task in tasks if task.lanes), default=0)
    without = [copy.name for copy in _sites(options).lasting if not copy.reset]
    if lanes and without and request.epochs > lanes:
        problems.append(
            f"--epochs {request.epochs}: tasks see what earlier ones did, and site set {without[0]!r} cannot be reset "
            "between epochs: give each set a reset command in --sites-file, or give --order any"
        )
    return problems


def departures(options: WebOptions, request: EvaluationRequest, tasks: Sequence[Task]) -> list[str]:
    """How this run differs from the published protocol (truncation, replay, task order, hosts); empty if nowhere."""
    notes = of_browser.departures(options)
    if request.recording:
        notes.append("recorded actions are on elements of the same words, since ids are another browser's")
    if options.order == ANY_ORDER and not all(one.reset_each for one in _sites(options).copies):
        notes.append("in any order, on sites that keep what was done to them")
    for copy in _sites(options).copies:
        hosts: dict[str, list[str]] = {}
        for name, url in sorted(copy.urls.items()):
            hosts.setdefault(urlsplit(url).hostname or "", []).append(name)
        shared = sorted(name for names in hosts.values() if len(names) > 1 for name in names)
        if shared:
            notes.append(f"{', '.join(shared)} of {copy.name} share a host, so their cookies may overwrite each other")
    return notes


BENCHMARKS = {
    "standin": STANDIN,
    "webarena": Benchmark(
        WebOptions,
        load,
        REPLY_TOKENS,
        version=4,  # words in backticks or quotes are words, as upstream reads them
        identity=identity,
        needs=needs,
        min_step_s=STEP_S,
        resources=BROWSER,
        sources=(FILE,),
        details=BenchmarkDetails(
            endpoints=of_browser.asks,
            unplayable=unplayable,
            departures=departures,
            opening=lambda task: str(task.options["record"]["intent"]),
            uses_leases=True,
            size="812 (on your own sites)",
            notes=notes,
            views=views,
            recording_format=RENDERED,
            protocol=PROTOCOL,
            about=about,
            restored_task=as_named,
        ),
    ),
}
