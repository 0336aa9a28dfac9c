"""From any process of the cluster to a model that Ray Serve runs there, by its handle: no HTTP, no port.

Imports neither the engine nor jax: what travels are the plain values of ``serve.token_requests``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray.exceptions
from ray import serve
from ray.serve.exceptions import RayServeException

from lemur_ray.agents.endpoint_retries import RetryableError
from lemur_ray.agents.handle_policy import HandlePolicy


@dataclass(frozen=True)
class HandleSpec:
    """A model that is served here. Calling it, in any process of the cluster, builds the policy."""

    app_name: str
    label: str
    """Name of the policy in keys and reports."""
    patience_s: float = 240.0

    def __call__(self) -> HandlePolicy:
        return HandlePolicy(_Asking(self.app_name), self.label, patience_s=self.patience_s)


class _Asking:
    """See ``handle_policy.Ask``. Finds the model when it is first asked, in the thread that asks."""

    def __init__(self, app_name: str) -> None:
        self._app_name = app_name
        self._handle: Any = None
        self._lock = threading.Lock()

    def __call__(self, asked: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        try:
            with self._lock:
                self._handle = self._handle or serve.get_app_handle(self._app_name)
            session = str(asked.get("session", ""))
            answer = self._handle.options(session_id=session).converse.remote(dict(asked))
            try:
                found: Mapping[str, Any] = answer.result(timeout_s=timeout_s)
            except TimeoutError:
                answer.cancel()
                raise
        except (ray.exceptions.RayError, RayServeException, TimeoutError) as error:
            raise RetryableError(f"{type(error).__name__}: {str(error)[:500]}") from error
        return found
