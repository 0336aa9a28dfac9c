"""A benchmark's part of an evaluation: command-line flags, selected tasks, and its configuration as JSON."""

import contextlib
import io
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest, Prompt, check_options, storable_options
from lemur_ray.benchmarks.discovery import belongs_to_another, find, own_code
from lemur_ray.benchmarks.task_validation import validated_tasks
from lemur_ray.config import from_dict, parse
from lemur_ray.config.config_file import take_config
from lemur_ray.host.home import outside_data
from lemur_ray.rollout.evaluation_config import EvalConfig, Settings, settings_of
from lemur_ray.rollout.schedule.task_selection import select_tasks

Config = EvalConfig[Any]
PROTOCOL = "--protocol"


def parse_evaluation(argv: Sequence[str], default: str, defaults: Mapping[str, Any] | None = None) -> Config:
    """Parse a command line with the common flags and those of the benchmark in --benchmark, else of ``default``. Flags
    may also be in the file of ``--config``. ``defaults``: values of benchmark options or common flags that replace the
    usual defaults. ``--protocol published`` sets those that the benchmark's published protocol prescribes, and prints
    it. Ends the process with code 2 on an invalid flag or value. Raises ValueError for an unknown benchmark."""
    words, file = take_config(argv)
    name = _value_of("--benchmark", words) or str(file.values.get("benchmark") or default)
    options = options_of(name, find(name))
    if protocol := _value_of(PROTOCOL, words):
        words = [
            word
            for word, before in zip(words, ["", *words], strict=False)
            if word.partition("=")[0] != PROTOCOL and before != PROTOCOL
        ]
        prescribed = _published_settings(name, protocol)
        for key in prescribed:  # --protocol is a flag of the command line, which overrides the file of --config
            file.values.pop(key, None)
        defaults = {**prescribed, **(defaults or {})}
    kind: Any = EvalConfig[options]  # type: ignore[valid-type]
    own = {f.name for f in fields(options)}
    start_values = dict(defaults or {})
    own_values = options(**{key: start_values.pop(key) for key in own & start_values.keys()})
    start: Config = EvalConfig(options=own_values, benchmark=name, **start_values)
    config: Config = parse(kind, words, default=start, flat=True, file=file)
    return config


def _published_settings(name: str, protocol: str) -> Mapping[str, Any]:
    """The settings of a benchmark's published protocol, which is printed. Raises ValueError for another value."""
    if protocol != "published":
        raise ValueError(f"{PROTOCOL} {protocol}: expected published")
    details = find(name).details
    if details.protocol is None:
        if not details.settings:
            print(f"{name} declares no published protocol: {PROTOCOL} changes nothing", file=sys.stderr, flush=True)
        return details.settings
    print(f"published protocol of {name}:", *details.protocol.lines(), sep="\n  ", file=sys.stderr, flush=True)
    return details.published_settings


def parse_one_of_many(argv: Sequence[str], name: str, defaults: Mapping[str, Any] | None = None) -> Config:
    """Like ``parse_evaluation``, for benchmark ``name``, one of several that get the same command line. ``defaults``:
    values that replace the usual defaults. Raises ValueError for a value that this benchmark refuses. Any other invalid
    flag or value ends the process."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            return parse_evaluation([*argv, "--benchmark", name], name, defaults)
    except SystemExit as ended:
        if refused := _refusal(ended):
            raise refused from None
        print(stderr.getvalue(), end="", file=sys.stderr, flush=True)
        raise


def _refusal(ended: BaseException) -> ValueError | None:
    """The ValueError of a configuration's ``__post_init__`` that made the parser end the process; None without one."""
    error = ended.__cause__ or ended.__context__
    while error is not None:
        frames = traceback.walk_tb(error.__traceback__)
        if isinstance(error, ValueError) and any(frame.f_code.co_name == "__post_init__" for frame, _ in frames):
            return error
        error = error.__cause__ or error.__context__
    return None


def arguments_for(argv: Sequence[str], ours: set[str], every: set[str]) -> list[str]:
    """The words of the command line ``argv`` without those flags, and their values, that other benchmarks have and this
    one lacks. ``ours``: names of this benchmark's options; ``every``: names of the options of all."""
    words: list[str] = []
    is_ours = True
    for word in argv:
        if word.startswith("--"):
            name = word[2:].partition("=")[0].replace("-", "_")
            known = {name, name.removeprefix("no_")}
            is_ours = bool(known & ours) or not known & every
        if is_ours:
            words.append(word)
    return words


def options_of(name: str, benchmark: Benchmark[Any]) -> type[Any]:
    """The options dataclass of the benchmark ``name``. Raises ValueError if an option has the name of a flag of all
    benchmarks, or no default."""
    check_options(name, benchmark.options)
    common = {f.name for f in fields(EvalConfig)}
    if hidden := sorted(common & {f.name for f in fields(benchmark.options)}):
        raise ValueError(f"{name}: its options {', '.join(hidden)} hide fields of the evaluation: rename them")
    return benchmark.options


