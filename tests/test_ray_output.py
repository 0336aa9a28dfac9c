"""Output of Ray and of workers: lines of the project are shown, those of libraries go to a log file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.cluster.ray_output import MAX_LOGS, OutputFilter, RayLog, WorkerOutput, redirect_ray_output

NOISE = """\
[2026-01-02 03:04:05,678 E 12 34] core_worker.cc:1: file an issue at https://github.com/ray-project/ray/issues
2026-01-02 03:04:05,678\tWARNING worker.py:12 -- a worker was slow to start
E0102 03:04:05.678901   12 tpu_init.cc:1] Could not open libtpu
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
Traceback (most recent call last):
  File "x.py", line 1, in f
    raise ValueError("x")
ValueError: x

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "x.py", line 2, in g
KeyError: 'y'
/site-packages/x.py:3: FutureWarning: y is deprecated
  y()
Failed to send resource request for train-1. If this error persists, file a GitHub issue.
Reporting training result 1: TrainingReport(checkpoint=None, metrics={'step': 6}, validation=False) from rank 0
********************************
[Compiling module jit__lambda for CPU] Very slow compile? If you want to file a bug, run with envvar XLA_FLAGS=x
*** SIGTERM received at time=1 on cpu 1 ***
    @     0x7f73b2a5a050  (unknown)""".splitlines()
OURS = ["step 40/3600 loss 2.3", "  indented", "checkpoint 3: the disk is slow, give --x", "E is a letter"]


def test_library_lines_are_distinguished_from_those_of_the_project() -> None:
    output = OutputFilter()
    assert [line for line in (*OURS, *NOISE, *OURS) if not output.is_library_line(line)] == [*OURS, *OURS]


def test_a_traceback_whose_end_ray_left_out_hides_no_line_of_the_project() -> None:
    output = OutputFilter()
    lines = [*NOISE[4:7], "step 41: loss 2", *NOISE[4:8], "Exception in the tool: it is played on", "ready"]
    assert [line for line in lines if not output.is_library_line(line)] == [
        "step 41: loss 2", "Exception in the tool: it is played on", "ready",
    ]  # fmt: skip


def test_worker_lines_are_sorted_by_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[tuple[Any, list[str]]] = []
    log = RayLog(tmp_path / "logs")
    show = WorkerOutput(lambda data, file: shown.append((data["pid"], data["lines"])), log)
    show({"pid": 1, "lines": OURS}, "stdout")
    assert not log.path.exists()
    assert not capsys.readouterr().err
    show({"pid": 2, "is_err": True, "task_name": "f", "lines": NOISE[4:6]}, "stderr")
    show({"pid": 1, "lines": ["  step 41"]}, "stdout")  # of another process, so not within that traceback
    show({"pid": 2, "is_err": True, "task_name": "f", "lines": [*NOISE[6:8], "ready"]}, "stderr")
    show({"pid": "raylet", "lines": ["spilled 1 GB"]}, "stderr")
    show({"pid": "raylet", "lines": ["No available node: {CPU: 9} cannot be scheduled"]}, "stderr")
    show({"pid": "autoscaler", "lines": NOISE[:1]}, "stderr")
    log.close()
    waits = ("raylet", ["No available node: {CPU: 9} cannot be scheduled"])
    assert shown == [(1, OURS), (1, ["  step 41"]), (2, ["ready"]), waits, ("autoscaler", NOISE[:1])]
    expected = [*(f"(f pid=2) {line}" for line in NOISE[4:8]), "(process pid=raylet) spilled 1 GB"]
    assert log.path.read_text().splitlines() == expected
    assert capsys.readouterr().err == f"messages of Ray: {log.path}\n"


def test_loggers_of_ray_write_to_the_log_and_old_logs_are_removed(
    lemur_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ray._private import worker

    monkeypatch.setattr(worker, "print_worker_logs", worker.print_worker_logs)  # restored after this test
    (lemur_home / "logs").mkdir(parents=True)
    for number in range(MAX_LOGS + 5):
        (lemur_home / "logs" / f"ray-2020-{number:02}.log").touch()
    for name in ("ray", "ray.other"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "handlers", [logging.StreamHandler()])
        monkeypatch.setattr(logger, "propagate", False)
    redirect_ray_output()
    redirect_ray_output()
    logging.getLogger("ray").error("first")
    logging.getLogger("ray.other.module").error("second")
    printer: Any = worker.print_worker_logs
    printer.log.close()
    lines = printer.log.path.read_text().splitlines()
    assert [line.partition(" ray")[2] for line in lines] == [": first", ".other.module: second"]
    assert capsys.readouterr().err == f"messages of Ray: {printer.log.path}\n"
    assert len(list((lemur_home / "logs").iterdir())) == MAX_LOGS
