"""What a job hands its workers so that they find the project (``jobs/_path.py``)."""

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    yield importlib.import_module("_path")
    sys.modules.pop("_path")


def test_workers_find_the_project_in_the_jobs_working_dir_or_else_where_the_job_found_it(
    bootstrap: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = {"env_vars": {"PYTHONPATH": os.path.realpath(ROOT)}}
    assert bootstrap.runtime_env() == told
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": {"working_dir": "gcs://x.zip"}}))
    monkeypatch.chdir(ROOT)
    assert bootstrap.runtime_env() == {}
    monkeypatch.chdir(tmp_path)  # a working dir of data, and the project in the image
    assert bootstrap.runtime_env() == told
