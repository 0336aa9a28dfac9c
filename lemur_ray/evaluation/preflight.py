"""Before the first token is paid: everything an evaluation needs is looked at, and all that lacks is said at once.

What a benchmark needs it declares (``benchmarks/needs.py``); what every evaluation needs stands here: its policy, an
endpoint that answers, takes the key and serves the model, room in the model's context, a folder to write to. Starts no
Ray, loads no model and pays for no request. Knows no benchmark and no pool.
"""

from __future__ import annotations

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
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.needs import LOOK_S, Requirement, missing_requirements, readable_file, requirement_of
from lemur_ray.benchmarks.plugin_calls import call_notes
from lemur_ray.benchmarks.plugin_metadata import plugin_metadata
from lemur_ray.benchmarks.run_notes import EvaluationRun
from lemur_ray.host.home import lemur_home, resolve_out
from lemur_ray.rollout.benchmark_tasks import asked_of, tasks_and_settings
from lemur_ray.rollout.endpoints.asked_endpoints import look_at, outside_endpoints, policy_options, ready
from lemur_ray.rollout.endpoints.policy_target import find_run, meant, named, pinned, served_model
from lemur_ray.rollout.evaluation import is_finished
from lemur_ray.rollout.evaluation_config import EvalConfig, Settings
from lemur_ray.rollout.evaluation_folder import EvaluationError, default_out, prepare_out
from lemur_ray.rollout.ledger import LedgerError
from lemur_ray.rollout.stored_replies import answered
from lemur_ray.rollout.task_selection import in_their_order

if TYPE_CHECKING:
    from lemur_ray.serve.policy_model import PolicyModel

BYTES_PER_TOKEN = 6
"""More than any tokenizer has on average over a prompt in words: so many tokens it has at least."""


class NotBegun(EvaluationError):
    """The evaluation would come to nothing here; the message lists everything that lacks."""

    def __init__(self, benchmark: str, said: Sequence[str]) -> None:
        self.said = tuple(said)
        alone = said[0] if len(said) == 1 else "\n- ".join([f"{benchmark} is not begun:", *said])
        super().__init__(alone)


@dataclass(frozen=True)
class Prepared:
    """What can be played. ``departures``: from upstream's tasks, on this machine."""

    policy: PolicySpec
    tasks: Sequence[Task]
    settings: Settings
    departures: tuple[str, ...]
    out: Path

    def told(self) -> dict[str, Any]:
        """Say on stderr what is not as upstream has it; the same for the notes of a page."""
        for said in self.departures:
            print(f"not as upstream: {said}", file=sys.stderr, flush=True)
        return {"not_as_upstream": list(self.departures)} if self.departures else {}

    def notes(self, benchmark: Benchmark[Any], episodes: Sequence[Episode]) -> dict[str, Any]:
        """Numbers of the benchmark's own beside the rate."""
        return call_notes(benchmark, episodes)

    def kept(self, name: str, benchmark: Benchmark[Any]) -> dict[str, Any]:
        """What of it is kept with the episodes: arguments of ``run_evaluation``. ``name``: of the benchmark."""
        run = EvaluationRun(self.policy.label, self.settings.values, [task.id for task in self.tasks])
        said = plugin_metadata(name, benchmark, self.tasks[0].benchmark, run)
        return {"departures": self.departures, "cluster": benchmark.cluster, "told": said}


def prepare(config: EvalConfig[Any], benchmark: Benchmark[Any], attach: Callable[[PolicySpec], PolicySpec]) -> Prepared:
    """Look at everything, then name the policy and load the tasks. Raises NotBegun, or what they raise.

    ``attach``: finds the application that serves a policy already, where there is a cluster to look in.
    """
    spec, of_policy = _meant(config, benchmark)
    asked = asked_of(config, benchmark, "full", spec.recording if spec else "")
    of_policy += missing_requirements(policy_needs(config, spec))
    said = [*of_policy, *missing_requirements([step_need(config, benchmark), *benchmark.needed(config.options, asked)])]
    if of_policy or spec is None:
        raise NotBegun(config.benchmark, said)
    try:
        spec = named(attach(spec), lemur_home() / "runs", ready(config), config.chat_template)
        count, spec = _counted(spec, config)
        tasks, settings = tasks_and_settings(config, benchmark, spec.knows_our_words, spec.recording, spec.replies)
        tasks = in_their_order(answered(spec, tasks, config.epochs), tasks)
    except (ValueError, OSError) as error:
        if said:
            raise NotBegun(config.benchmark, said) from error
        raise
    if not tasks:
        raise NotBegun(config.benchmark, [*said, f"{config.benchmark}: no tasks, so nothing to evaluate"])
    said += benchmark.unplayable(config.options, asked, tasks)
    if short := too_long(spec, benchmark, tasks, settings, count):
        said.append(short)
    out = resolve_out(config.out, default_out(config.benchmark, spec.label))
    if said and not is_finished(config, tasks, spec.label, settings, Path(out)):
        raise NotBegun(config.benchmark, said)
    departures = tuple(benchmark.departures(config.options, asked, tasks))
    return Prepared(spec, tasks, settings, departures, prepare_out(out))


def _meant(config: EvalConfig[Any], benchmark: Benchmark[Any]) -> tuple[PolicySpec | None, list[str]]:
    try:
        return meant(config, benchmark), []
    except (EvaluationError, LedgerError, ValueError, OSError) as error:
        return None, [str(error)]


