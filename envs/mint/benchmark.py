"""The benchmarks ``mint/<subset>`` of MINT's eight subsets: options, requirements, tasks."""

import socket
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from envs.mint.comparison import recorded_as
from envs.mint.recording import RUNS, SUBSETS
from envs.mint.run_notes import about, mint_notes, protocol
from envs.mint.tasks import example_files
from envs.mint.wording import Wording, own_wording
from envs.outside_data import GAME_IDS, GAMES, SOURCES, mint_tasks_file, required
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import LOOK_S, Requirement, readable_file, requirement_of
from lemur_ray.benchmarks.resource_request import PROGRAMS
from lemur_ray.benchmarks.sandboxed import PROGRAM_S, Sandboxed, in_sandbox, sandbox_requirement
from lemur_ray.storage.bundles.host_path import host_path_option

DATA = "what MINT asks"
OUR_WORDS = "told in our words, not MINT's (they are read from recorded runs, DATA/mint/outputs)"
_PROGRAMS = ("humaneval", "mbpp")
_TASKS = {
    "gsm8k": 48, "math": 100, "theoremqa": 49, "hotpotqa": 43, "mmlu": 76, "humaneval": 45, "mbpp": 91, "alfworld": 134,
}  # fmt: skip


def needs(subset: str, options: Any, request: EvaluationRequest) -> list[Requirement]:
    """Requirements to check before a run of ``mint/<subset>``: data, a sandbox unless only answers are graded, search
    source and teacher unless replayed."""
    required = _files(subset, options, request)
    only_graded = request.recording is not None and request.mode == "grading" and subset not in (*_PROGRAMS, "alfworld")
    if not only_graded:
        required.append(sandbox_requirement(options))
    if request.recording is None:
        required += _search(options.wikipedia)
        if options.feedback != "none":
            required.append(requirement_of("teacher", partial(_teacher, options)))
    return required


def _files(subset: str, options: Any, request: EvaluationRequest) -> list[Requirement]:
    if request.data is None:
        return [requirement_of("data", partial(request.data_folder, DATA))]
    names = [GAMES, GAME_IDS] if subset == "alfworld" else [mint_tasks_file(subset)]
    names += example_files(subset, with_feedback=options.feedback != "none")
    return [requirement_of(name, partial(required, request.data, name)) for name in names]


def _search(source: str) -> list[Requirement]:
    if source == "live":
        return [requirement_of("search", _wikipedia_answers)]
    return [] if source == "none" else [requirement_of("search", partial(_open_source, source))]


def _open_source(source: str) -> None:
    """Open a search source. Raises ValueError or OSError if that fails, with the command that builds an index."""
    from envs.mint.sources import wikipedia_of

    try:
        wikipedia_of(source)
    except OSError as error:
        raise OSError(f"--wikipedia {source}: {error}") from error


def _wikipedia_answers() -> None:
    from envs.mint.search.wikipedia import LiveWikipedia

    host = str(urlsplit(LiveWikipedia().endpoint).hostname)
    try:
        socket.create_connection((host, 443), LOOK_S).close()
    except OSError as error:
        raise OSError(
            f"--wikipedia live: {host} is not reached ({error}); index:FILE needs no network "
            "(jobs/index_wikipedia.py --dump DUMP)"
        ) from error


def _teacher(options: Any) -> None:
    """Check the teacher option. Raises ValueError, FileNotFoundError. An endpoint's form is checked, not its answer."""
    from envs.mint.sources import teacher_of

    source, _, file = options.teacher.partition(":")
    if source == "log" and (problem := readable_file("--teacher log", Path(file).expanduser()).missing()):
        raise FileNotFoundError(problem)
    teacher_of(options.teacher, options.feedback, options.ground_truth)


def departures(subset: str, options: Any, request: EvaluationRequest, tasks: Sequence[Task]) -> tuple[str, ...]:
    """How prompts of ``subset`` depart from the published runs: a note if they have this project's wording."""
    return (OUR_WORDS,) if tasks and tasks[0].options.get("wording") == asdict(own_wording(subset)) else ()


