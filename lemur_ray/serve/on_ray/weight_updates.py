"""New weights for all replicas of an application, or for none: every replica checks them before the first one switches.

The choice is recorded before that, so replicas that start later serve the same. Needs a running Ray Serve.
"""

import contextlib

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from lemur_ray.serve.on_ray.weights_record import Choice, WeightsRecord

UPDATE_S = 600.0
"""Seconds within which all replicas must have read new weights, and again to switch to them."""
ANSWER_S = 60.0
"""Seconds within which a replica must name its record."""
DROP_S = 5.0
"""Seconds within which replicas must forget weights that one of them has refused."""
_FAULTS = (RayError, RayServeException, TimeoutError)


def update_all(app_name: str, spec: str) -> list[str]:
    """Switch every replica to the weights of ``spec``; returns the version of each once all of them use it.
    app_name: application of the replicas in Serve. Raises RuntimeError if a replica refuses them, reads another version
    or is lost: until all have checked them, the old weights stay in every replica; one that is lost later starts again
    with the new ones. Also raises it if another update was faster: of two at once, the first whose weights all replicas
    have checked is used by all."""
    try:
        handle = serve.get_app_handle(app_name)
        name, spec = handle.weights_target.remote(spec).result(timeout_s=ANSWER_S)
        record = WeightsRecord(name)
        before = record.read()
        versions = sorted(set(handle.broadcast("stage_weights", spec).results(timeout_s=UPDATE_S)))
        if len(versions) != 1:
            raise RuntimeError(f"replicas read the weights {', '.join(versions)} of {spec}: try again")
        choice = Choice(before.number + 1, spec, versions[0])
        if not record.add(choice):
            raise RuntimeError(f"{spec}: another update to {record.read().spec} was faster: update again to replace it")
    except (*_FAULTS, RuntimeError) as error:
        with contextlib.suppress(*_FAULTS):
            serve.get_app_handle(app_name).broadcast("drop_weights").results(timeout_s=DROP_S, return_exceptions=True)
        raise RuntimeError(_last_line(error)) from error
    try:
        handle.broadcast("commit_weights", choice).results(timeout_s=UPDATE_S)
        # A replica that started meanwhile has not been asked yet.
        used = list(handle.broadcast("commit_weights", choice).results(timeout_s=UPDATE_S))
    except _FAULTS as error:
        later = "replicas that start from now on load them: update again, to these or to others"
        raise RuntimeError(f"a replica did not switch to {choice.version}, {later}: {_last_line(error)}") from error
    if {*used} != {choice.version}:
        raise RuntimeError(f"{spec} was replaced by an update to {record.read().spec}")
    return used


def _last_line(error: BaseException) -> str:
    """The reason at the end of an error that Ray has wrapped in a traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1].removeprefix("RuntimeError: ") if lines else type(error).__name__