def policy_needs(config: EvalConfig[Any], spec: PolicySpec | None) -> list[Requirement]:
    """What an evaluation needs whatever it plays. ``spec``: None where there is no such policy."""
    teacher_answers = partial(_asked, outside_endpoints, _ask_teacher, config)
    found = [requirement_of("folder", partial(_writable, config.out))]
    found += [
        requirement_of("teacher's key", partial(outside_endpoints, config)),
        requirement_of("teacher", teacher_answers),
    ]
    if spec is None:
        return found
    may_be_served = spec.kind == "handle" and spec.target and os.environ.get("RAY_ADDRESS")
    if spec.served_here and not may_be_served:
        found.append(requirement_of("checkpoint", partial(_model_here, spec, config)))
    if spec.recording:
        found.append(readable_file(f"--policy {config.policy}", Path(spec.recording)))
    policy_answers = partial(_asked, policy_options, partial(_ask_policy, spec), config)
    return [requirement_of("key", partial(policy_options, config)), requirement_of("endpoint", policy_answers), *found]


def step_need(config: EvalConfig[Any], benchmark: Benchmark[Any]) -> Requirement:
    """Time enough for a step that nothing which a policy does in it is taken for the environment's fault."""
    least = benchmark.step_s
    short = (
        f"--step-s {config.step_s:g}: a policy may keep a step of {config.benchmark} busy for up to {least:g} s: give "
        f"--step-s {least:g} or more"
    )
    return Requirement("step", lambda: short if config.step_s < least else None)


def _writable(out: str) -> None:
    if not out:
        return
    folder = Path(resolve_out(out, ""))
    new = not folder.exists()
    prepare_out(str(folder) if "://" not in out else out)
    if new:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _model_here(spec: PolicySpec, config: EvalConfig[Any]) -> PolicyModel:
    """The model that is to be served for the policy. Raises EvaluationError with everything that it lacks."""
    from lemur_ray.serve.policy_model import NotServed, look_at_model  # a second, and only such policies need it

    model = pinned(find_run(spec.target, lemur_home() / "runs"))
    chats = spec.kind == "handle" or not getattr(config.options, "raw", False)
    try:
        return look_at_model(model, config.chat_template, chats)
    except NotServed as error:
        raise EvaluationError(f"--policy {config.policy}: {'; '.join(error.said)}") from error


def _counted(spec: PolicySpec, config: EvalConfig[Any]) -> tuple[Callable[[str], int], PolicySpec]:
    """What counts the tokens of a text for the policy's model, and the policy with the context that is known of it."""
    if spec.application:
        return partial(_at_least, spec.count), spec
    if not spec.served_here:
        return partial(_tokens, spec), spec
    model = _model_here(spec, config)
    return model.num_tokens, replace(spec, context=model.context)


def _ask_policy(spec: PolicySpec, config: EvalConfig[Any]) -> None:
    """Whether the policy's endpoint is there, takes the key and serves the model. Raises."""
    if spec.kind == "openai":
        served_model(replace(spec, options=_impatient(policy_options(config))), quiet=True)


def _ask_teacher(config: EvalConfig[Any]) -> None:
    for endpoint in outside_endpoints(config):
        look_at(replace(endpoint, options=_impatient(endpoint.options)))


def _impatient(options: EndpointOptions) -> EndpointOptions:
    return replace(options, patience_s=min(LOOK_S, options.patience_s))


def _asked(
    read_key: Callable[[EvalConfig[Any]], object], ask: Callable[[EvalConfig[Any]], None], config: EvalConfig[Any]
) -> None:
    """``ask``; where its key cannot be read, which is a lack by itself, only whether anybody is there. Raises."""
    try:
        read_key(config)
    except ValueError:
        try:
            ask(replace(config, policy_key_env="", teacher_key_env=""))
        except EndpointAbsent:
            raise
        except (EndpointRefused, EvaluationError, ValueError):
            return
    else:
        ask(config)


def too_long(
    spec: PolicySpec,
    benchmark: Benchmark[Any],
    tasks: Sequence[Task],
    settings: Settings,
    count: Callable[[str], int],
) -> str:
    """Why no first reply fits the context of the model, where that is known; empty where it may. ``count``: tokens."""
    if not spec.context or not tasks:
        return ""
    task = max(tasks, key=lambda one: len(benchmark.opening(one)))
    prompt, reply = count(benchmark.opening(task)), settings.sampling.max_tokens
    if prompt + reply <= spec.context:
        return ""
    said = (
        f"{spec.target}: the context of {spec.model or 'the model'} is {spec.context} tokens; the first prompt of task "
        f"{task.id} has at least {prompt}"
    )
    longer = "take a model" if spec.served_here else "serve the model"
    if prompt < spec.context:
        fits = f"give --max-tokens {spec.context - prompt} or less"
        return f"{said}, a reply may have {reply}: {longer} with a longer context, or {fits}"
    fewer = "fewer --shots, " if any(f.name == "shots" for f in fields(benchmark.options)) else ""
    return (
        f"{said}, so no reply fits, however short: {longer} with a longer context, shorten the prompt "
        f"({fewer}--prompt brief where there is one), or choose other --tasks"
    )


def _tokens(spec: PolicySpec, text: str) -> int:
    """Of a text: as the endpoint counts them where it does, else a bound from below."""
    probe = OpenAIPolicy(spec.target, spec.model, options=spec.options, patience_s=LOOK_S)
    with contextlib.closing(probe), contextlib.suppress(PolicyUnreachable):
        return _at_least(probe.num_tokens, text)
    return _at_least(None, text)


def _at_least(count: Callable[[str], int | None] | None, text: str) -> int:
    found = count(text) if count else None
    return len(text.encode()) // BYTES_PER_TOKEN if found is None else found
