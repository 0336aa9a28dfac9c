"""The endpoints of an evaluation and their options, from its command line: the policy's, and those of environments.

Keys are read from environment variables, once, in the process that starts the evaluation."""

import contextlib
from typing import Any

from lemur_ray.agents.api_keys import Key
from lemur_ray.agents.endpoint import Endpoint, EndpointOptions, checked_url, redact_url
from lemur_ray.agents.external_calls import register_endpoints
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.benchmarks.discovery import find
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.evaluation_folder import EvaluationError

PROBE_S = 60.0
"""Maximum seconds within which an endpoint must answer before the evaluation starts."""
_PREFIX = "openai:"


def prepare_endpoints(config: EvalConfig[Any]) -> EndpointOptions:
    """Options of the policy's endpoint (key, limits of requests). Also checks that the endpoints that environments call
    serve their models, and registers them in this process. Raises ValueError for invalid options, PolicyUnreachable,
    EndpointRefused or EvaluationError for an endpoint that does not answer, refuses the key or lacks the model."""
    options, endpoints = policy_options(config), environment_endpoints(config)
    register_endpoints(*endpoints)
    check_endpoints(*endpoints)
    return options


def policy_options(config: EvalConfig[Any]) -> EndpointOptions:
    """Options of the policy's endpoint. Raises ValueError for an unset key variable, an invalid key, or endpoint flags
    with a policy that asks no endpoint."""
    url = config.policy.removeprefix(_PREFIX)
    at_endpoint = url != config.policy
    if not at_endpoint and (config.policy_key_env or config.policy_body or config.policy_api != "chat"):
        flags = "--policy-key-env, --policy-body, --policy-api"
        raise ValueError(f"--policy {redact_url(config.policy)}: {flags} are of openai:URL")
    return EndpointOptions(
        key=Key.of(config.policy_key_env, "--policy-key-env", url) if at_endpoint else Key(),
        patience_s=config.patience_s,
        api=config.policy_api,
        body=config.policy_body,
        token_field=config.policy_token_field,
        resend_reasoning=config.resend_reasoning,
        thinking_tokens=config.thinking_tokens,
        needs_usage=at_endpoint and bool(config.episode_tokens or config.episode_cost),
    )


def environment_endpoints(config: EvalConfig[Any]) -> tuple[Endpoint, ...]:
    """Endpoints that environments call, for example for a simulated user; none in a replay. Raises ValueError for a
    wrong address, an unset or invalid key, ``teacher_key_env`` without endpoints, and an unknown benchmark."""
    addresses = (
        find(config.benchmark).details.endpoints(config.options) if not config.policy.startswith("replay:") else ()
    )
    if config.teacher_key_env and not addresses:
        raise ValueError("--teacher-key-env: no environment of this evaluation asks an endpoint")
    return tuple(_endpoint(text, config) for text in addresses)


def _endpoint(text: str, config: EvalConfig[Any]) -> Endpoint:
    url, _, model = text.removeprefix(_PREFIX).partition("#")
    if not url.startswith(("http://", "https://")) or not model:
        raise ValueError(f"an environment asks {redact_url(text)!r}: expected openai:URL#MODEL")
    url = checked_url(url, "--teacher")
    key = Key.of(config.teacher_key_env, "--teacher-key-env", url)
    return Endpoint(url, model, EndpointOptions(key, config.patience_s, body=config.teacher_body))


def check_endpoints(*endpoints: Endpoint) -> None:
    """Query each endpoint for its models. Raises PolicyUnreachable if one does not answer, EndpointRefused if it
    refuses the key, EvaluationError if it lists models, but not the endpoint's."""
    for endpoint in endpoints:
        patience_s = min(endpoint.options.patience_s, PROBE_S)
        probe = OpenAIPolicy(endpoint.url, endpoint.model, options=endpoint.options, patience_s=patience_s)
        with contextlib.closing(probe):
            models = probe.served_models()
        if models and endpoint.model not in models:
            served = ", ".join(models)[:1000]
            raise EvaluationError(f"{endpoint.url}: model {endpoint.model!r} is not served (served: {served})")
