"""Which model ``--policy`` means, and the name that its episodes carry.

Looks into run folders and asks endpoints what they serve; knows nothing of tasks, of training or of how models run.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.config import find_model

PROBE_S = 60.0
"""How long an endpoint may take to answer at all before the evaluation is not even begun."""


class EvaluationError(Exception):
    """The evaluation cannot be run as it was asked for; the message says what to do."""


def named(spec: PolicySpec, runs: Path, patience_s: float) -> PolicySpec:
    """The spec with the name that its episodes carry; a checkpoint is found, an endpoint is asked what it serves.

    Raises EvaluationError, PolicyUnreachable.
    """
    spec = replace(spec, patience_s=patience_s)
    if spec.kind == "checkpoint":
        model = find_run(spec.target, runs)
        return replace(spec, target=model, label=checkpoint_label(model))
    return served_model(spec) if spec.kind == "openai" else spec


def served_model(spec: PolicySpec) -> PolicySpec:
    """An endpoint's spec with the model it serves. Raises EvaluationError, PolicyUnreachable where nothing answers."""
    probe = OpenAIPolicy(spec.target, spec.model or "unknown", patience_s=min(spec.patience_s, PROBE_S))
    models = probe.served_models()
    if spec.model and (spec.model in models or not models):
        return spec
    if not spec.model and len(models) == 1:
        return spec.at_endpoint(spec.target, models[0], spec.label or f"openai:{models[0]}")
    asked = f"model {spec.model!r} is not served" if spec.model else "say with --policy-model which model to ask"
    raise EvaluationError(f"{spec.target}: {asked} (served: {', '.join(models) or 'it does not say'})")


def newest_run(runs: Path) -> Path:
    """The run folder with the newest committed checkpoint. Raises EvaluationError where there is none."""
    stamps = {run: stamp for run in sorted(runs.glob("*")) if (stamp := _newest_checkpoint(run)) is not None}
    if not stamps:
        raise EvaluationError(f"{runs}: no checkpoint yet; run jobs/pretrain.py, or name another policy with --policy")
    return max(stamps, key=lambda run: stamps[run][0])


def checkpoint_label(model: str) -> str:
    """Name of a run's newest checkpoint as a policy, such as ``nano-chat@1500-3f9a01bc``.

    The last part changes when the checkpoint is written anew, so that a ledger never takes one model for another.
    """
    if model.startswith("random:"):
        recipe, at, tokenizer = model.partition("@")
        return recipe + at + Path(tokenizer).name
    run = Path(model)
    newest = _newest_checkpoint(run)
    if newest is None:
        return run.name
    stamp, step = newest
    return f"{run.name}@{step}-{hashlib.sha256(str(stamp).encode()).hexdigest()[:8]}"


def find_run(target: str, runs: Path) -> str:
    """What ``checkpoint[:RUN]`` names, as the model to serve: see ``config.find_model``; empty is the newest run.

    Raises EvaluationError.
    """
    if not target:
        return str(newest_run(runs))
    try:
        return find_model(target)
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _newest_checkpoint(run: Path) -> tuple[int, int] | None:
    """Time of commit in ns and step of the newest whole checkpoint: renamed into place, with its place in the plan."""
    folders = [path for path in (run / "checkpoints").glob("*") if (path / "plan" / "metadata").is_file()]
    steps = [int(path.name) for path in folders if path.name.isdigit()]
    if not steps:
        return None
    return (run / "checkpoints" / str(max(steps))).stat().st_mtime_ns, max(steps)
