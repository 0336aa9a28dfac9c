"""First import of every job: makes ``lemur_ray`` and ``envs`` importable and prepares the process for Ray.

A job works installed or not, as ``ray job submit -- python jobs/x.py`` on a head started in the repository, with
``--working-dir .``, and as plain ``python jobs/x.py``. Imports nothing heavy.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from lemur_ray.cluster.ray_environment import prepare_process

prepare_process()


def fail(message: str) -> int:
    """Print why a job failed to stderr. Returns the exit code 1."""
    print(message, file=sys.stderr, flush=True)
    return 1
