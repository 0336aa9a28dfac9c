"""Resolves ``--policy`` to a model and the policy's name in episode keys, by run folders and queries of endpoints."""

import contextlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.host.home import find_model
from lemur_ray.rollout.endpoints.evaluation_endpoints import PROBE_S
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.evaluation_folder import EvaluationError
from lemur_ray.rollout.stored_replies import stored_policy
from lemur_ray.storage.file_system import file_system
from lemur_ray.weights.checkpoints import CHECKPOINTS, commit_at, model_fingerprint, newest_commit


def parse_policy(config: EvalConfig[Any], benchmark: Benchmark[Any]) -> PolicySpec:
    """Parse ``--policy`` without any query; a ledger is read, a file of replies is not. Raises ValueError for an
    unknown kind, a ledger or file that is not there, or a ledger of several policies; LedgerError or OSError for an
    unreadable ledger; EvaluationError if the policy needs hints (an expert, actions) that the benchmark lacks."""
    stored = stored_policy(config.policy, config.policy_model, config.benchmark)
    spec = stored or PolicySpec.parse(config.policy, config.policy_model, benchmark.details.recording_format)
    if spec.traits.needs_hints and not benchmark.has_hints:
        raise EvaluationError(f"--policy {spec.kind}: {config.benchmark} has neither expert nor actions to draw")
    return spec


def resolve_policy(spec: PolicySpec, runs: Path, options: EndpointOptions, chat_template: str = "") -> PolicySpec:
    """Complete the spec with its model and its name in episode keys: locates a checkpoint (``runs``: folder with run
    folders) or queries the endpoint for its models. ``chat_template``: value of --chat-template, for models served
    here. Raises EvaluationError for a model that does not exist or a misplaced ``chat_template``, ValueError as
    ``pin_checkpoint``, PolicyUnreachable if the endpoint does not answer."""
    spec = replace(spec, options=options, chat_template=chat_template)
    if chat_template and not spec.served_here:
        raise EvaluationError(f"--chat-template is for a model that is served here, which --policy {spec.kind} is not")
    if spec.application:  # the application has declared its model
        if chat_template:
            raise EvaluationError(f"--chat-template: {spec.application} has its own; give it to jobs/serve.py")
        return spec
    if spec.served_here:
        model = pin_checkpoint(resolve_model(spec.target, runs))
        # Token ids and the tokens of their text may differ, so a handle has another label than an endpoint.
        prefix = f"{spec.kind}:" if spec.traits.by_handle else ""
        return replace(spec, target=model, label=prefix + checkpoint_label(model))
    return served_model(spec) if spec.traits.asks_endpoint else spec


def served_model(spec: PolicySpec, quiet: bool = False) -> PolicySpec:
    """Query an endpoint for its models; returns the spec completed with the model (the only one served, if the spec
    names none), the context length (0 if unknown) and the label ``openai:NAME@VERSION``, or ``openai:NAME`` without a
    version. ``quiet``: print no warning about a missing version. Raises PolicyUnreachable if the endpoint does not
    answer, EvaluationError if the model is not served or not named."""
    patience_s = min(spec.options.patience_s, PROBE_S)
    probe = OpenAIPolicy(spec.target, spec.model or "unknown", options=spec.options, patience_s=patience_s)
    with contextlib.closing(probe):
        models = probe.served_models()
    name = spec.model or (next(iter(models)) if len(models) == 1 else "")
    if not name or (models and name not in models):
        problem = f"model {spec.model!r} is not served" if spec.model else "say with --policy-model which model to ask"
        raise EvaluationError(f"{spec.target}: {problem} (served: {', '.join(models)[:1000] or 'it does not say'})")
    version = re.sub(r"[^A-Za-z0-9._-]", "-", models.get(name, ""))[:64]
    if not version and not quiet:
        print(
            f"{spec.target} does not say which version of {name} it serves: episodes of an earlier one in the same "
            "folder count as this one's; give another --out after the model has changed",
            file=sys.stderr,
            flush=True,
        )
    label = f"openai:{name}@{version}" if version else f"openai:{name}"
    resolved = spec.at_endpoint(spec.target, name, label)
    return replace(resolved, our_server=bool(version), context=probe.contexts.get(name, 0))


def newest_run(runs: Path) -> Path:
    """The run folder in ``runs`` with the newest committed checkpoint. Raises EvaluationError if there is none."""
    newest = {run: commit for run in sorted(runs.glob("*")) if (commit := newest_commit(str(run / CHECKPOINTS)))}
    if not newest:
        raise EvaluationError(f"{runs}: no checkpoint yet; run jobs/pretrain.py, or name another policy with --policy")
    return max(newest, key=lambda run: Path(newest[run].folder).stat().st_mtime_ns)


def pin_checkpoint(model: str) -> str:
    """For a run folder or URI, the folder of its committed checkpoint with the highest step, which training does not
    change. Any other readable path or URI, and ``random:RECIPE``, is returned unchanged. Raises EvaluationError if the
    run has no committed checkpoint or ``model`` cannot be read, ValueError for an unknown URI scheme."""
    if model.startswith("random:"):
        return model
    try:
        fs, inner = file_system(model)
        if not fs.isfile(f"{inner}/recipe.json"):
            return model
        commit = newest_commit(f"{model}/{CHECKPOINTS}")
    except (ImportError, OSError) as error:
        raise EvaluationError(f"{model} cannot be read: {error}") from error
    if commit is None:
        raise EvaluationError(f"{model}/{CHECKPOINTS}: no committed checkpoint yet; let the run reach its first one")
    return commit.folder


def checkpoint_label(model: str) -> str:
    """Name of a model in episode keys: ``RUN@STEP-FINGERPRINT`` for a committed checkpoint, ``FOLDER@FINGERPRINT`` for
    a Hugging Face folder. The fingerprint of the weights keeps a ledger from mixing two models. Raises EvaluationError
    if ``model`` is neither."""
    if model.startswith("random:"):
        recipe, at, tokenizer = model.partition("@")
        return recipe + at + Path(tokenizer).name
    folders = model.rstrip("/").split("/")
    try:
        if (commit := commit_at(model)) is not None:
            return f"{folders[-3]}@{commit.step}-{commit.fingerprint}"
        return f"{folders[-1]}@{model_fingerprint(model)}"
    except (ImportError, OSError) as error:
        raise EvaluationError(
            f"{model}: expected a run folder, a committed checkpoint or a Hugging Face folder ({error})"
        ) from error


def resolve_model(target: str, runs: Path) -> str:
    """Folder or URI of model ``target`` (``home.find_model``); empty: newest run. Raises EvaluationError without it."""
    if not target:
        return str(newest_run(runs))
    try:
        return find_model(target, buckets=True)
    except ValueError as error:
        raise EvaluationError(str(error)) from None
