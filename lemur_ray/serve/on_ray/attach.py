"""A model that runs on this cluster already, found by what a ``handle`` names: nothing is started for it then.

What jobs/serve.py started keeps its options, hosts and replicas, and goes on when whoever asked it is gone. Imports
neither the engine nor jax, and Ray only for a handle.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lemur_ray.agents.policy_spec import PolicySpec

log = logging.getLogger(__name__)

ABOUT_S = 10.0
"""Seconds that a model has to say what it is."""


@dataclass(frozen=True)
class Running:
    """A model of ours that is served."""

    application: str
    name: str
    """As requests name it"""
    spec: str
    version: str
    """Of its weights, now"""
    context: int = 0
    """Tokens of a prompt and its reply together, where it tells; else 0"""


def attach(spec: PolicySpec, connect: Callable[[], object]) -> PolicySpec:
    """The spec of a ``handle`` with the application that serves what it names, where there is one; others as they are.

    It is found by its application's name, by the model's name, or by the folder that it was loaded from. connect: to
    the cluster. Raises ValueError where several are called so.
    """
    if spec.kind != "handle" or not spec.target:
        return spec
    connect()
    found = [running for running in served() if spec.target in _names(running)]
    if len(found) > 1:
        names = ", ".join(running.application for running in found)
        raise ValueError(f"--policy handle:{spec.target}: several applications serve that: say which, {names}")
    if not found:
        return spec
    (running,) = found
    label = f"handle:{running.name}@{running.version}"
    print(f"asking {running.application}, which serves {running.name} already", file=sys.stderr, flush=True)
    if not running.context:
        unknown = "does not say how long its context is: whether prompts fit shows when they are played"
        print(f"{running.application} {unknown}", file=sys.stderr, flush=True)
    count = partial(num_tokens, running.application)
    return replace(spec, application=running.application, label=label, context=running.context, count=count)


def num_tokens(application: str, text: str) -> int | None:
    """Of a text, as the model that an application serves counts them; None where it does not say."""
    import ray.exceptions
    from ray import serve
    from ray.serve.exceptions import RayServeException

    try:
        return int(serve.get_app_handle(application).num_tokens.remote(text).result(timeout_s=ABOUT_S))
    except (ray.exceptions.RayError, RayServeException, TimeoutError, AttributeError) as error:
        log.warning("%s does not count tokens: %s", application, error)
        return None


def served() -> list[Running]:
    """All models of ours that run on the cluster this process is connected to."""
    import ray.exceptions
    from ray import serve
    from ray.serve.exceptions import RayServeException
    from ray.serve.schema import ApplicationStatus

    from lemur_ray.serve.on_ray.serve_cluster import DRAINED

    found = []
    for name, application in serve.status().applications.items():
        if application.status != ApplicationStatus.RUNNING or DRAINED not in application.deployments:
            continue
        try:
            about = serve.get_app_handle(name).about.remote().result(timeout_s=ABOUT_S)
        except (ray.exceptions.RayError, RayServeException, TimeoutError, AttributeError) as error:
            log.warning("%s does not say what it serves: %s", name, error)
            continue
        found.append(Running(name, about["name"], about["spec"], about["version"], about.get("context", 0)))
    return found


def _names(running: Running) -> set[str]:
    """What it may be called; a folder also by its absolute path."""
    folder = Path(running.spec)
    return {running.application, running.name, running.spec, *([folder.name] if folder.is_dir() else [])}
