"""jobs/ leads sys.path in every job, so a job's name must not be the name of something that is imported."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def job_names() -> list[str]:
    return sorted(p.stem for p in (ROOT / "jobs").glob("*.py"))


def test_there_are_jobs() -> None:
    assert {"doctor", "report"} <= set(job_names())


def test_no_job_shadows_a_module_of_the_standard_library() -> None:
    assert not set(job_names()) & set(sys.stdlib_module_names)


def test_no_job_shadows_a_module_of_an_installed_package() -> None:
    # lemur-ray itself may be installed; its own console scripts bring no module named after a job.
    assert not set(job_names()) & set(importlib.metadata.packages_distributions())


def test_no_job_shadows_our_own_packages() -> None:
    assert not set(job_names()) & {"lemur_ray", "envs", "tests", "jobs"}
