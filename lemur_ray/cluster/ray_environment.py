"""Sets environment variables for Ray: those that it reads when imported, and those with which workers find the project.

Imports neither Ray nor anything heavy, so that a job can call ``prepare_process`` before anything else."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

PROJECT_ROOT = str(Path(os.path.abspath(__file__)).parents[2])
"""Folder that contains the package ``lemur_ray``: the checkout, or site-packages."""
USER_ENVIRONMENT = dict(os.environ)
"""Environment variables of the process before ``prepare_process`` changed them; jobs/doctor.py checks these."""


def prepare_process() -> None:
    """Set Ray's environment variables that the user has not set, and flush stdout and stderr after every line. Must run
    before Ray is imported. Safe to call twice."""
    for stream in (sys.stdout, sys.stderr):
        # A job's output is a file that somebody follows: line by line, not in blocks of 8 KiB.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    defaults = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_TRAIN_V2_ENABLED": "1",
        # A submitter's --runtime-env-json may set PYTHONPATH too: ours, which contains it, then goes to the workers.
        "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
    }
    if not sys.stdout.isatty():
        defaults["RAY_COLOR_PREFIX"] = "0"  # no escape codes in a log file
    if not os.environ.get("RAY_ADDRESS"):
        # A private cluster needs no token, and a token file of another Ray must not turn authentication on for it.
        defaults["RAY_AUTH_MODE"] = "disabled"
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def runtime_env() -> dict[str, Any]:
    """Ray runtime environment ({"env_vars": {"PYTHONPATH": ...}}) with which workers can import the project; {} if the
    job was submitted with a working directory that contains the project."""
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    working_dir = os.path.realpath(os.getcwd())  # Ray starts a job in its working directory
    contains_project = os.path.commonpath([working_dir, os.path.realpath(PROJECT_ROOT)]) == working_dir
    if contains_project and (job.get("runtime_env") or {}).get("working_dir"):
        return {}
    search_path = os.pathsep.join(filter(None, [PROJECT_ROOT, os.environ.get("PYTHONPATH")]))
    return {"env_vars": {"PYTHONPATH": search_path}}
