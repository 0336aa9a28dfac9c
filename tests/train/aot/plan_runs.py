"""The job that plans for TPUs, in a process of its own, and its compiler."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def libtpu() -> None:
    if importlib.util.find_spec("libtpu") is None:
        if os.environ.get("CI"):
            pytest.fail("libtpu is not installed: in CI it must be (requirements-dev.lock)")
        pytest.skip("libtpu is not installed: pip install 'lemur-ray[tpu]'")


def plan_pod(*arguments: str, code: int = 0, limit_s: float = 500.0) -> tuple[dict[str, Any], str]:
    """The job in a process of its own, as jax must not be there before its environment is."""
    command = [sys.executable, str(ROOT / "jobs" / "plan_pod.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stdout
