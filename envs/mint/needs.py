"""Requirements of MINT's subsets: data, a sandbox, a source of the search tool, and a simulated user (teacher)."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from envs.mint.tasks import example_files
from envs.mint.wording import Wording, own_wording
from envs.outside_data import GAME_IDS, GAMES, mint_tasks_file, required
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.needs import LOOK_S, Requirement, readable_file, requirement_of
from lemur_ray.benchmarks.sandboxed import sandbox_requirement

DATA = "what MINT asks"
OUR_WORDS = "told in our words, not MINT's (they are read from recorded runs, DATA/mint/outputs)"
_PROGRAMS = ("humaneval", "mbpp")
_TASKS = {
    "gsm8k": 48, "math": 100, "theoremqa": 49, "hotpotqa": 43, "mmlu": 76, "humaneval": 45, "mbpp": 91, "alfworld": 134,
}  # fmt: skip


def needs(subset: str, options: Any, request: EvaluationRequest) -> list[Requirement]:
    """Requirements of a run: data, a sandbox unless only answers are graded, search and teacher unless replayed."""
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
    """Open a search source. Raises ValueError or OSError if it is none, with the command that builds an index."""
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
    """Departure from the published runs: prompts in this project's wording. Empty with MINT's own wording."""
    ours = asdict(own_wording(subset))
    return (OUR_WORDS,) if tasks and tasks[0].options.get("wording") == ours else ()


def opening(task: Task) -> str:
    """The complete first message of a task."""
    options = task.options
    wording = Wording(**options["wording"])
    return wording.first_message(options["example"], options["prompt"], max_steps=options["max_steps"])


def size(subset: str) -> str:
    return str(_TASKS[subset])
