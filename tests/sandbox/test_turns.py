"""Steps take turns, and what a thread waits for its turn, or for a processor, counts against no deadline of its own."""

from __future__ import annotations

import threading
import time

import pytest

from lemur_ray.rollout.calls.deadline import CompanionThread, DeadlineExceeded
from lemur_ray.sandbox import exec_slots
from lemur_ray.sandbox.backends.step_result import starved


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_slots, "_free", threading.BoundedSemaphore(1))
    # By number of a thread, which one of an earlier test may have had.
    monkeypatch.setattr(exec_slots, "_accounts", {})


def busy(begun: threading.Event, done: threading.Event, limit_s: float = 60.0) -> None:
    with exec_slots.hold_slot(limit_s):
        begun.set()
        done.wait(30)


def test_waiting_for_a_turn_is_lost_time_and_having_one_is_not(one_at_a_time: None) -> None:
    begun, done = threading.Event(), threading.Event()
    holder = threading.Thread(target=busy, args=(begun, done))
    holder.start()
    begun.wait(30)
    waiter = threading.Thread(target=lambda: busy(threading.Event(), done))
    waiter.start()
    deadline = time.monotonic() + 30
    while exec_slots.lost_s(waiter.ident or 0) < 0.2 + 2 * exec_slots.lost_s(holder.ident or 0):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    done.set()
    holder.join(30)
    waiter.join(30)


def test_what_a_step_lasts_beyond_its_limit_is_lost_too() -> None:
    before = exec_slots.lost_s(threading.get_ident())
    with exec_slots.hold_slot(0.1):
        time.sleep(0.3)
    assert 0.1 < exec_slots.lost_s(threading.get_ident()) - before < 30.0
    assert exec_slots.lost_s(-1) == 0.0


def test_a_deadline_waits_for_those_who_wait_and_for_nobody_else(one_at_a_time: None) -> None:
    begun, done = threading.Event(), threading.Event()
    holder = threading.Thread(target=busy, args=(begun, done))
    holder.start()
    begun.wait(30)
    threading.Timer(2.0, done.set).start()
    call = CompanionThread("t")
    try:
        call(lambda: busy(threading.Event(), done), 1.2, "a step that has to wait")
        with pytest.raises(DeadlineExceeded):
            call(lambda: time.sleep(30), 0.2, "a step that hangs")
    finally:
        call.close()
        holder.join(30)


def test_a_step_is_starved_only_below_a_quarter_of_its_time() -> None:
    assert starved({"waited_s": 9.0, "crowd_cpu_s": 0.1}, 10.0)
    assert not starved({"waited_s": 30.0, "crowd_cpu_s": 2.6}, 10.0), "it had its quarter, only later"
