"""Options of all browser benchmarks, their requirements, and the conversion of WebArena's records into tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from envs.webarena.browser.chromium import executable
from envs.webarena.evaluators.evaluate import Rules
from envs.webarena.judging import PREFIX
from envs.webarena.prompts.wording import MAX_TOKENS, cut_of, read_prompt
from envs.webarena.site_set import Record
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import EvaluationRequest, Prompt, all_options, file_option, location_option
from lemur_ray.benchmarks.needs import Requirement, requirement_of
from lemur_ray.storage.bundles.host_path import HostOnly, HostPath

REPLY_TOKENS: Mapping[Prompt, int] = {"full": 384, "brief": 384}
STEP_S = 60.0
"""Seconds within which a step always ends: the action, the wait, and a check of a browser that does not answer."""
MAX_STEPS = 30


@dataclass(frozen=True)
class BrowserOptions:
    """Options of all browser benchmarks: language of actions, form of prompt and observation, judge, browser, and what
    is stored."""

    actions: Literal["symbolic", "python"] = "symbolic"
    """Language in which the model writes actions: symbolic, click [12], or python, click(id=12)."""
    evaluator: Rules = "upstream"
    """upstream: scores, parses and observes as WebArena's code does, bugs included. strict: without its bugs."""
    axtree_compat: Literal["2023", "raw"] = "2023"
    """2023: accessibility trees without what newer Chromium adds; raw: as Chromium gives them, several times longer."""
    reasoning: bool = True
    """Ask the model to think before its action."""
    hint: bool = True
    """State in the prompt that impossible tasks are answered N/A."""
    examples: int = 2
    """Number of worked examples in the prompt, at most 3."""
    prompt_file: str = file_option()
    """A prompt file of WebArena (JSON with intro, examples, template) that replaces the project's prompt."""
    repeating: int = 3
    """Number of equal actions that end an episode: in a row, or anywhere for typing."""
    wait_s: float = 2.0
    """Seconds to wait at the start and after every action."""
    observation_tokens: int = MAX_TOKENS
    """Maximum tokens of an observation; the rest is cut off."""
    tokenizer: str = file_option()
    """tokenizer.json of the served model, to count an observation's tokens. Empty: three characters a token."""
    judge: str = "none"
    """Judge of answers that rules cannot score: none, openai:URL#MODEL, or replay (the answers in judge_file)."""
    judge_file: str = location_option()
    """File in which a judge's answers are stored and replayed."""
    chromium_executable: str = location_option()
    """Program of the browser. Empty: the Chromium or Chrome on the PATH."""
    artefacts: str = location_option()
    """Folder in which each episode stores its network log (HAR) and its accessibility trees. Empty: none."""
    screenshots: bool = location_option(False, stored_as=bool)
    """Also store a screenshot of every observation in the folder of artefacts. Those shown to the model always are."""
    marks: bool = False
    """Show the model a screenshot with each observation, its actionable elements framed and numbered by their ids (set
    of marks). For models that take images."""
    image: bool = False
    """Show the model a screenshot with each observation, as the browser shows the page. For models that take images."""

    def __post_init__(self) -> None:
        for name, least in {"observation_tokens": 16, "repeating": 1, "examples": 0}.items():
            if (value := getattr(self, name)) < least:
                raise ValueError(f"--{name.replace('_', '-')} {value}: expected {least} or more")
        if self.examples > 3:
            raise ValueError(f"--examples {self.examples}: there are 3")
        if not 0 <= self.wait_s <= 20:
            raise ValueError(f"--wait-s {self.wait_s:g}: expected 0 to 20 seconds")
        if self.judge not in ("none", "replay") and not (self.judge.startswith(PREFIX) and "#" in self.judge):
            raise ValueError(f"--judge {self.judge}: expected none, replay or openai:URL#MODEL")
        if self.judge == "replay" and not self.judge_file:
            raise ValueError("--judge replay: expected --judge-file, the answers to replay")
        if self.marks and self.image:
            raise ValueError("--marks --image: expected one of them, a screenshot with frames and ids or one without")
        if self.screenshots and not self.artefacts:
            raise ValueError("--screenshots: expected --artefacts, the folder to keep them in")


def playing(options: BrowserOptions, request: EvaluationRequest) -> dict[str, Any]:
    """The options of ``reset`` that all tasks share, without record and sites. Paths become ``HostPath`` or
    ``HostOnly``, so that they can be sent to other hosts or refuse it."""
    values = {name: getattr(options, name) for name in _NAMES - {"actions"}}
    read = ("prompt_file", "tokenizer", *(["judge_file"] if options.judge == "replay" else []))
    values |= {name: HostPath(values[name]) for name in read if values[name]}
    values |= {
        name: HostOnly(values[name], why) for name, why in _OF_ONE_HOST.items() if values[name] and name not in read
    }
    return {**values, "language": options.actions, "prompt": request.prompt}


_ALONE = "play on the driver's host alone (--actors 0)"
_OF_ONE_HOST = {
    "artefacts": f"--artefacts is a folder of the driver's host, others would write to theirs: {_ALONE}",
    "judge_file": "--judge-file is written to on the driver's host, and judges are asked on others, too: "
    f"{_ALONE}; with --judge replay it is read on every host",
    "chromium_executable": "--chromium-executable is a program of the driver's host: leave it out, so that each host "
    f"takes the chromium on its own PATH, or {_ALONE}",
}
_NAMES = {f.name for f in fields(BrowserOptions)}


def task_of(record: Record, benchmark: str, env_id: str, more: Mapping[str, Any], after: tuple[str, ...] = ()) -> Task:
    """Convert a WebArena record into a task. ``more``: further options of ``reset``. ``after``: ids that end first."""
    template = record.get("intent_template_id")
    return Task(
        benchmark,
        str(record["task_id"]),
        env_id,
        "+".join(record["sites"]),
        {"record": record, **more, "reference": str(record["eval"].get("reference_answer_raw_annotation") or "")},
        max_turns=MAX_STEPS,
        cluster="" if template is None else f"template {template}",
        after=after,
    )


def identity(options: BrowserOptions, request: EvaluationRequest) -> dict[str, Any]:
    """Return the options that affect scores, to identify a run; files count by their content, not their path."""
    fields = all_options(options, request)
    lately = ("marks", "image")  # options that earlier versions lack
    return {name: value for name, value in fields.items() if value or name not in lately}


def asks(options: BrowserOptions) -> tuple[str, ...]:
    """The model endpoints that episodes query, as values of ``--teacher``: the judge's, or none."""
    return (options.judge,) if options.judge.startswith(PREFIX) else ()


def needs(options: BrowserOptions) -> list[Requirement]:
    """Return what to check before a run: Playwright, Chromium, and the prompt and tokenizer files named in options."""
    required = [
        requirement_of("playwright", _playwright),
        requirement_of("chromium", lambda: executable(options.chromium_executable)),
    ]
    if options.prompt_file:
        required.append(requirement_of("prompt", lambda: read_prompt(Path(options.prompt_file))))
    if options.tokenizer:
        required.append(requirement_of("tokenizer", lambda: cut_of(options.tokenizer)("")))
    return required


def _playwright() -> None:
    from importlib.util import find_spec

    if find_spec("playwright") is None:
        raise ModuleNotFoundError("playwright, which drives the browser, is missing: pip install 'lemur-ray[web]'")


def departures(options: BrowserOptions) -> list[str]:
    """Return a note if observations are truncated by characters: without a tokenizer and without a prompt file."""
    if options.tokenizer or options.prompt_file:
        return []
    return [f"observations cut at {3 * options.observation_tokens} characters, no --tokenizer"]
