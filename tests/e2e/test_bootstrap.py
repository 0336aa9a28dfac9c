"""The runtime environment with which a job's workers find the project."""

import json
import os
from pathlib import Path

import pytest

from lemur_ray.cluster.ray_environment import runtime_env
from tests.conftest import ROOT


def test_workers_find_the_project_in_the_jobs_working_dir_or_else_where_the_job_found_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    told = {"env_vars": {"PYTHONPATH": os.path.realpath(ROOT)}}
    assert runtime_env() == told
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": {"working_dir": "gcs://x.zip"}}))
    monkeypatch.chdir(ROOT)
    assert runtime_env() == {}
    monkeypatch.chdir(tmp_path)  # a working dir of data, and the project in the image
    assert runtime_env() == told
