"""Attaching a ``handle`` policy to a model that this cluster serves already, instead of starting one.

A model of jobs/serve.py keeps its options, hosts and replicas, and outlives its clients. Imports neither the engine nor
jax, and Ray only for a handle."""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lemur_ray.agents.policy_spec import PolicySpec

log = logging.getLogger(__name__)

ABOUT_S = 10.0
"""Seconds within which a model must answer ``about``."""


@dataclass(frozen=True)
class Running:
    """A model that this project's engine serves on the connected cluster: application, name, version and context."""

    application: str
    name: str
    """Name of the model in requests"""
    spec: str
    """Model, run or folder that it was loaded from"""
    version: str
    """Version of the weights that it uses now"""
    context: int = 0
    """Tokens of a prompt and its reply together; 0 if unknown"""


def attach(spec: PolicySpec, connect: Callable[[], object]) -> PolicySpec:
    """Add to a ``handle`` spec the application that serves its target already, with its context and its count of
    tokens; prints a line on stderr. The spec is returned unchanged if there is none, or if it is of another kind or has
    no target. The target names an application, a model, or the folder that a model was loaded from. connect: called
    first, connects this process to the cluster. Raises ValueError if several applications match."""
    if not spec.traits.by_handle or not spec.target:
        return spec
    connect()
    matches = [running for running in served() if spec.target in _names(running)]
    if len(matches) > 1:
        names = ", ".join(running.application for running in matches)
        raise ValueError(f"--policy handle:{spec.target}: several applications serve that: say which, {names}")
    if not matches:
        return spec
    (running,) = matches
    label = f"handle:{running.name}@{running.version}"
    print(f"asking {running.application}, which serves {running.name} already", file=sys.stderr, flush=True)
    if not running.context:
        unknown = "does not say how long its context is: whether prompts fit shows when they are played"
        print(f"{running.application} {unknown}", file=sys.stderr, flush=True)
    count = partial(num_tokens, running.application)
    return replace(spec, application=running.application, label=label, context=running.context, count=count)


def num_tokens(application: str, text: str) -> int | None:
    """Number of tokens of a text by the tokenizer of an application's model; None, with a warning, if it does not
    answer within ``ABOUT_S`` seconds."""
    return _answer(application, "count tokens", lambda handle: handle.num_tokens.remote(text))


def _answer(application: str, what: str, ask: Callable[[Any], Any]) -> Any:
    """The answer of an application's model; None, with a warning, if there is none. what: for the warning."""
    import ray.exceptions
    from ray import serve
    from ray.serve.exceptions import RayServeException

    try:
        return ask(serve.get_app_handle(application)).result(timeout_s=ABOUT_S)
    except (ray.exceptions.RayError, RayServeException, TimeoutError, AttributeError) as error:
        log.warning("%s does not %s: %s", application, what, error)
        return None


def served() -> list[Running]:
    """The models that this project serves on the connected cluster; models that do not answer within ``ABOUT_S``
    seconds are left out, with a warning."""
    from ray import serve
    from ray.serve.schema import ApplicationStatus

    from lemur_ray.serve.on_ray.serve_cluster import DRAINED

    running = []
    for name, application in serve.status().applications.items():
        if application.status != ApplicationStatus.RUNNING or DRAINED not in application.deployments:
            continue
        if about := _answer(name, "say what it serves", lambda handle: handle.about.remote()):
            running.append(Running(name, about["name"], about["spec"], about["version"], about.get("context", 0)))
    return running


def _names(running: Running) -> set[str]:
    """Names that a target may use for the model."""
    folder = Path(running.spec)
    return {running.application, running.name, running.spec, *([folder.name] if folder.is_dir() else [])}
