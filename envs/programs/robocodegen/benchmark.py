"""RoboCodeGen (Liang et al. 2023, Code as Policies, arXiv 2209.07753): ``robocodegen``, tasks ``robocodegen/<name>``.

Data below ``DATA``: ``robocodegen/problems.json``, the 37 problems with inputs and expected outputs, without those that
have no tests; else the published notebook, whose problems get inputs of the project's (``notebook.py``). The prompt,
recursion and number of turns behind the paper's 28 of 37 are not published, so every page names the variant. This data
set assigns the labels spatial, geometric and controls."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from envs.outside_data import SETS
from envs.programs.robocodegen.env import MOST_FUNCTIONS
from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest, file_option
from lemur_ray.benchmarks.needs import Requirement
from lemur_ray.benchmarks.protocol_options import OneProtocol, single_protocol_identity
from lemur_ray.benchmarks.question import QuestionDetails, question
from lemur_ray.benchmarks.resource_request import PROGRAMS
from lemur_ray.benchmarks.rows import files_digest, find_file, read_text, read_value
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription, protocol_settings
from lemur_ray.benchmarks.sandboxed import PROGRAM_S, Sandboxed, first_task_loads_in_sandbox

NOTEBOOK = "robocodegen/benchmark.ipynb"
FILES = ["robocodegen/problems.json", NOTEBOOK]
SOURCE = (
    "RoboCodeGen: the notebook of code_as_policies of google-research/google-research (Apache-2.0), or its problems as "
    "JSON with inputs and expected outputs; python jobs/fetch_data.py robocodegen"
)
SOURCES = SETS["robocodegen"]
_FIELDS = ("name", "suite", "prompt", "check", "tests")
ENV_ID = "envs:lemur/RoboCodeGen-v0"
WORDS = {
    "tries": ("{value} tries with tracebacks", "one try"),
    "recursion": ("recursion", "no recursion"),
    "compat": ("inputs and comparison as published", "the project's inputs"),
    "examples_file": ("examples of a file", "the project's examples"),
}
"""Descriptions of the settings that make a variant, for report pages."""
EXAMPLES = Path(__file__).with_name("worked_examples.txt")
"""The project's worked examples, in the published form, which precede the function that a model is to write. Their
functions are defined when an answer runs. The authors' text is no part of it; --examples-file reads it."""
STOPS = ("# define function:", "# example:")
REQUEST = (
    "Write this function. Reply with its code in a fenced block. np and the names of shapely.geometry and "
    "shapely.affinity are there already: code in which the word import or two underscores stand is not run.\n\n"
)


@dataclass(frozen=True)
class RoboCodeGenOptions(OneProtocol, Sandboxed):
    """Command-line options of RoboCodeGen: worked examples, number of attempts, recursion over undefined functions, and
    the published notebook's comparison (``compat``) with its seed."""

    examples_file: str = file_option()
    """A file with worked examples that replaces the project's. Its functions are available to answers."""
    tries: int = 1
    """Number of attempts: after an exception the model gets its traceback and rewrites the function. More than 1
    only with --form chat."""
    recursion: bool = False
    """Ask the model for undefined functions that its answer calls, one in a turn. Only with --form chat."""
    compat: bool = False
    """Draw inputs and compare results as the published notebook does, faults included; see --draw-seed."""
    draw_seed: int = 0
    """Seed of the inputs, with --compat."""

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"--tries {self.tries}: expected 1 or more")
        if self.draw_seed < 0 or (self.draw_seed and not self.compat):
            raise ValueError(f"--draw-seed {self.draw_seed}: expected 0 or more, and --compat, whose inputs are drawn")
        if self.raw and (self.tries > 1 or self.recursion):
            raise ValueError("--tries and --recursion go on with a conversation: give --form chat")
        if self.examples_file and not Path(self.examples_file).is_file():
            raise ValueError(f"--examples-file {self.examples_file}: no such file")


def _load(options: RoboCodeGenOptions, request: EvaluationRequest) -> Iterator[Task]:
    path = find_file(request.data_folder("what RoboCodeGen asks"), FILES, SOURCE)
    data = _data(path)
    files = [path, *([Path(options.examples_file)] if options.examples_file else [])]
    examples = read_text(files[-1] if options.examples_file else EXAMPLES)
    objects, data_id = data["scene"]["get_obj_outer_pts_np"], files_digest(*files)
    for problem in _playable(options, data)[0]:
        reference = {name: problem[name] for name in ("name", "check", "tests")}
        reference |= {"helpers": examples.partition("# example:")[0], "scene": data["scene"]}
        details = QuestionDetails(
            f"{examples}\n", options.raw, stop=STOPS if options.raw else (), backend=options.sandbox, data=data_id,
            gold=_gold(problem["name"], objects, options),
        )  # fmt: skip
        name, prompt = f"robocodegen/{problem['name']}", ("" if options.raw else REQUEST) + problem["prompt"]
        grade = "envs.programs.robocodegen.results:grade"
        task = question("robocodegen", name, problem["suite"], prompt, grade, reference, details)
        yield _as_conversation(task, options) if options.tries > 1 or options.recursion else task


