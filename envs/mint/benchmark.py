"""The benchmarks ``mint/<subset>`` of MINT's eight subsets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from envs.mint.comparison import recorded_as
from envs.mint.needs import DATA, departures, needs, opening, size
from envs.mint.recording import RUNS, SUBSETS
from envs.mint.run_notes import about, mint_notes
from envs.outside_data import SOURCES
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.resource_request import PROGRAMS
from lemur_ray.benchmarks.sandboxed import PROGRAM_S, Sandboxed, in_sandbox
from lemur_ray.storage.bundles.host_path import host_path_option


@dataclass(frozen=True)
class MintOptions(Sandboxed):
    """Command-line options of MINT."""

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
        """The grader's name, with ``auto`` resolved for the request."""
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
            size=size(subset),
            recording_format=recorded_as(subset),
            published_runs=RUNS,
            settings={"grader": "mint-2023"},
            teacher_settings={"feedback": "textual"},
            about=about(subset),
            replay_mode="grading",
        ),
    )
    for subset in SUBSETS
}