def evaluation_request(
    config: Config, benchmark: Benchmark[Any], prompt: Prompt, recording: str = ""
) -> EvaluationRequest:
    """Request for ``benchmark``, beside its options: data folder, prompt ("full" or "brief"), replay mode and epochs of
    ``config``. ``recording``: file to replay, or empty."""
    mode = config.replay if config.replay != "auto" else benchmark.details.replay_mode
    return EvaluationRequest(
        outside_data(config.data), prompt, Path(recording) if recording else None, mode, config.epochs
    )


def tasks_and_settings(
    config: Config, benchmark: Benchmark[Any], knows_our_words: bool = False, recording: str = "", replies: str = ""
) -> tuple[list[Task], Settings]:
    """Returns (tasks to play, settings that their scores depend on). ``knows_our_words``: whether the model was tuned
    on brief prompts, which ``--prompt auto`` then selects. ``recording``: file to replay, ``replies``: file of replies
    to grade again; both may be empty. Raises the errors of ``tasks_of``."""
    prompt: Prompt = config.prompt if config.prompt != "auto" else "brief" if knows_our_words else "full"
    request = evaluation_request(config, benchmark, prompt, recording)
    tasks, data = select_tasks(available_tasks(config, benchmark, request), config)
    identity = {**benchmark.identity_of(config.options, request, config.replay), **own_code(config.benchmark)}
    tokens, stop = benchmark.max_tokens[prompt], benchmark.stop
    return tasks, settings_of(config, prompt, tokens, data, identity, stop, recording, replies)


def available_tasks(config: Config, benchmark: Benchmark[Any], request: EvaluationRequest) -> list[Task]:
    """The benchmark's tasks, before ``--tasks``, ``--limit`` and sampling select some. Only the first ``--limit`` are
    generated with ``--sample first``, or if the benchmark can generate any number. Raises ValueError for an invalid
    task, FileNotFoundError if data is missing."""
    most = config.limit or benchmark.default_limit if benchmark.default_limit else None
    if config.sample == "first" and config.limit and not config.tasks:
        most = config.limit
    tasks = list(validated_tasks(config.benchmark, lambda: benchmark.load(config.options, request), most))
    for name in dict.fromkeys(task.benchmark for task in tasks):
        if belongs_to_another(name, config.benchmark, benchmark):
            raise ValueError(
                f"{config.benchmark}: its tasks say that they are of {name}, which is another benchmark: give them a "
                "name of their own"
            )
    return tasks


def tasks_of(config: Config, prompt: Prompt) -> list[Task]:
    """The tasks that a stored configuration selects, with ``prompt`` "full" or "brief". Raises ValueError for an
    invalid task, FileNotFoundError for missing data, OSError if a file of task ids cannot be read."""
    benchmark = find(config.benchmark)
    return select_tasks(available_tasks(config, benchmark, evaluation_request(config, benchmark, prompt)), config)[0]


def option_names(benchmark: str) -> set[str]:
    """Names of a benchmark's own options, without the flags of all benchmarks. Raises ValueError or ImportError if
    ``benchmark`` is unknown or invalid."""
    return {f.name for f in fields(options_of(benchmark, find(benchmark)))}


def to_json(config: Config) -> dict[str, Any]:
    """An evaluation's configuration as JSON values for a run's files, without secrets (inverse: ``from_json``)."""
    return {**asdict(replace(config, options=None)), "options": storable_options(config.options)}


def from_json(stored: Mapping[str, Any]) -> Config:
    """The configuration that ``to_json`` stored, without secrets (keys of endpoints are empty); the flat form of
    earlier versions is accepted, too. Raises ValueError if the benchmark cannot be loaded or lacks a stored option."""
    options = options_of(stored["benchmark"], find(stored["benchmark"]))
    known = {f.name for f in fields(options)}
    own = stored["options"] if "options" in stored else {k: v for k, v in stored.items() if k in known}
    own = {name: value for name, value in own.items() if name not in getattr(options, "GONE", ())}
    common = {f.name for f in fields(EvalConfig)} - {"options"}
    values = {name: value for name, value in stored.items() if name in common}
    if values.get("limit"):
        values = {"sample": "first", **values}  # versions before samples took the first tasks
    return EvalConfig(options=from_dict(options, own), **values)


def _value_of(flag: str, argv: Sequence[str]) -> str:
    """The value of the last ``flag`` on a command line; empty if there is none."""
    value = ""
    for place, word in enumerate(argv):
        if word.startswith(f"{flag}="):
            value = word.removeprefix(f"{flag}=")
        elif word == flag and place + 1 < len(argv):
            value = argv[place + 1]
    return value
