"""Exit codes of jobs: what each error asks for, the table in the guide, and a Ray job that KubeRay must not retry."""

from __future__ import annotations

import errno
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray.exceptions

from lemur_ray.agents.messages import EndpointAbsent, EndpointRefused, PolicyUnreachable
from lemur_ray.benchmarks.needs import missing_requirements, requirement_of
from lemur_ray.cluster import job_end
from lemur_ray.corpus.rows import RowSetError
from lemur_ray.evaluation.preflight import PreflightError
from lemur_ray.host.exit_codes import ExitCode, JobFailure, common_exit_code, exit_code_of
from lemur_ray.rollout.threads import PoolBroken
from lemur_ray.storage.retry_policy import credentials_error, missing_bucket_error, refusal_error, timeout_error
from lemur_ray.train.run.failures import WorkersLost
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped

ROOT = Path(__file__).resolve().parents[2]
PERSON, AGAIN = ExitCode.NEEDS_PERSON, ExitCode.TRY_AGAIN


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("--mesh.tp 3"), PERSON),
        (FileNotFoundError("no such corpus"), PERSON),
        (OSError(errno.ENOSPC, "No space left on device"), PERSON),
        (RunFolderError("another run"), PERSON),
        (TrainingStopped("no room"), PERSON),
        (WorkersLost("more than 9 times"), AGAIN),
        (refusal_error("gs://b", 401, "x"), PERSON),
        (refusal_error("gs://b", 403, "x"), PERSON),
        (refusal_error("s3://b", 400, "x", "ExpiredToken"), PERSON),
        (refusal_error("gs://b", 429, "x"), AGAIN),
        (refusal_error("gs://b", 503, "x"), AGAIN),
        (credentials_error("gs://b", ValueError("x")), PERSON),
        (missing_bucket_error("gs://b"), PERSON),
        (timeout_error("gs://b", 100), AGAIN),
        (caused(RunFolderError("cannot be written"), timeout_error("gs://b", 100)), AGAIN),
        (caused(RowSetError("cannot be read"), refusal_error("gs://b", 403, "x")), PERSON),
        (ConnectionResetError("by peer"), AGAIN),
        (OSError(errno.EHOSTUNREACH, "No route to host"), AGAIN),
        (ray.exceptions.RaySystemError(Exception("raylet died")), AGAIN),
        (ray.exceptions.ActorDiedError(), AGAIN),
        (ray.exceptions.RayTaskError("f", "text", KeyError("lr")).as_instanceof_cause(), PERSON),
        (ray.exceptions.RayTaskError("f", "text", timeout_error("gs://b", 1)).as_instanceof_cause(), AGAIN),
        (PolicyUnreachable("answered nobody"), AGAIN),
        (EndpointRefused("401"), PERSON),
        (EndpointAbsent("nothing listens"), PERSON),
        (PoolBroken("no host"), AGAIN),
        (JobFailure("no head answers", AGAIN), AGAIN),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
    ],
    ids=str,
)
def test_an_error_that_ends_a_job_has_the_code_of_what_helps(error: BaseException, code: ExitCode) -> None:
    assert exit_code_of(error) is code


@pytest.mark.parametrize(("flush", "status"), [(False, 0), (True, 141)], ids=["buffered", "flushed"])
def test_a_job_whose_reader_ends_first_prints_no_traceback(
    flush: bool, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    source = f"from lemur_ray.cluster import job_end; job_end.run(lambda: print('line', flush={flush}) or 0)"
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (status, b"")


@pytest.mark.parametrize("cause", [timeout_error("gs://b", 1), refusal_error("gs://b", 403, "x"), KeyError("lr")])
def test_an_error_from_another_process_keeps_the_code_of_its_cause(cause: Exception) -> None:
    error = caused(RowSetError("rows cannot be read"), cause)
    carried = pickle.loads(pickle.dumps(error))
    assert (str(carried), exit_code_of(carried)) == (str(error), exit_code_of(error))


def test_several_errors_are_tried_again_only_if_that_helps_against_all() -> None:
    busy, wrong = refusal_error("gs://b", 503, "x"), ValueError("--mesh.tp 3")
    assert common_exit_code([busy, timeout_error("gs://b", 1)]) is AGAIN
    assert common_exit_code([busy, wrong]) is PERSON


def test_a_preflight_of_an_evaluation_is_tried_again_if_only_services_were_away() -> None:
    def fails(error: Exception) -> Any:
        def look() -> None:
            raise error

        return requirement_of("endpoint", look)

    away, wrong = fails(PolicyUnreachable("no answer")), fails(EndpointRefused("401"))
    assert PreflightError("b", missing_requirements([away])).exit_code is AGAIN
    assert PreflightError("b", missing_requirements([away, wrong])).exit_code is PERSON


def test_the_table_of_the_guide_lists_every_code_and_whether_to_run_again() -> None:
    guide = (ROOT / "docs/guides/pods.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| .* \| (.*) \|$", guide, re.MULTILINE)
    assert {(int(number), name) for number, name, _ in rows} == {(code.value, code.name) for code in ExitCode}
    for number, _, again in rows:
        assert again.startswith("yes") is not ExitCode(int(number)).is_final


@pytest.mark.parametrize(
    ("statement", "code", "stderr"),
    [
        ("return 0", 0, ""),
        ("return 2", 2, ""),
        ("raise SystemExit(2)", 2, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("raise JobFailure('no head', ExitCode.TRY_AGAIN)", 75, "no head\n"),
        ("raise KeyboardInterrupt", 130, ""),
        ("raise TimeoutError('slow')", 75, "TimeoutError: slow\n"),
        ("raise KeyError('lr')", 1, "KeyError: 'lr'\n"),
    ],
)
def test_a_job_ends_its_process_with_its_code(statement: str, code: int, stderr: str) -> None:
    script = f"""
from lemur_ray.cluster.job_end import run
from lemur_ray.host.exit_codes import ExitCode, JobFailure
def main():
    {statement}
run(main)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stderr.endswith(stderr)


@pytest.mark.parametrize(
    ("code", "retried_by", "stops"),
    [(1, "kuberay", True), (2, "kuberay", True), (79, "kuberay", True), (75, "kuberay", False), (130, "kuberay", False),
     (0, "kuberay", False), (1, "", False)],
)  # fmt: skip
def test_only_a_job_that_would_fail_again_stops_its_ray_job(
    monkeypatch: pytest.MonkeyPatch, code: int, retried_by: str, stops: bool
) -> None:
    stopped: list[int] = []
    monkeypatch.setenv(job_end.RETRIED_BY, retried_by)
    monkeypatch.setattr(job_end, "_stop_ray_job", stopped.append)
    with pytest.raises(SystemExit) as ended:
        job_end.run(lambda: code)
    assert (ended.value.code, bool(stopped)) == (code, stops)
