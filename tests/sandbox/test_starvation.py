"""A step that the machine gave no processor is the machine's fault; one that slept, or spun itself, is not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemur_ray.sandbox import exec_slots
from lemur_ray.sandbox.inside.processes import Process
from lemur_ray.sandbox.inside.starvation import CpuMeter, owed_s, starved
from lemur_ray.sandbox.programs import Program
from lemur_ray.sandbox.sandbox import ExecResult, Limits, Sandbox, SandboxDestroyed, SandboxSpec, open_sandbox


def said(elapsed_s: float, cpu_s: float, waited_s: float) -> dict[str, float]:
    return {"elapsed_s": elapsed_s, "crowd_cpu_s": cpu_s, "waited_s": waited_s}


def test_a_program_that_had_less_than_it_may_and_could_have_run_was_starved() -> None:
    assert starved(said(30.0, 2.0, 28.0), 30.0, 10.0)
    assert starved(said(30.0, 7.9, 22.0), 30.0, 10.0), "more than a quarter, less than it may have"
    assert not starved(said(30.0, 10.0, 20.0), 30.0, 10.0), "it had its processor time"
    assert not starved(said(30.1, 0.1, 0.2), 30.0, 10.0), "it slept"
    assert not starved(said(90.0, 1.0, 50.0), 30.0, 10.0), "it was given time, and slept for longer than it may"


def test_a_step_is_owed_what_it_could_have_run_until_it_has_had_its_processor_time() -> None:
    assert owed_s(said(30.0, 2.0, 28.0), 30.0, 10.0) == 28.0
    assert owed_s(said(50.0, 4.0, 28.0), 30.0, 10.0) == 8.0
    assert owed_s(said(60.0, 4.0, 28.0), 30.0, 10.0) == 0.0
    assert owed_s(said(30.0, 10.0, 20.0), 30.0, 10.0) == 0.0


def test_a_crowd_of_short_lived_processes_that_are_always_ready_waits_although_each_is_gone_at_once(
    tmp_path: Path,
) -> None:
    now, ready = 100.0, True
    started = iter(range(10, 10_000))
    crowd = lambda: [Process(7, 7, 0.0, 1), Process(next(started), 7, 0.0, 1, ready)]  # noqa: E731
    meter = CpuMeter(str(tmp_path), 7, crowd, lambda: 2.0, lambda: now)
    for second in range(1, 11):
        now = 100.0 + second
        ready = second <= 8
        meter.look()
    assert meter.measurements()["waited_s"] == pytest.approx(6.0, abs=0.5), "ready for 8 s, of which it ran 2"


@pytest.fixture(scope="module")
def crowded() -> Iterator[Sandbox]:
    """A sandbox in which an earlier step has left as many spinning processes on each processor that a nice one gets
    next to nothing."""
    with open_sandbox(SandboxSpec(limits=Limits(time_s=60.0), run="tests")) as sandbox:  # type: ignore[attr-defined]
        number = 3 * len(os.sched_getaffinity(0))
        line = f"for n in $(seq {number}); do (while :; do :; done) & done"
        assert sandbox.exec(["bash", "-c", line], keep_background=True).ok
        yield sandbox


SPINS = ["nice", "-n", "19", "bash", "-c", "while :; do :; done"]
SHORT = Limits(time_s=1.0, patience_s=1.0, cpu_s=0.5)


def test_what_spins_among_others_on_all_processors_is_starved_and_what_sleeps_among_them_is_not(
    crowded: Sandbox,
) -> None:
    late = crowded.exec(SPINS, limits=SHORT, keep_background=True)
    assert (late.timed_out, late.blame) == (True, "infra"), late
    assert late.waited_s > 1.0
    assert late.wall_s > 1.9, "it was given more time first"
    slept = crowded.exec(["sleep", "100"], limits=Limits(time_s=1.0, patience_s=30.0, cpu_s=0.5), keep_background=True)
    assert (slept.timed_out, slept.blame) == (True, "policy"), slept


def test_what_has_had_its_processor_time_is_late_by_its_own_doing(crowded: Sandbox) -> None:
    enough = crowded.exec(SPINS[3:], limits=Limits(time_s=0.2, patience_s=60.0, cpu_s=0.1), keep_background=True)
    assert (enough.timed_out, enough.blame) == (True, "policy"), enough


class Scripted:
    """A sandbox and its session: how every step of a program ends, one after another."""

    spec = SandboxSpec()
    alive = True

    def __init__(self, *steps: tuple[float, float, float]) -> None:
        self._steps = iter(steps)
        self.limits: list[Limits] = []

    def session(self, argv: object, **more: object) -> Scripted:
        return self

    def step(self, message: bytes, limits: Limits) -> ExecResult:
        self.limits.append(limits)
        wall_s, cpu_s, waited_s = next(self._steps)
        late = wall_s - waited_s >= limits.time_s or wall_s >= limits.time_s + limits.patience_s
        return ExecResult(
            None if late else 0,
            9 if late else None,
            b"{}\n",
            b"",
            truncated=False,
            bytes_dropped=0,
            timed_out=late,
            wall_s=wall_s,
            cpu_s=cpu_s,
            alive=True,
            blame="policy" if late else None,
            waited_s=waited_s,
        )

    def close(self) -> None:
        pass


def outcome(*steps: tuple[float, float, float]) -> tuple[str, str | None]:
    """How a program that may take 30 s, 35 in all, and 10 of a processor ends, whose steps took (wall, CPU, waited)."""
    program = Program(Scripted(*steps), "solution", time_s=30, total_s=35, patience_s=60, allowed_cpu_s=10)  # type: ignore[arg-type]
    reply = program.exchange({})
    for _ in steps[2:]:
        reply = program.exchange({})
    return reply.failure or "", reply.blame


STARTS = (0.3, 0.1, 0.2)


@pytest.mark.parametrize(
    ("steps", "end"),
    [
        ([(41.0, 2.0, 38.0), (0.5, 0.1, 0.2)], ("", None)),
        ([(41.0, 2.0, 38.0), (53.7, 0.9, 52.0)], ("timed out", "infra")),
        ([(60.0, 1.0, 58.0), (34.7, 0.1, 16.0)], ("timed out", "infra")),
        ([(85.0, 2.0, 80.0), (9.8, 0.1, 9.7), (9.0, 9.0, 9.0)], ("timed out", "infra")),
        ([(30.2, 0.0, 0.1)], ("timed out", "policy")),
        ([(20.0, 0.0, 0.0), (15.1, 0.0, 0.1)], ("timed out", "policy")),
        ([(41.0, 9.0, 30.0), (53.7, 2.0, 50.0)], ("timed out", "policy")),
    ],
    ids=["slow but done", "two halves", "starved before", "no time left", "sleeps", "sleeps twice", "spins"],
)
def test_of_many_exchanges_the_sum_decides_who_was_late(
    steps: list[tuple[float, float, float]], end: tuple[str, str | None]
) -> None:
    assert outcome(STARTS, *steps) == end


def test_a_program_of_ours_that_does_not_start_is_the_machines_fault() -> None:
    with pytest.raises(SandboxDestroyed, match="did not start: ") as caught:
        Program(Scripted((95.0, 0.1, 94.0)), "solution", time_s=30, total_s=35, patience_s=60)  # type: ignore[arg-type]
    assert caught.value.blame == "infra"


def test_what_a_programs_steps_wait_counts_against_no_deadline() -> None:
    before = exec_slots.lost_s(threading.get_ident())
    outcome(STARTS, (41.0, 2.0, 38.0), (0.5, 0.1, 0.2))
    lost = exec_slots.lost_s(threading.get_ident()) - before
    assert lost == pytest.approx(38.0 - 11.0 + 0.4, abs=0.01), "beyond its limit of 30 s it was lost anyway"
