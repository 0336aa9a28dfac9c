"""A step that never ends ends its process, with the place where it stood; one that is slow does not."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from lemur_ray.train.run.watchdog import EXIT_CODE, MIN_LIMIT_S, PATIENCE, StepWatchdog, least_s

HANGS = """
import threading
from lemur_ray.train.run.watchdog import StepWatchdog

def a_collective_that_waits():
    threading.Event().wait()

with StepWatchdog(least_s=0.3) as watchdog:
    watchdog.step_ended(41)
    a_collective_that_waits()
"""


def test_a_step_that_never_ends_ends_its_process_and_says_where_it_stood() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=100)
    assert done.returncode == EXIT_CODE
    assert "after step 41" in done.stderr
    assert "a_collective_that_waits" in done.stderr


def test_what_ends_in_time_and_what_is_not_watched_go_on() -> None:
    with StepWatchdog(least_s=60.0) as watchdog:
        for step in range(1, 4):
            watchdog.step_ended(step)
        assert watchdog.limit_s == 60.0
    with StepWatchdog(watches=False, least_s=0.0) as watchdog:
        watchdog.step_ended(1)


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds of the watchdog's clock pass."""
    now = [0.0]
    monkeypatch.setattr("lemur_ray.train.run.watchdog.time.monotonic", lambda: now[0])

    def later(seconds: float) -> None:
        now[0] += seconds

    return later


def test_slow_steps_are_waited_for_longer(wait: Callable[[float], None]) -> None:
    watchdog = StepWatchdog(watches=False)
    for step, took_s in enumerate((4000.0, 300.0, 200.0), 1):  # an hour of compiling, then minutes a step
        wait(took_s)
        watchdog.step_ended(step)
    assert watchdog.limit_s == 20 * 300.0


def test_once_steps_are_known_a_hang_of_one_is_noticed_sooner_and_what_is_none_is_waited_for(
    wait: Callable[[float], None],
) -> None:
    watchdog = StepWatchdog(watches=False)
    for step in range(1, 22):
        assert watchdog.limit_s >= 1800.0
        with watchdog.patient():
            wait(400.0 if step == 12 else 1.0)  # a checkpoint into a slow bucket is no slow step
        wait(40.0)
        watchdog.step_ended(step)
    assert watchdog.limit_s == 20 * 40.0
    with watchdog.patient():
        assert watchdog.limit_s == 20 * 440.0
    for step in range(22, 120):
        wait(2.0)
        watchdog.step_ended(step)
    assert watchdog.limit_s == 600.0


def test_who_knows_his_steps_says_how_long_to_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PATIENCE, raising=False)
    assert least_s() == MIN_LIMIT_S
    monkeypatch.setenv(PATIENCE, "90")
    assert least_s() == 90.0
    for wrong in ("1m", "0", "-1", "inf", "nan"):
        monkeypatch.setenv(PATIENCE, wrong)
        with pytest.raises(ValueError, match=f"{PATIENCE} is '{wrong}': expected seconds above 0"):
            least_s()


def test_work_that_failed_is_waited_for_no_longer(wait: Callable[[float], None]) -> None:
    watchdog = StepWatchdog(watches=False)
    for step in range(1, 22):
        wait(1.0)
        watchdog.step_ended(step)
    with watchdog.patient():
        assert watchdog.limit_s == MIN_LIMIT_S
    with pytest.raises(OSError, match="full"), watchdog.patient():
        raise OSError("full")
    assert watchdog.limit_s == 600.0