def _gold(name: str, objects: Mapping[str, Any], options: RoboCodeGenOptions) -> str | None:
    if _without_shapely():
        return None
    from envs.programs.robocodegen.golds import gold  # needs shapely

    code = gold(name, objects)
    return code if options.raw or code is None else f"```python\n{code}\n```"


def _data(path: Path) -> dict[str, Any]:
    if path.name.removesuffix(".gz").endswith(".ipynb"):
        from envs.programs.robocodegen.notebook import read_notebook  # needs shapely

        return read_notebook(path)
    data = read_value(path)
    problems = data.get("problems") if isinstance(data, dict) else None
    if not isinstance(problems, list) or "get_obj_outer_pts_np" not in (data.get("scene") or {}):
        raise ValueError(f"{path}: not RoboCodeGen's problems: expected an object with problems and a scene")
    for number, problem in enumerate(problems):
        if missing := [name for name in _FIELDS if not isinstance(problem, dict) or name not in problem]:
            raise ValueError(f"{path}, problem {number}: no {', '.join(missing)}")
    return dict(data)


def _playable(options: RoboCodeGenOptions, data: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """(problems with tests that can be graded, names of those with tests that cannot, only with --compat)."""
    tested = [problem for problem in data["problems"] if problem["tests"]]
    if not options.compat:
        return tested, []
    from envs.programs.robocodegen.upstream_draws import as_published

    scene = data["scene"]["get_obj_outer_pts_np"]
    drawn = {problem["name"]: as_published(problem, scene, options.draw_seed) for problem in tested}
    return [one for one in drawn.values() if one], [name for name, one in drawn.items() if not one]


def _as_conversation(task: Task, options: RoboCodeGenOptions) -> Task:
    turns = options.tries * (1 + (MOST_FUNCTIONS if options.recursion else 0))
    more = {"tries": options.tries} | ({"recursion": True} if options.recursion else {})
    return replace(task, env_id=ENV_ID, options={**task.options, **more}, max_turns=turns)


def _identity(options: RoboCodeGenOptions, request: EvaluationRequest) -> dict[str, Any]:
    """Settings that identify an evaluation; options added later are left out if they have their default."""
    added_later = {"tries": 1, "recursion": False, "compat": False, "draw_seed": 0}
    fields = single_protocol_identity(options, request)
    return {name: value for name, value in fields.items() if value != added_later.get(name, ...)}


def _departures(options: RoboCodeGenOptions, request: EvaluationRequest, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Departures from the published benchmark: problems that are left out, and inputs of the project's."""
    path = find_file(request.data_folder("what RoboCodeGen asks"), FILES, SOURCE)
    data = _data(path)
    problems = data["problems"]
    untested = sum(not problem["tests"] for problem in problems)
    departures = [f"{untested} of {len(problems)} problems have no tests and are left out"] if untested else []
    if not options.compat and path.name.removesuffix(".gz").endswith(".ipynb"):
        departures.append("inputs and expected results of the project's own")
    if other := _playable(options, data)[1]:
        names = ", ".join(other)
        departures.append(f"left out, since the data expects other results than the project's reference: {names}")
    return tuple(departures)


def _needs(options: RoboCodeGenOptions, request: EvaluationRequest) -> list[Requirement]:
    return [*first_task_loads_in_sandbox(_load)(options, request), Requirement("shapely", _without_shapely)]


def _without_shapely() -> str | None:
    return None if find_spec("shapely") else "shapely is not installed: pip install 'lemur-ray[robocodegen]'"


def _about(run: EvaluationRun) -> RunDescription:
    unpublished = "The paper publishes neither its prompt nor the number of turns: compare with care."
    settings = run.settings
    given = [(settings.get(name), *words) for name, words in WORDS.items()]
    variant = ", ".join((there if value else absent).format(value=value) for value, there, absent in given)
    limits = (f"{unpublished} Played: {variant}.",) if settings else (unpublished,)
    return RunDescription(
        protocol=protocol_settings(run), words=WORDS, limits=limits, beside=limits, column="RoboCodeGen"
    )


def _further(run: EvaluationRun) -> Sequence[str]:
    return [] if run.settings.get("compat") else [WORDS["compat"][1]]


_DETAILS = BenchmarkDetails(
    "37", departures=_departures, file_patterns=tuple(FILES), about=_about,
    protocol=published_protocol("robocodegen", further=_further),
)  # fmt: skip
BENCHMARKS = {
    "": Benchmark(
        RoboCodeGenOptions, _load, {"full": 512, "brief": 512}, identity=_identity, needs=_needs,
        # results, refused imports; results that numpy takes for arrays; draws as they were published
        version=lambda options: 4 if options.compat else 3,
        min_step_s=PROGRAM_S, resources=PROGRAMS, sources=SOURCES, details=_DETAILS,
    )
}  # fmt: skip
