"""Runs the ``main`` of a job and ends the process with its exit code; for KubeRay it ends the Ray job instead.

KubeRay (1.7) does not see exit codes: a RayJob whose Ray job failed starts up to ``backoffLimit`` new clusters, one
whose Ray job was stopped starts none. So if LEMUR_RETRIED_BY is "kuberay", a job that would fail again in the same way
stops its own Ray job. Ray is imported only for that."""

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from lemur_ray.host.commands import as_typed
from lemur_ray.host.exit_codes import ExitCode, exit_code_of

RETRIED_BY = "LEMUR_RETRIED_BY"
KUBERAY = "kuberay"
_STOP_WAIT_S = 60.0
"""Maximum seconds to wait for Ray's SIGTERM after stopping the Ray job; then the process ends with its exit code."""


def run(main: Callable[[], int]) -> NoReturn:
    """Call ``main`` and end the process with the exit code that it returns or its error has (``host.exit_codes``)."""
    try:
        code = main()
    except SystemExit as error:
        if isinstance(error.code, str):
            print(as_typed(error.code), file=sys.stderr)
        code = error.code if isinstance(error.code, int) else exit_code_of(error) if error.code else 0
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            sys.exit(128 + signal.SIGPIPE)
        traceback.print_exc()
        code = exit_code_of(error)
    _reader_is_gone()
    is_final = code not in list(ExitCode) or ExitCode(code).is_final
    if code and is_final and os.environ.get(RETRIED_BY) == KUBERAY:
        _stop_ray_job(code)
    sys.exit(code)


def _reader_is_gone() -> bool:
    """Whether the reader of stdout has ended (``| head``); further output is then discarded without a message."""
    stdout = 1
    poller = select.poll()
    poller.register(stdout, 0)
    gone = any(event & select.POLLERR for _, event in poller.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return gone


def _stop_ray_job(code: int) -> None:
    """Stop the Ray job whose driver this process is, and wait for its end; returns if that fails."""
    submission = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    job = (submission.get("metadata") or {}).get("job_submission_id")
    if not job:
        return
    print(f"exit code {code}: a person must act, so this Ray job is stopped: KubeRay would try it again", flush=True)
    try:
        from lemur_ray.cluster.connection import stop_submitted_job

        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stop_submitted_job(job)
        time.sleep(_STOP_WAIT_S)
    except Exception as error:  # the client has no common error class
        print(f"the Ray job cannot be stopped ({error}): KubeRay starts new clusters", file=sys.stderr, flush=True)
