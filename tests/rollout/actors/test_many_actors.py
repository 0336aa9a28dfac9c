"""What the driver of a run takes where there are thousands of actors."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.sweep
def test_five_thousand_actors_are_one_driver_below_a_gigabyte_and_500_orders_a_second() -> None:
    command = [sys.executable, "-m", "tests.perf.rollout.many_actors", "--actors", "5000", "--episodes", "20000"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600).stdout
    found = json.loads(said.splitlines()[-1])
    assert (found["actors"], found["episodes"]) == (5000, 20_000)
    assert found["peak_mb"] < 1000, found
    assert found["orders_per_s"] >= 500, found