def opening(task: Task) -> str:
    """The complete first message that a model gets for a task: instruction, tools, example and question."""
    options = task.options
    wording = Wording(**options["wording"])
    return wording.first_message(options["example"], options["prompt"], max_steps=options["max_steps"])


@dataclass(frozen=True)
class MintOptions(Sandboxed):
    """Command-line options of MINT: graders, feedback of a simulated user, source of the search tool, and how replies
    are parsed."""

    grader: Literal["auto", "mint-2023", "strict"] = "auto"
    """Grader whose verdict ends an episode; both are reported. auto: mint-2023 for a replay, else strict."""
    option_rule: Literal["legacy", "head"] = "legacy"
    """How mint-2023 grades TheoremQA's options: legacy, as in published runs; head, as upstream since 2023-10-11."""
    feedback: Literal["none", "textual", "binary"] = "none"
    """Feedback of a simulated user after every turn."""
    teacher: str = ""
    """Source of the feedback, openai:URL#MODEL or log:FILE. In a replay it is the recorded one."""
    ground_truth: bool = False
    """Whether the simulated user knows the solution."""
    wikipedia: str = "none"
    """Source of the search tool: none, live, index:FILE, answers:FILE. In a replay the recorded answers."""
    parser: Literal["tags", "lenient"] = "tags"
    """lenient also accepts fenced code and CodeLlama's tag as code to run."""

    def judged_by(self, request: EvaluationRequest) -> str:
        """The grader whose verdict ends episodes; for ``auto``, mint-2023 in a replay, else strict."""
        return ("strict" if request.recording is None else "mint-2023") if self.grader == "auto" else self.grader


def _load(subset: str, options: MintOptions, request: EvaluationRequest) -> Iterable[Task]:
    from envs.mint.sources import check_sources
    from envs.mint.tasks import load_mint_tasks, recorded_tasks, replay_options

    data = request.data_folder(DATA)
    of_env = _env_options(options, request)
    recording = None
    if request.recording is not None:
        recording = recorded_as(subset).read(request.recording)
        of_env |= replay_options(request.recording, recording, strict=request.mode == "strict")
    check_sources(subset, of_env)
    tasks = load_mint_tasks(subset, data, options=of_env)
    if recording is not None:
        tasks = recorded_tasks(tasks, recording, request.recording)
    return in_sandbox(tasks, options)


def _env_options(options: MintOptions, request: EvaluationRequest) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(options).items() if name != "sandbox"}
    files = {
        "teacher": host_path_option(options.teacher, "log"),
        "wikipedia": host_path_option(options.wikipedia, "index", "answers", "log"),
    }
    return {**fields, **files, "grader": options.judged_by(request)}


def _asks(options: MintOptions) -> tuple[str, ...]:
    return (options.teacher,) if options.feedback != "none" and options.teacher.startswith("openai:") else ()


def _same_goal(task: Task) -> str:
    """Goal of an ALFWorld task, its id without the trial, since several games share a goal. Empty for other subsets."""
    return task.id.partition("/")[0] if task.benchmark == "mint/alfworld" else ""


def _identity(options: MintOptions, request: EvaluationRequest) -> dict[str, Any]:
    fields = {**asdict(options), "judged_by": options.judged_by(request)}
    del fields["grader"]
    return fields


BENCHMARKS = {
    subset: Benchmark(
        MintOptions,
        partial(_load, subset),
        {"full": 512, "brief": 512},
        identity=_identity,
        stop=("\nObservation:", "\nExpert feedback:", "\nTask:", "\n---"),
        needs=partial(needs, subset),
        min_step_s=PROGRAM_S,
        resources=PROGRAMS,
        sources=SOURCES[f"mint/{subset}"],
        details=BenchmarkDetails(
            cluster=_same_goal,
            notes=mint_notes,
            endpoints=_asks,
            departures=partial(departures, subset),
            opening=opening,
            size=str(_TASKS[subset]),
            recording_format=recorded_as(subset),
            published_runs=RUNS,
            settings={"grader": "mint-2023"},
            teacher_settings={"feedback": "textual"},
            about=partial(about, subset),
            protocol=protocol(subset),
            replay_mode="grading",
        ),
    )
    for subset in SUBSETS
}
