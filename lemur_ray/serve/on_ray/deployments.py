"""A model on Ray Serve: its deployment for a job, a checkpoint or a policy, on which hosts and in how many replicas.

Requests beyond the engine's queue are refused by the engine (429), so Serve lets more of them through than the engine
takes. Needs a running Ray."""

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig

from lemur_ray.agents.messages import Policy
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.needs import shape_of
from lemur_ray.serve.on_ray.handle import HandleSpec
from lemur_ray.serve.on_ray.host_group import gpus_of, missing_bundles, reserve
from lemur_ray.serve.on_ray.replica import ChatModel
from lemur_ray.serve.on_ray.serve_cluster import DRAINED, CannotServe, await_ready, listen, run, start_without_proxies
from lemur_ray.serve.on_ray.vllm_deployment import vllm_app
from lemur_ray.serve.on_ray.weights_record import new_record_name
from lemur_ray.serve.planning.cluster_choice import with_devices
from lemur_ray.text.templates.template_files import template_source
from lemur_ray.weights.open_model import MODEL_ERRORS

log = logging.getLogger(__name__)

LAST_RESORT_S = 300.0
"""Seconds that Ray Serve waits for a removed replica to finish its requests before it kills the replica."""
ROUTER = "lemur_ray.serve.on_ray.session_router.SessionRouter"
"""Import path of the request router. Serve sends its source to proxies, which may lack this project's modules."""


def serve_job(job: ServeJob, spec: str, key_digest: bytes = b"") -> str:
    """Serve a model on the Ray cluster this process is connected to; returns its base URL (with /v1) once it answers.
    spec: as in ``weights.open_model``. key_digest: of the key that requests must bring (``http.api_key``), if any.
    Where Serve runs in the cluster already, its address stays and the model gets a path of its own in front of /v1.
    Raises CannotServe if the model cannot be loaded, CannotUseVllm, and TimeoutError if the model cannot be reached."""
    application = application_of(job, spec, key_digest)
    root, own_path = listen(job.host, job.port)
    run(application, f"lemur{'-vllm' * (job.backend == 'vllm')}{own_path.replace('/', '-')}", own_path or "/", spec)
    await_ready(root)
    return f"{root}/v1"


def serve_handle(job: ServeJob, spec: str, app_name: str = "") -> str:
    """Serve a model to processes of this Ray cluster only, by handle; returns the name of its application once it is
    warm. Starts Serve without HTTP if it does not run yet. app_name: by default a new one; an application of that name
    is replaced. spec: as in ``weights.open_model``. Raises CannotServe if the model cannot be loaded, CannotUseVllm."""
    start_without_proxies()
    app_name = app_name or f"lemur-{secrets.token_hex(4)}"
    run(application_of(job, spec), app_name, None, spec)
    return app_name


def serve_policy(spec: PolicySpec) -> Callable[[], Policy]:
    """Serve the model ``spec.target`` by HTTP (kind ``checkpoint``) or by Ray handle (kind ``handle``); returns a
    picklable function that makes its policy in any process of the cluster. If ``spec.application`` (kind ``handle``)
    names an application that serves the model already, that is used with its own options, hosts and replicas, and
    nothing is started. Raises CannotServe, CannotUseVllm, or TimeoutError if the model cannot be reached."""
    job = ServeJob(model=spec.target, name=spec.label, chat_template=spec.chat_template)
    if spec.traits.by_handle:
        app_name = spec.application or serve_handle(job, spec.target)
        return HandleSpec(app_name, spec.label, spec.options.patience_s, thinking_tokens=spec.options.thinking_tokens)
    return spec.at_endpoint(serve_job(job, spec.target), spec.label, spec.label)


def application_of(job: ServeJob, spec: str, key_digest: bytes = b"") -> serve.Application:
    """The application that ``serve_job`` would run; nothing is started. spec: as in ``weights.open_model``; key_digest:
    of the key that requests must bring. Raises CannotServe if the model cannot be opened or served so, CannotUseVllm
    likewise for vLLM."""
    try:
        job = with_devices(job, lambda: shape_of(spec)[0], ray.nodes())
    except MODEL_ERRORS as error:
        if job.backend != "vllm":  # it computes models that this project cannot open
            raise CannotServe(str(error)) from error
    options = {"name": DRAINED, "max_constructor_retry_count": 1, **_replica_options(job)}
    options["max_ongoing_requests"] = job.engine.max_slots + job.engine.max_queue + 64
    options["graceful_shutdown_timeout_s"] = LAST_RESORT_S
    if job.backend == "vllm":
        return vllm_app(job, spec, key_digest, options)
    try:
        reserved = reserve(job.hosts, job.num_cpus, job.engine.tensor_parallel, gpus_of(ray.nodes()))
    except ValueError as error:
        raise CannotServe(str(error)) from error
    if missing := missing_bundles(reserved, ray.nodes(), job.replicas):
        log.warning("the cluster has no host for %s: waiting until there is one", " and ".join(map(str, missing)))
    deployment = serve.deployment(
        **reserved.deployment_options(), health_check_period_s=5, health_check_timeout_s=60, **options
    )(ChatModel)
    source = spec if ":" in spec else str(Path(spec).expanduser().absolute())
    template = template_source(job.chat_template)  # read here: replicas on other hosts have no such file
    return deployment.bind(source, replace(job, api_key=""), reserved, new_record_name(), template, key_digest)


def _replica_options(job: ServeJob) -> dict[str, Any]:
    """Options of a deployment for the job's replicas. More start once there are more requests than slots."""
    router: Any = {"request_router_class": ROUTER}
    options: dict[str, Any] = {"request_router_config": RequestRouterConfig(**router)}
    if job.max_replicas <= job.replicas:
        return {**options, "num_replicas": job.replicas}
    options["autoscaling_config"] = AutoscalingConfig(
        min_replicas=job.replicas, max_replicas=job.max_replicas, target_ongoing_requests=job.engine.max_slots
    )
    return options
