"""A process that answers JSON: its time limit holds for all of a request, and after an end there is no answer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.host import json_process
from lemur_ray.host.json_process import START_S, JsonProcess, ProcessEnded

START = """
import os, signal, sys, time
from lemur_ray.host.json_process import open_channel
requests, send = open_channel()
send(next(requests))
"""
ECHO = "for request in requests:\n    send(request)\n"
Started = Callable[[str], JsonProcess]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Starts the program with this text, and asks it once."""
    processes: list[JsonProcess] = []

    def start(text: str) -> JsonProcess:
        program = tmp_path / f"program-{len(processes)}.py"
        program.write_text(START + text)
        processes.append(JsonProcess(str(program), "the shop"))
        assert processes[-1].ask("ready", START_S) == "ready"
        return processes[-1]

    yield start
    for process in processes:
        process.close()


def end_of(process: JsonProcess, request: Any, time_s: float) -> ProcessEnded:
    with pytest.raises(ProcessEnded) as ended:
        process.ask(request, time_s)
    return ended.value


def test_large_values_and_texts_of_any_kind_come_back(started: Started) -> None:
    process = started(ECHO)
    for value in ("x" * 3_000_000, {"a": ["\ud800", None, 1.5]}):
        assert process.ask(value, START_S) == value


def test_the_time_limit_holds_for_a_request_that_is_not_read(started: Started) -> None:
    process = started("time.sleep(60)")
    before = time.monotonic()
    assert "did not answer within 0.5 s" in str(end_of(process, "x" * 2_000_000, 0.5))
    assert time.monotonic() - before < 50


def test_after_a_time_out_no_request_gets_the_answer_of_another(started: Started) -> None:
    process = started("for request in requests:\n    time.sleep(60)\n    send(request)\n")
    first = end_of(process, "slow", 0.2)
    assert process._process.poll() == -signal.SIGKILL
    assert end_of(process, "next", START_S) is first


def test_an_end_and_a_close_are_reported_as_such_by_every_later_request(started: Started) -> None:
    process = started("next(requests)\nos._exit(3)")
    for _ in range(2):
        assert str(end_of(process, 1, START_S)).startswith("the process of the shop ended")
    process = started(ECHO)
    process.close()
    assert str(end_of(process, 1, START_S)) == "the process of the shop was closed"


def test_a_request_that_is_nested_too_deep_is_the_policys(started: Started) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert end_of(started(ECHO), deep, START_S).blame == "policy"


@pytest.mark.parametrize(
    ("text", "blame"),
    [
        ("time.sleep(1.6)\nwhile True: pass", "policy"),  # less than half of the time, as on a busy machine
        ("os.kill(os.getpid(), signal.SIGSTOP)", "infra"),  # ready to run, and does not
        ("time.sleep(60)", "policy"),
    ],
)
def test_a_time_out_is_blamed_on_a_request_that_took_processor_time_or_waits(
    started: Started, monkeypatch: pytest.MonkeyPatch, text: str, blame: str
) -> None:
    monkeypatch.setattr(json_process, "BUSY_S", 0.1)
    assert end_of(started("next(requests)\n" + text), 1, 3.0).blame == blame


def test_a_process_that_the_machine_kills_is_the_machines(started: Started) -> None:
    process = started(ECHO)
    os.kill(process._process.pid, signal.SIGKILL)
    assert end_of(process, 1, START_S).blame == "infra"
