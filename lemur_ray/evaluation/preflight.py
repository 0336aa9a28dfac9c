"""Preflight of an evaluation: checks everything it needs before the first paid token, and reports all problems at once.

A benchmark declares its own needs (``benchmarks/needs.py``). The needs of every evaluation are here: its policy, an
endpoint that answers, accepts the key and serves the model, room in the model's context, a writable folder. Starts no
Ray, loads no model and sends no paid request."""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import EndpointAbsent, EndpointRefused, PolicyUnreachable
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.needs import (
    LOOK_S,
    Requirement,
    exit_code_of_problems,
    missing_requirements,
    readable_file,
    requirement_of,
)
from lemur_ray.benchmarks.plugin_metadata import plugin_metadata
from lemur_ray.benchmarks.run_notes import EvaluationRun
from lemur_ray.host.home import lemur_home, resolve_out
from lemur_ray.rollout.benchmark_tasks import evaluation_request, tasks_and_settings
from lemur_ray.rollout.endpoints.evaluation_endpoints import (
    check_endpoints,
    environment_endpoints,
    policy_options,
    prepare_endpoints,
)
from lemur_ray.rollout.endpoints.policy_target import (
    parse_policy,
    pin_checkpoint,
    resolve_model,
    resolve_policy,
    served_model,
)
from lemur_ray.rollout.evaluation import EvaluationPlan
from lemur_ray.rollout.evaluation_config import EvalConfig, Settings
from lemur_ray.rollout.evaluation_folder import EvaluationError, default_out, prepare_out
from lemur_ray.rollout.ledger import LedgerError
from lemur_ray.rollout.schedule.task_selection import keep_dependencies
from lemur_ray.rollout.stored_replies import tasks_with_replies

if TYPE_CHECKING:
    from lemur_ray.serve.policy_model import PolicyModel

BYTES_PER_TOKEN = 6
"""Upper bound of the mean bytes per token of an English prompt, so that bytes / 6 is a lower bound of its tokens."""


