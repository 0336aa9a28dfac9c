"""Application builder for Ray Serve config files, with the flags of ``jobs/serve.py``.

    applications:
      - name: lemur
        import_path: lemur_ray.serve.on_ray.application:build
        args: {command: --model gs://BUCKET/runs/lemur-70b-chat --engine.dtype bfloat16}

A RayService (``cluster/rayservice-serve.yaml``) or ``serve deploy`` thus serves the same as the job, without a driver
process. The key is that of LEMUR_API_KEY where Serve runs. Needs a running Ray."""

import os
import shlex
from collections.abc import Mapping

from ray import serve

from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.http.api_key import KEY_VARIABLE, server_key_digest
from lemur_ray.serve.on_ray.deployments import application_of


def build(args: Mapping[str, str]) -> serve.Application:
    """Build the application; Ray Serve calls it with the ``args`` of its config file, of which only ``command`` is
    allowed. Raises ValueError for an invalid command, with the reason."""
    job = job_of(args)
    return application_of(job, job.model, server_key_digest("0.0.0.0", os.environ.get(KEY_VARIABLE, "")))


def job_of(args: Mapping[str, str]) -> ServeJob:
    """Parse ``args["command"]``, flags of jobs/serve.py. Raises ValueError if they are invalid or name no model."""
    if set(args) != {"command"}:
        raise ValueError(f"args are {', '.join(sorted(args)) or 'empty'}: expected command, with the flags of serve.py")
    try:
        job = ServeJob.parse(shlex.split(args["command"]))
    except SystemExit as refused:  # the parser has written the reason to stderr, which is in the log of Serve
        raise ValueError(f"command {args['command']!r} is refused by jobs/serve.py: see above") from refused
    default = ServeJob()
    names = ("host", "port", "no_ray", "api_key")
    if flags := [name for name in names if getattr(job, name) != getattr(default, name)]:
        raise ValueError(f"command has {', '.join(flags)}: where it listens is Serve's, the key is {KEY_VARIABLE}'s")
    if not job.model:
        raise ValueError("command names no --model: a cluster has no newest run")
    return job
