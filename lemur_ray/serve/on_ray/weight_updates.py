"""New weights for all replicas of an application, or for none: every replica checks them before the first one switches.

A replica that starts later loads the model that it was deployed with. Needs a running Ray Serve.
"""

from __future__ import annotations

import contextlib

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

UPDATE_S = 600.0
"""Seconds within which all replicas must have read new weights, and again to switch to them."""
DROP_S = 5.0
"""Seconds within which replicas must forget weights that one of them has refused."""
_FAULTS = (RayError, RayServeException, TimeoutError)


def update_all(app_name: str, spec: str) -> list[str]:
    """Switch every replica to the weights of ``spec``; returns the version of each once all of them use it.
    Raises RuntimeError if a replica refuses them, reads another version or is lost: until all have checked them, the
    old weights stay in every replica; one that is lost later is the only one without the new weights."""
    try:
        handle = serve.get_app_handle(app_name)
        versions = sorted(set(handle.broadcast("stage_weights", spec).results(timeout_s=UPDATE_S)))
        if len(versions) != 1:
            raise RuntimeError(f"replicas read the weights {', '.join(versions)} of {spec}: try again")
    except (*_FAULTS, RuntimeError) as error:
        with contextlib.suppress(*_FAULTS):
            serve.get_app_handle(app_name).broadcast("drop_weights").results(timeout_s=DROP_S, return_exceptions=True)
        raise RuntimeError(_last_line(error)) from error
    try:
        handle.broadcast("commit_weights", spec, versions[0]).results(timeout_s=UPDATE_S)
        # Of a replica that started meanwhile nobody has asked anything yet.
        return list(handle.broadcast("commit_weights", spec, versions[0]).results(timeout_s=UPDATE_S))
    except _FAULTS as error:
        raise RuntimeError(f"a replica did not switch to {versions[0]}: {_last_line(error)}") from error


def _last_line(error: BaseException) -> str:
    """The reason at the end of an error that Ray has wrapped in a traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1].removeprefix("RuntimeError: ") if lines else type(error).__name__
