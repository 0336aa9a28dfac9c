"""First import of every job: makes ``lemur_ray`` and ``envs`` importable and prepares the process for Ray.

A job works installed or not, as ``ray job submit -- python jobs/x.py`` on a head started in the repository, with
``--working-dir .``, as plain ``python jobs/x.py`` and as ``lemur x``. Imports nothing heavy."""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if "lemur_ray" not in sys.modules and ROOT not in sys.path:  # ``lemur`` has imported it, wherever it is installed
    sys.path.insert(0, ROOT)

from lemur_ray.cluster.job_end import run as run
from lemur_ray.cluster.ray_environment import prepare_process
from lemur_ray.host.commands import as_typed, program
from lemur_ray.host.exit_codes import exit_code_of

prepare_process()


def done(text: str) -> int:
    """Print the last lines of a job that has succeeded. Returns its exit code."""
    print(text, flush=True)
    return 0


def fail(job: str, error: Exception) -> int:
    """Print why a job failed to stderr. Returns its exit code."""
    print(as_typed(f"{program(job)}: {error}"), file=sys.stderr, flush=True)
    return exit_code_of(error)
