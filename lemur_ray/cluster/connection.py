"""Connection of a job to its Ray cluster: the one of ``RAY_ADDRESS``, else a private one that ends with the process.

Every failure that a user can fix ends the process with one sentence (SystemExit). Ray is imported only when needed."""

import atexit
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lemur_ray.cluster.head_watch import HeadWatch
from lemur_ray.cluster.ray_environment import PROJECT_ROOT, USER_ENVIRONMENT, runtime_env
from lemur_ray.cluster.ray_output import redirect_ray_output
from lemur_ray.doctor.devices import Devices, cluster_devices, machine_devices
from lemur_ray.doctor.machine import Machine
from lemur_ray.host.exit_codes import ExitCode, JobFailure

HEAD_TIMEOUT_S = 30.0
"""Seconds within which the cluster's head must accept a connection."""
CLIENT_HINT = (
    "is that of Ray Client, through which jobs do not run: submit to the cluster (ray job submit --address "
    "http://HEAD:8265 -- python jobs/...), or run on one of its hosts"
)
DASHBOARD_HINT = "is a dashboard: use `ray job submit -- python jobs/...`, or unset RAY_ADDRESS"


def connect(require_same_code: bool = True, with_data: bool = False, **options: Any) -> str:
    """Join the cluster of ``RAY_ADDRESS`` (set by ``ray job submit``), or start a private one that ends with this job.
    Returns the cluster's address and sets ``RAY_ADDRESS`` to it, because parts of Ray Train connect a second time and
    would otherwise join any cluster on this machine. ``options``: keywords for ``ray.init``. ``require_same_code``:
    refuse hosts with other code than this one. ``with_data``: the job uses Ray Data, which is imported first, so that
    its messages go to the log as those of Ray. Raises SystemExit with the reason if connecting fails."""
    import ray

    if with_data:
        import ray.data

    # Ray Data logs every start and end of a pipeline; jobs print their own progress.
    for name in ("ray.data._internal.execution.streaming_executor", "ray.data._internal.progress"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if ray.is_initialized():
        redirect_ray_output()  # for loggers of modules imported since
        return os.environ["RAY_ADDRESS"]
    address = os.environ.get("RAY_ADDRESS")
    options = {"log_to_driver": True, "logging_level": "WARNING", "runtime_env": runtime_env(), **options}
    if not address:
        return _start_private_cluster(options)
    if address.startswith(("http://", "https://", "ray://")):
        hint = CLIENT_HINT if address.startswith("ray://") else DASHBOARD_HINT
        raise SystemExit(f"RAY_ADDRESS={address} {hint}")
    _wait_for_head(address)
    # Helper actors of Ray Train look for a cluster by themselves and would join any on this machine.
    env_vars = {**options["runtime_env"].get("env_vars", {}), "RAY_ADDRESS": address}
    options["runtime_env"] = {**options["runtime_env"], "env_vars": env_vars}
    ray.init(address=address, **options)
    redirect_ray_output()
    _watch_head(address)
    if require_same_code:
        _refuse_other_code()
    return address


def has_cluster() -> bool:
    """Whether a cluster is named (``RAY_ADDRESS``, which ``ray job submit`` sets) or this process has joined one."""
    ray = sys.modules.get("ray")
    return bool(os.environ.get("RAY_ADDRESS")) or (ray is not None and ray.is_initialized())


def available_devices(this_machine: bool = False, **options: Any) -> Devices:
    """Devices a job would compute on: those of the cluster of ``RAY_ADDRESS``, which is joined, else this machine's.
    ``options``: keywords for ``connect``. ``this_machine``: ignore ``RAY_ADDRESS``. Starts no cluster."""
    if this_machine or not os.environ.get("RAY_ADDRESS"):
        return machine_devices(Machine(Path(PROJECT_ROOT), env=USER_ENVIRONMENT))
    connect(**options)
    import ray

    maxima = ray._private.state.state.get_max_resources_from_cluster_config()
    return cluster_devices(ray.cluster_resources(), maxima, ray.nodes())


def stop_submitted_job(job: str) -> None:
    """Stop the job with submission id ``job`` on this process's cluster. Raises the errors of Ray's job client."""
    from ray.dashboard.utils import get_address_for_submission_client
    from ray.job_submission import JobSubmissionClient

    JobSubmissionClient(get_address_for_submission_client(None)).stop_job(job)


def _start_private_cluster(options: dict[str, Any]) -> str:
    import ray

    # Short, because unix socket paths end at 107 bytes.
    folder = tempfile.mkdtemp(prefix="lr-", dir="/tmp" if os.path.isdir("/tmp") else None)
    atexit.register(_stop_private_cluster, folder)
    # Ray prints what lies in libtpu's log folder as this job's output: the machine's own has other programs' logs too.
    os.environ.setdefault("TPU_LOG_DIR", folder)
    options = {"address": "local", "include_dashboard": False, "_temp_dir": folder, **options}
    try:
        context: Any = ray.init(**options)
    except Exception as error:
        # A busy machine may need longer than the 30 s that Ray gives its own daemon, a limit without a setting.
        if "timed out during startup" not in str(error):
            raise
        print("Ray did not start within its 30 s: trying once more", file=sys.stderr, flush=True)
        ray.shutdown()
        try:
            context = ray.init(**options)
        except Exception as second_error:
            raise JobFailure(
                f"Ray did not start ({second_error}): the machine is too busy. Run the same command again, or start a "
                "head yourself (ray start --head) and submit to it",
                ExitCode.TRY_AGAIN,
            ) from second_error
    redirect_ray_output()
    os.environ["RAY_ADDRESS"] = context.address_info["address"]
    return os.environ["RAY_ADDRESS"]


def _stop_private_cluster(folder: str) -> None:
    import ray

    ray.shutdown()
    os.environ.pop("RAY_ADDRESS", None)
    shutil.rmtree(folder, ignore_errors=True)


def _wait_for_head(address: str) -> None:
    """Wait for a head at the address. Raises SystemExit after HEAD_TIMEOUT_S; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not port.isdigit():
        return
    deadline = time.monotonic() + HEAD_TIMEOUT_S
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise JobFailure(
                    f"RAY_ADDRESS={address}: no head answers there ({error}): start one and give its address, or unset "
                    "RAY_ADDRESS",
                    ExitCode.TRY_AGAIN,
                ) from error
        time.sleep(0.5)


def _watch_head(address: str) -> None:
    """Start a thread that ends this process, with a message, if the head is lost or replaced by another one."""
    import ray

    worker: Any = ray._private.worker.global_worker
    this_node = ray.NodeID.from_hex(ray.get_runtime_context().get_node_id())
    gcs = worker.gcs_client

    def is_member() -> bool:
        disconnected = getattr(worker, "gcs_client", None) is not gcs  # by ray.shutdown
        try:
            return disconnected or gcs.check_alive([this_node], timeout=5)[0]
        except Exception as error:
            if "WrongClusterID" in str(error):  # Ray has no exception type for it
                return False
            raise

    atexit.register(HeadWatch(address, is_member).stop)


def _refuse_other_code() -> None:
    """Raise SystemExit if hosts have other code than this process, because workers import their host's code. Checked
    only if the cluster has several hosts and the job did not upload its code."""
    import ray

    if not runtime_env() or len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}) < 2:
        return
    from lemur_ray.doctor.hosts.consistency import project, python, shared_packages
    from lemur_ray.doctor.hosts.survey import ask

    for check in (python, project, shared_packages) if (hosts := ask().hosts) else ():
        if (result := check(hosts)).status != "ok":
            raise SystemExit(f"{result.name}: {result.found}: {result.fix}")
