"""A policy that asks a model on Ray Serve by its handle, from any process of the cluster: no HTTP, no port.

Imports neither the engine nor jax: requests are the plain values of ``serve.token_requests``."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray.exceptions
from ray import serve
from ray.serve.exceptions import RayServeException

from lemur_ray.agents.endpoint import AUTO_THINKING
from lemur_ray.agents.endpoint_retries import RetryableError
from lemur_ray.agents.handle_policy import HandlePolicy


@dataclass(frozen=True)
class HandleSpec:
    """Factory of a policy that asks the model of the Serve application ``app_name`` by its Ray handle; may be sent to,
    and called in, any process of the cluster."""

    app_name: str
    label: str
    """Name of the policy in keys and reports"""
    patience_s: float = 240.0
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Sampling options of every request besides those of ``agents.messages.Sampling``, as over HTTP"""
    thinking_tokens: int = AUTO_THINKING
    """Tokens of reasoning besides those of a reply, as in ``agents.endpoint.EndpointOptions``"""

    def __call__(self) -> HandlePolicy:
        options: dict[str, Any] = {"sampling": self.sampling, "thinking_tokens": self.thinking_tokens}
        return HandlePolicy(_Handle(self.app_name), self.label, patience_s=self.patience_s, **options)


class _Handle:
    """Sends requests to the served model, as ``handle_policy.Ask``; raises RetryableError if it does not answer. Serve
    keeps one connection per application and process, which all instances share, so there is none to close."""

    def __init__(self, app_name: str) -> None:
        self._app_name = app_name
        self._handle: Any = None
        self._lock = threading.Lock()

    def __call__(self, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        try:
            with self._lock:
                self._handle = self._handle or serve.get_app_handle(self._app_name)
            session_id = str(request.get("session", ""))
            response = self._handle.options(session_id=session_id).converse.remote(dict(request))
            try:
                answer: Mapping[str, Any] = response.result(timeout_s=timeout_s)
            except TimeoutError:
                response.cancel()
                raise
        except (ray.exceptions.RayError, RayServeException, TimeoutError) as error:
            raise RetryableError(f"{type(error).__name__}: {str(error)[:500]}") from error
        return answer
