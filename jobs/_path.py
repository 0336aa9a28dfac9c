"""First import of every job: makes ``lemur_ray`` and ``envs`` importable here and in workers, and finds the cluster.

A job works installed or not, as ``ray job submit -- python jobs/x.py`` on a head started in the repository, with
``--working-dir .``, and as plain ``python jobs/x.py``. Imports nothing heavy; Ray only in ``connect``.
"""

import atexit
import io
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

for stream in (sys.stdout, sys.stderr):
    # A job's output is a file that somebody follows: line by line, not in blocks of 8 KiB.
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(line_buffering=True)

HEAD_S = 30.0
"""How long a head may take to answer."""
GIVEN = dict(os.environ)
"""The environment as the user gave it (`jobs/doctor.py` looks at that one)."""

# Read when Ray is imported, so they are set before that. Without an address this process will own a private cluster: it
# needs no token, and a token file left in the home folder by another Ray must not turn authentication on for it.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
if not sys.stdout.isatty():
    os.environ.setdefault("RAY_COLOR_PREFIX", "0")  # no escape codes in a log file
# A submitter's --runtime-env-json may set PYTHONPATH too: ours, which holds it, then goes to the workers.
os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
if not os.environ.get("RAY_ADDRESS"):
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")


def failed(why: str) -> int:
    """Say why a job could not do its work; its exit code."""
    print(why, file=sys.stderr, flush=True)
    return 1


def runtime_env() -> dict[str, Any]:
    """What workers need to import the project: nothing where the job's working dir holds it, else our PYTHONPATH."""
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    here = os.path.realpath(os.getcwd())  # Ray begins a job in its working dir
    holds_us = os.path.commonpath([here, os.path.realpath(ROOT)]) == here
    if holds_us and (job.get("runtime_env") or {}).get("working_dir"):
        return {}
    return {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))}}


def connect(alike: bool = True, **options: Any) -> str:
    """Join the cluster of ``RAY_ADDRESS`` (``ray job submit`` sets it), or start a private one that ends with this job.

    Returns the address, which is in ``RAY_ADDRESS`` from then on: parts of Ray Train connect a second time and would
    otherwise join whichever cluster they find. ``options`` go to ``ray.init``. ``alike``: refuse hosts that hold other
    code than this one.
    """
    import ray

    # Ray Data tells of every start and end of a pipeline; jobs print their own progress.
    for name in ("ray.data._internal.execution.streaming_executor", "ray.data._internal.progress"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if ray.is_initialized():
        return os.environ["RAY_ADDRESS"]
    address = os.environ.get("RAY_ADDRESS")
    options = {"log_to_driver": True, "logging_level": "WARNING", "runtime_env": runtime_env(), **options}
    if address and address.startswith(("http://", "https://")):
        raise SystemExit(
            f"RAY_ADDRESS={address} is a dashboard: use `ray job submit -- python jobs/...`, or unset RAY_ADDRESS"
        )
    if address and address.startswith("ray://"):
        raise SystemExit(
            f"RAY_ADDRESS={address} is that of Ray Client, through which jobs do not run: submit to the cluster "
            "(ray job submit --address http://HEAD:8265 -- python jobs/...), or run on one of its hosts"
        )
    if address:
        _knock(address)
        # Helper actors of Ray Train look for a cluster by themselves and would find any on this machine.
        env_vars = {**options["runtime_env"].get("env_vars", {}), "RAY_ADDRESS": address}
        options["runtime_env"] = {**options["runtime_env"], "env_vars": env_vars}
        ray.init(address=address, **options)
        _watch_head(address)
        if alike:
            _check_hosts()
        return address
    # Short, because unix socket paths end at 107 bytes.
    folder = tempfile.mkdtemp(prefix="lr-", dir="/tmp" if os.path.isdir("/tmp") else None)
    atexit.register(_end_private_cluster, folder)
    # Ray prints what it finds in libtpu's log folder as this job's output: the machine's own holds other programs' too.
    os.environ.setdefault("TPU_LOG_DIR", folder)
    try:
        context = ray.init(address="local", include_dashboard=False, _temp_dir=folder, **options)
    except Exception as error:
        # A busy machine may need longer than the 30 s that Ray gives its own daemon, a limit without a setting.
        if "timed out during startup" not in str(error):
            raise
        print("Ray did not start within its 30 s: trying once more", file=sys.stderr, flush=True)
        ray.shutdown()
        try:
            context = ray.init(address="local", include_dashboard=False, _temp_dir=folder, **options)
        except Exception as again:
            raise SystemExit(
                f"Ray did not start ({again}): the machine is too busy. Run the same command again, or start a head "
                "yourself (ray start --head) and submit to it"
            ) from again
    os.environ["RAY_ADDRESS"] = context.address_info["address"]
    return os.environ["RAY_ADDRESS"]


def _knock(address: str) -> None:
    """Raises SystemExit where no head listens there: Ray itself goes on trying for minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not port.isdigit():
        return
    deadline = time.monotonic() + HEAD_S
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"RAY_ADDRESS={address}: no head answers there ({error}): start one and give its address, or unset "
                    "RAY_ADDRESS"
                ) from error
        time.sleep(0.5)


def _watch_head(address: str) -> None:
    """From here on this process ends with a sentence where the head is lost, or another one is in its place."""
    import ray
    from lemur_ray.cluster.head_watch import HeadWatch

    worker, here = ray._private.worker.global_worker, ray.NodeID.from_hex(ray.get_runtime_context().get_node_id())
    gcs = worker.gcs_client

    def knows_us() -> bool:
        left = getattr(worker, "gcs_client", None) is not gcs  # by ray.shutdown
        try:
            return left or gcs.check_alive([here], timeout=5)[0]
        except Exception as error:
            if "WrongClusterID" in str(error):
                return False
            raise

    watch = HeadWatch(address, knows_us)
    atexit.register(watch.end)


def _check_hosts() -> None:
    """Refuse hosts that would run other code than this process: workers import what lies there.

    Only where the job did not bring its code, and there are several hosts. Raises SystemExit.
    """
    import ray

    if not runtime_env() or len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}) < 2:
        return
    from lemur_ray.doctor.hosts.consistency import project, python, shared_packages
    from lemur_ray.doctor.hosts.survey import ask

    for check in (python, project, shared_packages) if (hosts := ask().hosts) else ():
        if (found := check(hosts)).status != "ok":
            raise SystemExit(f"{found.name}: {found.found}: {found.fix}")


def devices(alone: bool = False, **options: Any) -> Any:
    """What a job would compute on: of the cluster of ``RAY_ADDRESS``, which is joined (``options``: of ``connect``),
    else of this machine, where nothing is started. ``alone``: this machine in any case."""
    from pathlib import Path

    from lemur_ray.doctor.devices import devices, of_cluster
    from lemur_ray.doctor.machine import Machine

    if alone or not os.environ.get("RAY_ADDRESS"):
        return devices(Machine(Path(ROOT), env=GIVEN))
    connect(**options)
    import ray

    most = ray._private.state.state.get_max_resources_from_cluster_config()
    return of_cluster(ray.cluster_resources(), most, ray.nodes())


def _end_private_cluster(folder: str) -> None:
    import ray

    ray.shutdown()
    os.environ.pop("RAY_ADDRESS", None)
    shutil.rmtree(folder, ignore_errors=True)