class PreflightError(EvaluationError):
    """Raised if an evaluation cannot run here; the message lists all ``problems``, each with its remedy."""

    def __init__(self, benchmark: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        self.exit_code = exit_code_of_problems(problems)
        single = len(problems) == 1
        super().__init__(problems[0] if single else "\n- ".join([f"{benchmark} is not begun:", *problems]))


@dataclass(frozen=True)
class Prepared:
    """An evaluation that has passed its preflight. ``departures``: differences of its tasks from the original."""

    policy: PolicySpec
    tasks: Sequence[Task]
    settings: Settings
    departures: tuple[str, ...]
    out: Path

    def print_departures(self) -> dict[str, Any]:
        """Print to stderr how the tasks differ from the original benchmark. Returns {"not_as_upstream": these
        sentences} for the report; {} if there are none."""
        for departure in self.departures:
            print(f"not as upstream: {departure}", file=sys.stderr, flush=True)
        return {"not_as_upstream": list(self.departures)} if self.departures else {}

    def plan(self, config: EvalConfig[Any], benchmark: Benchmark[Any]) -> EvaluationPlan:
        """The plan of this evaluation, with the metadata to store if the benchmark is an installed one."""
        label, settings, tasks, cluster = self.policy.label, self.settings, self.tasks, benchmark.details.cluster
        run = EvaluationRun(label, settings.values, [task.id for task in tasks])
        metadata = plugin_metadata(config.benchmark, benchmark, tasks[0].benchmark, run)
        return EvaluationPlan(config, tasks, label, settings, self.out, self.departures, metadata, cluster)


def prepare(config: EvalConfig[Any], benchmark: Benchmark[Any], attach: Callable[[PolicySpec], PolicySpec]) -> Prepared:
    """Check all needs, resolve the policy and load the tasks. ``attach``: adds to a policy the application that already
    serves it, if the cluster has one. Raises PreflightError with all problems, or the only error of resolving and
    loading. Problems are ignored if nothing is left to play."""
    spec, policy_problems = _policy_spec(config, benchmark)
    asked = evaluation_request(config, benchmark, "full", spec.recording if spec else "")
    policy_problems += missing_requirements(policy_needs(config, spec))
    problems = [
        *policy_problems,
        *missing_requirements([step_need(config, benchmark), *benchmark.requirements(config.options, asked)]),
    ]
    if policy_problems or spec is None:
        raise PreflightError(config.benchmark, problems)
    try:
        spec = resolve_policy(attach(spec), lemur_home() / "runs", prepare_endpoints(config), config.chat_template)
        count_tokens, spec = _token_counter(spec, config)
        tasks, settings = tasks_and_settings(config, benchmark, spec.knows_our_words, spec.recording, spec.replies)
        tasks = keep_dependencies(tasks_with_replies(spec, tasks, config.epochs), tasks)
    except (ValueError, OSError) as error:
        if problems:
            raise PreflightError(config.benchmark, problems) from error
        raise
    if not tasks:
        raise PreflightError(config.benchmark, [*problems, f"{config.benchmark}: no tasks, so nothing to evaluate"])
    problems += benchmark.details.unplayable(config.options, asked, tasks)
    if too_long := context_problem(spec, benchmark, tasks, settings, count_tokens):
        problems.append(too_long)
    out = resolve_out(config.out, default_out(config.benchmark, spec.label))
    if problems and EvaluationPlan(config, tasks, spec.label, settings, Path(out)).num_unsettled():
        raise PreflightError(config.benchmark, problems)
    departures = tuple(benchmark.details.departures(config.options, asked, tasks))
    return Prepared(spec, tasks, settings, departures, prepare_out(out))


def _policy_spec(config: EvalConfig[Any], benchmark: Benchmark[Any]) -> tuple[PolicySpec | None, list[str]]:
    try:
        return parse_policy(config, benchmark), []
    except (EvaluationError, LedgerError, ValueError, OSError) as error:
        return None, [str(error)]


def policy_needs(config: EvalConfig[Any], spec: PolicySpec | None) -> list[Requirement]:
    """Requirements of every evaluation with this policy. ``spec``: None if --policy could not be parsed."""
    teacher_answers = partial(_check_with_key, environment_endpoints, _check_teacher, config)
    needs = [requirement_of("folder", partial(_check_writable, config.out))]
    needs.append(requirement_of("teacher's key", partial(environment_endpoints, config)))
    needs.append(requirement_of("teacher", teacher_answers))
    if spec is None:
        return needs
    may_be_served = spec.traits.by_handle and spec.target and os.environ.get("RAY_ADDRESS")
    if spec.served_here and not may_be_served:
        needs.append(requirement_of("checkpoint", partial(_policy_model, spec, config)))
    if spec.recording:
        needs.append(readable_file(f"--policy {config.policy}", Path(spec.recording)))
    policy_answers = partial(_check_with_key, policy_options, partial(_check_policy, spec), config)
    return [requirement_of("key", partial(policy_options, config)), requirement_of("endpoint", policy_answers), *needs]


def step_need(config: EvalConfig[Any], benchmark: Benchmark[Any]) -> Requirement:
    """The requirement that --step-s is at least the benchmark's minimum; otherwise a policy's slow action would count
    as a fault of the environment."""
    minimum_s = benchmark.min_step_s
    problem = (
        f"--step-s {config.step_s:g}: a policy may keep a step of {config.benchmark} busy for up to {minimum_s:g} s: "
        f"give --step-s {minimum_s:g} or more"
    )
    return Requirement("step", lambda: problem if config.step_s < minimum_s else None)


def _check_writable(out: str) -> None:
    if not out:
        return
    folder = Path(resolve_out(out, ""))
    is_new = not folder.exists()
    prepare_out(str(folder) if "://" not in out else out)
    if is_new:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _policy_model(spec: PolicySpec, config: EvalConfig[Any]) -> "PolicyModel":
    """The model that will be served for the policy, checked but not loaded. Raises EvaluationError with all faults."""
    from lemur_ray.serve.policy_model import NotServed, check_policy_model  # takes a second

    model = pin_checkpoint(resolve_model(spec.target, lemur_home() / "runs"))
    chats = spec.traits.by_handle or not getattr(config.options, "raw", False)
    try:
        return check_policy_model(model, config.chat_template, chats)
    except NotServed as error:
        raise EvaluationError(f"--policy {config.policy}: {'; '.join(error.faults)}") from error


def _token_counter(spec: PolicySpec, config: EvalConfig[Any]) -> tuple[Callable[[str], int], PolicySpec]:
    """(a function from a text to its number of tokens or a lower bound, the policy with its context length)."""
    if spec.application:
        return partial(_minimum_tokens, spec.count), spec
    if not spec.served_here:
        return partial(_endpoint_tokens, spec), spec
    model = _policy_model(spec, config)
    return model.num_tokens, replace(spec, context=model.context)


def _check_policy(spec: PolicySpec, config: EvalConfig[Any]) -> None:
    """Raise an error if the policy's endpoint does not answer, refuses the key or does not serve the model."""
    if spec.traits.asks_endpoint:
        served_model(replace(spec, options=_with_short_patience(policy_options(config))), quiet=True)


def _check_teacher(config: EvalConfig[Any]) -> None:
    for endpoint in environment_endpoints(config):
        check_endpoints(replace(endpoint, options=_with_short_patience(endpoint.options)))


def _with_short_patience(options: EndpointOptions) -> EndpointOptions:
    return replace(options, patience_s=min(LOOK_S, options.patience_s))


def _check_with_key(
    read_key: Callable[[EvalConfig[Any]], object], check: Callable[[EvalConfig[Any]], None], config: EvalConfig[Any]
) -> None:
    """Run ``check``. If ``read_key`` fails, which another requirement reports, only check that something listens."""
    try:
        read_key(config)
    except ValueError:
        try:
            check(replace(config, policy_key_env="", teacher_key_env=""))
        except EndpointAbsent:
            raise
        except (EndpointRefused, EvaluationError, ValueError):
            return
    else:
        check(config)


def context_problem(
    spec: PolicySpec,
    benchmark: Benchmark[Any],
    tasks: Sequence[Task],
    settings: Settings,
    count_tokens: Callable[[str], int],
) -> str:
    """Problem and remedy, as text, if the longest first prompt and a reply exceed the model's context; empty if they
    fit, or the context length is unknown. ``count_tokens``: number of tokens of a text. ``settings``: with the limit of
    tokens of a reply."""
    if not spec.context or not tasks:
        return ""
    task = max(tasks, key=lambda one: len(benchmark.details.opening(one)))
    prompt, reply = count_tokens(benchmark.details.opening(task)), settings.sampling.max_tokens
    if prompt + reply <= spec.context:
        return ""
    problem = (
        f"{spec.target}: the context of {spec.model or 'the model'} is {spec.context} tokens; the first prompt of task "
        f"{task.id} has at least {prompt}"
    )
    longer = "take a model" if spec.served_here else "serve the model"
    if prompt < spec.context:
        fits = f"give --max-tokens {spec.context - prompt} or less"
        return f"{problem}, a reply may have {reply}: {longer} with a longer context, or {fits}"
    fewer = "fewer --shots, " if any(f.name == "shots" for f in fields(benchmark.options)) else ""
    return (
        f"{problem}, so no reply fits, however short: {longer} with a longer context, shorten the prompt "
        f"({fewer}--prompt brief where there is one), or choose other --tasks"
    )


def _endpoint_tokens(spec: PolicySpec, text: str) -> int:
    """Number of tokens of a text by the endpoint's tokenizer, or a lower bound if it has no route for that."""
    probe = OpenAIPolicy(spec.target, spec.model, options=spec.options, patience_s=LOOK_S)
    with contextlib.closing(probe), contextlib.suppress(PolicyUnreachable):
        return _minimum_tokens(probe.num_tokens, text)
    return _minimum_tokens(None, text)


def _minimum_tokens(count: Callable[[str], int | None] | None, text: str) -> int:
    num_tokens = count(text) if count else None
    return len(text.encode()) // BYTES_PER_TOKEN if num_tokens is None else num_tokens
