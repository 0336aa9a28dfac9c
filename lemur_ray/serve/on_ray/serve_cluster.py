"""Starts and stops Ray Serve and applications in the connected cluster. Knows nothing of models."""

import contextlib
import json
import logging
import secrets
import time
import urllib.error
import urllib.request
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import HTTPOptions
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatus

from lemur_ray.host.ports import free_port
from lemur_ray.serve.http.uvicorn_server import DRAIN_S
from lemur_ray.serve.on_ray.serve_settings import SERVE_ENV

log = logging.getLogger(__name__)

READY_TIMEOUT_S = 60.0
"""Seconds within which a running replica must be reachable through Serve's proxy."""
DRAINED = "ChatModel"
"""Name of deployments that are drained (``drain``) before they are removed."""
_apps: list[str] = []
_started_serve = False


class CannotServe(ValueError):
    """Raised when a model cannot be served, or not at the requested address; the message gives the reason."""


def listen(host: str, port: int) -> tuple[str, str]:
    """Start Serve with HTTP on this host and port (0: a free one) if it does not run; returns (URL in front of /v1,
    path in that URL). The path is "" if Serve was started; where it ran already, its address stays and the path is a
    new random one. Raises CannotServe if Serve listens on another port."""
    running = _running_at()
    if running is None:
        port = port or free_port(host)
        _start(proxy_location="HeadOnly", http_options=HTTPOptions(host=host, port=port))
    elif port not in (0, running[1]):
        raise CannotServe(f"Ray Serve listens on port {running[1]} in this cluster already: ask for that one or for 0")
    else:
        host, port = running
    own_path = "" if running is None else f"/{secrets.token_hex(4)}"
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}{own_path}", own_path


def start_without_proxies() -> None:
    """Start Serve without HTTP, if it does not run yet."""
    if _running_at() is None:
        _start(proxy_location="Disabled")


def _start(**where: Any) -> None:
    global _started_serve
    serve.start(
        **where,
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
        controller_options={"runtime_env": {"env_vars": SERVE_ENV}},
    )
    _started_serve = True


def run(application: Any, app_name: str, route: str | None, spec: str) -> None:
    """Run an application in Serve, and record it for ``shutdown``; returns when its replicas are warm. route: URL path,
    None: no HTTP; spec: the model, for the message. app_name: of the application in Serve. Raises CannotServe with the
    reason if a replica fails."""
    # Recorded first: an application whose model cannot be loaded must be removed as well.
    _apps.append(app_name)
    try:
        serve.run(application, name=app_name, route_prefix=route)
    except RuntimeError as error:
        raise CannotServe(f"{spec} cannot be served: {_reason(app_name) or error}") from error


def shutdown() -> None:
    """Remove the models that this process serves. Replies that take at most 20 s finish, others get an error. Serve
    itself is stopped if this process started it and it runs nothing else. Does nothing without a connection to Ray."""
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
    """Let running replies finish; Ray Serve itself would cut long ones without an error."""
    application = serve.status().applications.get(app_name)
    if application is None or application.status != ApplicationStatus.RUNNING or DRAINED not in application.deployments:
        return
    try:
        serve.get_app_handle(app_name).broadcast("drain", DRAIN_S).results(timeout_s=DRAIN_S + 10)
    except (RayError, RayServeException, TimeoutError) as error:
        log.warning("%s is removed without waiting for its replies: %s", app_name, error)


def _reason(app_name: str) -> str:
    """Reason of a failed deployment: the last line of Serve's messages about it; empty if there is none."""
    application = serve.status().applications.get(app_name)
    messages = [d.message for d in application.deployments.values()] if application else []
    lines = [line.strip() for message in messages for line in message.splitlines() if line.strip()]
    return lines[-1].removeprefix("RuntimeError: ") if lines else ""


def _running_at() -> tuple[str, int] | None:
    """Host and port of the Serve that runs in the cluster, if one does."""
    client = None
    with contextlib.suppress(RayServeException):
        client = _get_global_client()  # Serve has no public Python API for the address of its proxies
    return (client.http_config.host or "127.0.0.1", client.http_config.port) if client is not None else None


def await_ready(root: str) -> None:
    """Poll ``root``/ready until the server answers that it is ready. Raises TimeoutError after 60 s."""
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
