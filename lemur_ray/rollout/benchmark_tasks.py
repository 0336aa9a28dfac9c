"""A benchmark's side of an evaluation: its flags among the common ones, its tasks, and how both are kept in a file.

Benchmarks are found by name; this file names none. Plays nothing.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest, Prompt, check_options, storable_options
from lemur_ray.benchmarks.discovery import belongs_to_another, find
from lemur_ray.benchmarks.task_validation import validated_tasks
from lemur_ray.config import from_dict, parse
from lemur_ray.host.home import outside_data
from lemur_ray.rollout.evaluation_config import EvalConfig, Settings, settings_of
from lemur_ray.rollout.schedule.task_selection import select_tasks

Config = EvalConfig[Any]


def parse_evaluation(argv: Sequence[str], default: str, options_there: Mapping[str, Any] | None = None) -> Config:
    """A command line whose flags are the common ones and those of the benchmark that it names, or of ``default``.

    ``options_there``: of the benchmark and of every evaluation, where the command line says nothing and the defaults
    are not meant.

    Ends the process with code 2 where a flag or value is refused. Raises ValueError for an unknown benchmark.
    """
    name = _value_of("--benchmark", argv) or default
    options = options_of(name, find(name))
    kind: Any = EvalConfig[options]  # type: ignore[valid-type]
    own = {f.name for f in fields(options)}
    there = dict(options_there or {})
    meant = options(**{key: there.pop(key) for key in own & there.keys()})
    start: Config = EvalConfig(options=meant, benchmark=name, **there)
    found: Config = parse(kind, argv, default=start, bare_flags=True, flat=True)
    return found


def parse_one_of_many(argv: Sequence[str], name: str, options_there: Mapping[str, Any] | None = None) -> Config:
    """As ``parse_evaluation``, of one of many benchmarks that get the same command line: a value that this one refuses
    is a ValueError and ends nothing. A flag or value that is none for anybody ends the process all the same."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parse_evaluation([*argv, "--benchmark", name], name, options_there)
    except SystemExit as ended:
        if refused := _refusal(ended):
            raise refused from None
        print(said.getvalue(), end="", file=sys.stderr, flush=True)
        raise


def _refusal(ended: BaseException) -> ValueError | None:
    """What a configuration said of a value that it refused, of which the command line made the end of the process."""
    error = ended.__cause__ or ended.__context__
    while error is not None:
        if isinstance(error, ValueError) and str(error).startswith("--"):
            return error
        error = error.__cause__ or error.__context__
    return None


def arguments_for(argv: Sequence[str], ours: set[str], every: set[str]) -> list[str]:
    """A command line for many benchmarks as it is for one: without the flags, and their values, of others alone.

    ``ours``: names of its options; ``every``: of all of theirs.
    """
    kept: list[str] = []
    keeps = True
    for word in argv:
        if word.startswith("--"):
            name = word[2:].partition("=")[0].replace("-", "_")
            known = {name, name.removeprefix("no_")}
            keeps = bool(known & ours) or not known & every
        if keeps:
            kept.append(word)
    return kept


def options_of(name: str, benchmark: Benchmark[Any]) -> type[Any]:
    """The type of a benchmark's options. Raises ValueError where one hides a field of the evaluation or is required."""
    check_options(name, benchmark.options)
    common = {f.name for f in fields(EvalConfig)}
    if hidden := sorted(common & {f.name for f in fields(benchmark.options)}):
        raise ValueError(f"{name}: its options {', '.join(hidden)} hide fields of the evaluation: rename them")
    return benchmark.options


def asked_of(config: Config, benchmark: Benchmark[Any], prompt: Prompt, recording: str = "") -> EvaluationRequest:
    """What the benchmark is told besides its options."""
    mode = config.replay if config.replay != "auto" else benchmark.details.replay_mode
    return EvaluationRequest(
        outside_data(config.data), prompt, Path(recording) if recording else None, mode, config.epochs
    )


def tasks_and_settings(
    config: Config, benchmark: Benchmark[Any], knows_our_words: bool = False, recording: str = "", replies: str = ""
) -> tuple[list[Task], Settings]:
    """What is played, and what of the configuration changes the numbers. Raises as ``load_tasks``.

    ``knows_our_words``: whether the model was tuned on brief prompts. ``recording``: the file that is replayed,
    ``replies``: that is graded again.
    """
    prompt: Prompt = config.prompt if config.prompt != "auto" else "brief" if knows_our_words else "full"
    asked = asked_of(config, benchmark, prompt, recording)
    tasks, data = select_tasks(available_tasks(config, benchmark, asked), config)
    identity = benchmark.identity_of(config.options, asked, config.replay)
    tokens, stop = benchmark.max_tokens[prompt], benchmark.stop
    return tasks, settings_of(config, prompt, tokens, data, identity, stop, recording, replies)


def available_tasks(config: Config, benchmark: Benchmark[Any], asked: EvaluationRequest) -> list[Task]:
    """All tasks, of which those that are played are chosen; of a benchmark that makes them, and where the first ones
    are asked for, no more than are asked for.

    Raises ValueError, or FileNotFoundError where data is gone.
    """
    most = config.limit or benchmark.default_limit if benchmark.default_limit else None
    if config.sample == "first" and config.limit and not config.tasks:
        most = config.limit
    found = list(validated_tasks(config.benchmark, lambda: benchmark.load(config.options, asked), most))
    for said in dict.fromkeys(task.benchmark for task in found):
        if belongs_to_another(said, config.benchmark, benchmark):
            raise ValueError(
                f"{config.benchmark}: its tasks say that they are of {said}, which is another benchmark: give them a "
                "name of their own"
            )
    return found


def load_tasks(config: Config, benchmark: Benchmark[Any], asked: EvaluationRequest) -> list[Task]:
    """The tasks that are to be played. Raises as ``available_tasks``, and OSError for a file of ids."""
    return select_tasks(available_tasks(config, benchmark, asked), config)[0]


def tasks_of(config: Config, prompt: Prompt) -> list[Task]:
    """The tasks of a stored evaluation. Raises as ``load_tasks``."""
    benchmark = find(config.benchmark)
    return load_tasks(config, benchmark, asked_of(config, benchmark, prompt))


def to_json(config: Config) -> dict[str, Any]:
    """A configuration as it may be written down."""
    return {**asdict(replace(config, options=None)), "options": storable_options(config.options)}


def from_json(stored: Mapping[str, Any]) -> Config:
    """Inverse of ``to_json`` but for what must not be written down. Takes the flat form of earlier versions, too.

    Raises ValueError where the benchmark is gone or does not know an option.
    """
    options = options_of(stored["benchmark"], find(stored["benchmark"]))
    known = {f.name for f in fields(options)}
    own = stored["options"] if "options" in stored else {k: v for k, v in stored.items() if k in known}
    own = {name: value for name, value in own.items() if name not in getattr(options, "GONE", ())}
    common = {f.name for f in fields(EvalConfig)} - {"options"}
    values = {name: value for name, value in stored.items() if name in common}
    if values.get("limit"):
        values = {"sample": "first", **values}  # there was nothing else before samples
    return EvalConfig(options=from_dict(options, own), **values)


def _value_of(flag: str, argv: Sequence[str]) -> str:
    """The last value that a command line gives a flag; empty where it does not."""
    found = ""
    for place, word in enumerate(argv):
        if word.startswith(f"{flag}="):
            found = word.removeprefix(f"{flag}=")
        elif word == flag and place + 1 < len(argv):
            found = argv[place + 1]
    return found
