"""The app on Ray Serve: one deployment that holds the engine and answers with the app of ``openai.py``, or by handle.

The replica's own ASGI app answers, its token stream goes through Serve untouched. Requests beyond the engine's queue
are refused by the engine (429), so Serve lets more of them through than the engine takes. Needs a running Ray.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import AutoscalingConfig, HTTPOptions, RequestRouterConfig
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatus

from lemur_ray.agents.messages import Policy
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.ports import free_port
from lemur_ray.serve.config import EngineOptions, Hosts, ServeJob
from lemur_ray.serve.http.routes import build_app
from lemur_ray.serve.http.uvicorn_server import DRAIN_S
from lemur_ray.serve.loading import open_front, update_weights
from lemur_ray.serve.on_ray.handle import HandleSpec
from lemur_ray.serve.on_ray.host_group import Gathered, Reserved, gather, lacking, reserve
from lemur_ray.serve.on_ray.vllm_deployment import CannotUseVllm, vllm_app
from lemur_ray.serve.token_requests import converse

log = logging.getLogger(__name__)

READY_TIMEOUT_S = 60.0
"""Seconds that a running replica may take to become reachable through Serve's proxy."""

LAST_RESORT_S = 300.0
"""Seconds that Ray Serve lets a replica finish its requests when there is no use for it any more, then it kills it."""

SESSION_ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
"""Requests with the same X-Session-Id go to the replica that has their conversation in its cache."""

_SERVE_ENV = {
    # A proxy that is not up after 5 s is killed: on a busy machine with two cores before it has imported Ray.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    # Tokens go from replica to proxy over gRPC and not as objects of Ray, and from thread to thread once less.
    "RAY_SERVE_PROXY_USE_GRPC": "1",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
}
"""Of Serve's controller, and so of the proxies and replicas that it starts."""

_apps: list[str] = []
_started_serve = False


