"""Opens the sources that options name: Wikipedia for the search tool, and a teacher (simulated user) for feedback.

Files and indexes are opened once per process and shared by its episodes."""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from envs.mint.recording import read_recording, text_of
from envs.mint.search.wikipedia import LiveWikipedia, PageSource, RecordedAnswers, answers_of_recording, read_answers
from envs.mint.search.wikipedia_index import WikipediaIndex
from envs.mint.teacher import FeedbackKind, ModelTeacher, RecordedTeacher, Teacher
from envs.mint.tools import WIKIPEDIA, tools_of
from lemur_ray.agents.policy_spec import policy_at


def check_sources(subset: str, options: Mapping[str, Any]) -> None:
    """Check before an evaluation that its search source and teacher can be opened. Raises ValueError,
    FileNotFoundError, or another OSError of a file. Warns on stderr if a tool in the prompt has no source."""
    if options.get("feedback", "none") != "none":
        teacher_of(str(options.get("teacher", "")), options["feedback"], bool(options.get("ground_truth")))
    source = str(options.get("wikipedia", "none"))
    if wikipedia_of(source) is None and WIKIPEDIA in tools_of(subset) and options.get("tools", "run") == "run":
        print(
            f"mint/{subset}: models are told of wikipedia_search, and with --wikipedia none every call of it fails; "
            "choose live, index:FILE or answers:FILE",
            file=sys.stderr,
            flush=True,
        )


@cache
def wikipedia_of(text: str) -> PageSource | RecordedAnswers | None:
    """The source that ``text`` names: ``none`` (returns None), ``live``, ``index:FILE``, ``answers:FILE`` (lines of
    query and answer) or ``log:FILE`` (a recorded run). Raises ValueError for other texts and file formats."""
    kind, _, file = text.partition(":")
    if text == "none":
        return None
    if text == "live":
        return LiveWikipedia()
    if kind == "index" and file:
        return WikipediaIndex(Path(file))
    if kind == "answers" and file:
        return read_answers(Path(file))
    if kind == "log" and file:
        return answers_of_recording(read_recording(Path(file)))
    raise ValueError(f"option wikipedia: {text!r}, expected none, live, index:FILE, answers:FILE or log:FILE")


@cache
def recorded_observations(file: str) -> Mapping[str, tuple[str | None, ...]]:
    """Observations after each turn of the published run in ``file``, by task; empty if ``file`` is "". Raises
    FileNotFoundError, or ValueError for invalid content."""
    episodes = read_recording(Path(file)).episodes if file else {}
    return {task: tuple(text_of(turn) for turn in episode.turns) for task, episode in episodes.items()}


def teacher_of(text: str, kind: FeedbackKind, ground_truth: bool) -> Teacher:
    """Open the teacher ``openai:URL#MODEL`` or ``log:FILE``. ``kind``: of feedback; ``ground_truth``: show it the
    solution. Raises ValueError for other texts."""
    source, _, rest = text.partition(":")
    if source == "log" and rest:
        return _recorded_teacher(rest)
    url, _, model = rest.partition("#")
    if source == "openai" and url.startswith(("http://", "https://")) and model:
        return ModelTeacher(policy_at(rest, "teacher"), kind, ground_truth)
    raise ValueError(f"option teacher: {text!r}, expected openai:URL#MODEL or log:FILE")


@cache
def _recorded_teacher(file: str) -> RecordedTeacher:
    return RecordedTeacher(read_recording(Path(file)))