@serve.ingress()
class ChatModel:
    """A replica: loads the model, starts the engine, is healthy as long as the engine's thread lives."""

    def __init__(
        self,
        spec: str,
        name: str,
        options: EngineOptions,
        reserved: Reserved,
        key_digest: bytes = b"",
        follow_s: float = 0.0,
    ):
        alone = len(reserved.bundles) == 1
        self._gathered = Gathered([], []) if alone else gather(spec, options, reserved)
        self._front = open_front(spec, options, name, follow_s, self._gathered.lines)
        self._key_digest = key_digest

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_app(self._front, self._key_digest)

    async def converse(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Token ids for a policy in the cluster: see ``serve.direct``."""
        return await converse(self._front, asked)

    async def update_weights(self, spec: str) -> str:
        """Take over other weights of this model without dropping a request; returns their version.

        In this replica alone: ``serve.get_app_handle(app).broadcast("update_weights", spec).results()`` reaches all.
        """
        return await asyncio.to_thread(update_weights, self._front.engine, spec)

    async def drain(self, limit_s: float) -> None:
        """Refuse what is new from now on; replies that take longer than ``limit_s`` seconds end with an error."""
        await asyncio.to_thread(self._front.engine.close, limit_s)

    def check_health(self) -> None:
        if self._front.engine.failure is not None:
            raise RuntimeError(f"the engine died: {self._front.engine.failure!r}")

    def __del__(self) -> None:
        if hasattr(self, "_front"):
            self._front.engine.close()
            if (group := self._front.engine.group) is not None:
                group.close()


class CannotServe(ValueError):
    """The model, or the address it was asked for at, cannot be served; the message says why."""


def serve_job(job: ServeJob, spec: str, key_digest: bytes = b"") -> str:
    """What ``jobs/serve.py`` asks for, as ``serve_model``. Raises CannotUseVllm besides."""
    if job.backend == "jax":
        return serve_model(spec, **job.on_ray(), key_digest=key_digest)
    if key_digest:
        raise CannotUseVllm("Ray's LLM deployment asks nobody for a key: leave it out, and put a proxy in front")
    application = vllm_app(job, spec)
    root, own_path = _listening(job.host, job.port)
    _run(application, f"lemur-vllm{own_path.replace('/', '-')}", own_path or "/", spec)
    return f"{root}/v1"


def serve_model(
    spec: str,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    name: str = "",
    num_cpus: float = 1.0,
    options: EngineOptions | None = None,
    key_digest: bytes = b"",
    follow_s: float = 0.0,
    hosts: Hosts | None = None,
    replicas: int = 1,
    max_replicas: int = 0,
) -> str:
    """Serve a model on the Ray cluster this process is connected to; returns its base URL (with /v1) once it answers.

    spec: as in ``model.load``; port 0: any free one; name: of the model in requests, by default the spec's own;
    key_digest: of the key that requests must bring (``serve.auth``), none by default; follow_s: as in ``open_front``.
    hosts, replicas, max_replicas: as in ``ServeJob``; with several replicas, requests of one session go to one of them.
    num_cpus: on each of the hosts.
    Where Serve runs in the cluster already, its address stays and the model gets a path of its own in front of /v1.
    Raises CannotServe when the model could not be loaded, TimeoutError when it cannot be reached.
    """
    root, own_path = _listening(host, port)
    options = options or EngineOptions()
    arguments = (spec, name, options, _reserved(hosts or Hosts(), num_cpus, options), key_digest, follow_s)
    _deploy(f"lemur{own_path.replace('/', '-')}", own_path or "/", arguments, replicas, max_replicas)
    _await_ready(root)
    return f"{root}/v1"


def _listening(host: str, port: int) -> tuple[str, str]:
    """Start Serve, or find the one that runs: the URL in front of /v1, and its path, empty for the first model.

    Raises CannotServe where it listens on another port.
    """
    global _started_serve
    running = _running_at()
    if running is None:
        port = port or free_port(host)
        serve.start(
            proxy_location="HeadOnly",
            http_options=HTTPOptions(host=host, port=port),
            logging_config={"enable_access_log": False, "log_level": "WARNING"},
            controller_options={"runtime_env": {"env_vars": _SERVE_ENV}},
        )
        _started_serve = True
    elif port not in (0, running[1]):
        raise CannotServe(f"Ray Serve listens on port {running[1]} in this cluster already: ask for that one or for 0")
    else:
        host, port = running
    own_path = "" if running is None else f"/{secrets.token_hex(4)}"
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}{own_path}", own_path


def serve_handle(spec: str, *, name: str = "", num_cpus: float = 1.0, options: EngineOptions | None = None) -> str:
    """Serve a model to processes of this cluster alone, by handle; returns the name of its application once it is warm.

    Where Serve does not run yet, it is started without any HTTP proxy. Raises CannotServe when the model could not be
    loaded.
    """
    global _started_serve
    if _running_at() is None:
        serve.start(
            proxy_location="Disabled",
            logging_config={"enable_access_log": False, "log_level": "WARNING"},
            controller_options={"runtime_env": {"env_vars": _SERVE_ENV}},
        )
        _started_serve = True
    app_name = f"lemur-{secrets.token_hex(4)}"
    options = options or EngineOptions()
    _deploy(app_name, None, (spec, name, options, _reserved(Hosts(), num_cpus, options)))
    return app_name


def serve_policy(spec: PolicySpec) -> Callable[[], Policy]:
    """Serve the model of a ``checkpoint`` or ``handle``; what builds its policy, in any process of the cluster."""
    if spec.kind == "handle":
        return HandleSpec(serve_handle(spec.target, name=spec.label), spec.label, spec.patience_s)
    return spec.at_endpoint(serve_model(spec.target, name=spec.label), spec.label, spec.label)


def _deploy(app_name: str, route: str | None, model: tuple[Any, ...], replicas: int = 1, max_replicas: int = 0) -> None:
    """Start the application of a model, whose arguments are those of ChatModel; see ``_run``."""
    spec, name, options, reserved, *others = model
    spec = spec if ":" in spec else str(Path(spec).expanduser().absolute())
    if missing := lacking(reserved, ray.nodes()):
        log.warning("the cluster has no host for %s: waiting until there is one", " and ".join(map(str, missing)))
    deployment = serve.deployment(
        name="ChatModel",
        max_ongoing_requests=options.max_slots + options.max_queue + 64,
        **reserved.deployment_options(),
        graceful_shutdown_timeout_s=LAST_RESORT_S,
        health_check_period_s=5,
        health_check_timeout_s=60,
        max_constructor_retry_count=1,
        **_scaled(replicas, max_replicas, options.max_slots),
    )(ChatModel)
    _run(deployment.bind(spec, name, options, reserved, *others), app_name, route, spec)


def _run(application: Any, app_name: str, route: str | None, spec: str) -> None:
    """Start an application; returns when its replicas are warm. Raises CannotServe that says why they are not."""
    # Noted first: an application whose model cannot be loaded must be removed as well.
    _apps.append(app_name)
    try:
        serve.run(application, name=app_name, route_prefix=route)
    except RuntimeError as error:
        raise CannotServe(f"{spec} cannot be served: {_reason(app_name) or error}") from error


def _reserved(hosts: Hosts, num_cpus: float, options: EngineOptions) -> Reserved:
    try:
        return reserve(hosts, num_cpus, options.tensor_parallel)
    except ValueError as error:
        raise CannotServe(str(error)) from error


def _scaled(replicas: int, max_replicas: int, max_slots: int) -> dict[str, Any]:
    """Options of a deployment with so many replicas. More are started once there are more requests than slots."""
    if max(replicas, max_replicas) == 1:
        return {}
    by_session: Any = {"request_router_class": SESSION_ROUTER}
    scaled: dict[str, Any] = {"request_router_config": RequestRouterConfig(**by_session)}
    if max_replicas > replicas:
        scaled["autoscaling_config"] = AutoscalingConfig(
            min_replicas=replicas, max_replicas=max_replicas, target_ongoing_requests=max_slots
        )
        return scaled
    return {**scaled, "num_replicas": replicas}


def shutdown() -> None:
    """Remove the models that this process serves. Replies may end that need no more than 20 s, others are told so.

    Serve itself is stopped if it was started here and nobody else has a model on it by now.
    """
    global _started_serve
    if not ray.is_initialized():
        return
    while _apps:
        _drain(_apps[-1])
        serve.delete(_apps.pop())
    if _started_serve and not serve.status().applications:
        serve.shutdown()
    _started_serve = False


def _drain(app_name: str) -> None:
    """Let replies end that are on their way; Ray Serve would cut those that take too long without a word."""
    application = serve.status().applications.get(app_name)
    if (
        application is None
        or application.status != ApplicationStatus.RUNNING
        or "ChatModel" not in application.deployments
    ):
        return
    try:
        serve.get_app_handle(app_name).broadcast("drain", DRAIN_S).results(timeout_s=DRAIN_S + 10)
    except (RayError, RayServeException, TimeoutError) as error:
        log.warning("%s is removed without waiting for its replies: %s", app_name, error)


def _reason(app_name: str) -> str:
    """Why a deployment failed: the last line of the replica's traceback, empty where Serve does not say."""
    application = serve.status().applications.get(app_name)
    messages = [d.message for d in application.deployments.values()] if application else []
    lines = [line.strip() for message in messages for line in message.splitlines() if line.strip()]
    return lines[-1].removeprefix("RuntimeError: ") if lines else ""


def _running_at() -> tuple[str, int] | None:
    """Host and port of a Serve that runs in the cluster already."""
    try:
        # Serve has no public way to ask for the address of its proxies from Python.
        client = _get_global_client()
    except RayServeException:
        return None
    if client is None:
        return None
    options = client.http_config
    return options.host or "127.0.0.1", options.port


def _await_ready(root: str) -> None:
    deadline, last = time.monotonic() + READY_TIMEOUT_S, "no answer"
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{root}/ready", timeout=5) as answer:
                if json.load(answer).get("status") == "ready":
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError) as error:
            last = repr(error)
        time.sleep(0.1)
    raise TimeoutError(f"the model does not answer at {root}/ready after {READY_TIMEOUT_S:.0f} s: {last}")
