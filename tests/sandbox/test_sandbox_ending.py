"""How a sandbox ends, by itself, by force or by a death, and how one comes back to its pool."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from lemur_ray.sandbox.backends import slots
from lemur_ray.sandbox.backends.driven_sandbox import DrivenSandbox
from lemur_ray.sandbox.backends.keeper_client import blame_for_end
from lemur_ray.sandbox.sandbox import (
    Limits,
    Sandbox,
    SandboxDestroyed,
    SandboxFileError,
    SandboxQuarantined,
    SandboxSpec,
    open_sandbox,
)
from lemur_ray.sandbox.warm_pool import WarmPool
from tests.attacks.arena import children, in_its_next_step, keeper_pid
from tests.conftest import ROOT


def test_a_reset_that_does_not_prove_puts_the_sandbox_in_quarantine(backend: str) -> None:
    sandbox = open_sandbox(SandboxSpec(), backend)
    assert isinstance(sandbox, DrivenSandbox)
    try:
        sandbox.first_hash = "0" * 64
        with pytest.raises(SandboxQuarantined, match="use another sandbox"):
            sandbox.reset()
        for call in (sandbox.reset, sandbox.snapshot, lambda: sandbox.exec(["true"])):
            with pytest.raises(SandboxQuarantined):
                call()
    finally:
        sandbox.close()


@pytest.mark.parametrize("whose", ["machine", "policy"])
def test_the_death_of_process_1_is_noticed_in_the_same_step_and_blamed_by_how_it_came(
    backend: str, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL reaches it from outside only: the machine's doing, unless it was for memory that was used up."""
    sandbox = open_sandbox(SandboxSpec(limits=Limits(time_s=90)), backend)
    assert isinstance(sandbox, DrivenSandbox)
    blame = "infra"
    if whose == "policy":
        blame, counts = "policy", iter((0, 1))
        monkeypatch.setattr(sandbox._housing, "memory_kills", lambda: next(counts, 1))
    try:
        first = children(keeper_pid(sandbox))[0]
        in_its_next_step(sandbox, lambda: os.kill(first, signal.SIGKILL))
        ended = sandbox.exec(["sleep", "85"])
        assert (ended.alive, ended.blame, ended.exit_code) == (False, blame, None)
        assert ended.wall_s < 45.0
        assert "sandbox destroyed" in ended.note
        with pytest.raises(SandboxDestroyed) as raised:
            sandbox.exec(["true"])
        assert raised.value.blame == blame
        if whose == "policy":
            sandbox.reset()
            assert sandbox.exec(["echo", "again"]).out == "again\n"
    finally:
        sandbox.close()


def test_a_first_process_that_ends_by_itself_is_the_policys() -> None:
    class Keeper:
        def __init__(self, said: object) -> None:
            self.ended = lambda: said

    assert blame_for_end(Keeper({"killed": False}), 0) == "policy"  # type: ignore[arg-type]
    assert blame_for_end(Keeper({"killed": True}), 0) == "infra"  # type: ignore[arg-type]
    assert blame_for_end(Keeper({"killed": True}), 1) == "policy"  # type: ignore[arg-type]
    assert blame_for_end(Keeper(None), 0) == "infra"  # type: ignore[arg-type]


def test_a_reset_after_or_while_closing_says_that_the_sandbox_was_closed(backend: str) -> None:
    sandbox = open_sandbox(SandboxSpec(), backend)
    sandbox.close()
    with pytest.raises(SandboxDestroyed, match="closed") as raised:
        sandbox.reset()
    assert raised.value.blame == "harness"
    for delay_s in (0.0, 0.005, 0.01, 0.02):
        closed = open_sandbox(SandboxSpec(), backend)
        closer = threading.Timer(delay_s, closed.close)
        closer.start()
        with pytest.raises(SandboxDestroyed, match="closed") as raised:
            _reset_for_ever(closed)
        assert raised.value.blame == "harness"
        closer.join()


def _reset_for_ever(sandbox: Sandbox) -> None:
    while True:
        sandbox.reset()


def test_threads_that_close_at_once_close_the_slot_once(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = open_sandbox(SandboxSpec(), backend)
    assert isinstance(sandbox, DrivenSandbox)
    file = sandbox._housing.slot._file  # type: ignore[attr-defined]
    kept, closed, real = os.fstat(file), list[int](), os.close

    def close(fd: int) -> None:
        if fd == file:
            with contextlib.suppress(OSError):  # once it is closed, another file may have its number
                closed.extend([fd] if os.path.samestat(os.fstat(fd), kept) else [])
        real(fd)

    monkeypatch.setattr(os, "close", close)
    closers = [threading.Thread(target=sandbox.close) for _ in range(4)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    assert closed.count(file) == 1


def test_the_death_of_the_whole_housing_is_the_machines(backend: str) -> None:
    sandbox = open_sandbox(SandboxSpec(limits=Limits(time_s=90)), backend)
    try:
        keeper = keeper_pid(sandbox)
        doomed = [*children(keeper), keeper]
        in_its_next_step(sandbox, lambda: [os.kill(pid, signal.SIGKILL) for pid in doomed])
        ended = sandbox.exec(["sleep", "85"])
        assert (ended.alive, ended.blame) == (False, "infra")
        with pytest.raises(SandboxDestroyed) as raised:
            sandbox.reset()
        assert raised.value.blame == "infra"
    finally:
        sandbox.close()


def test_closing_is_idempotent_ends_a_step_in_another_thread_and_leaves_nothing(backend: str) -> None:
    sandbox = open_sandbox(SandboxSpec(limits=Limits(time_s=90)), backend)
    assert isinstance(sandbox, DrivenSandbox)
    housing = sandbox._housing
    pid = keeper_pid(sandbox)
    folders = housing.cgroup.folders if housing.cgroup else ()  # type: ignore[attr-defined]
    seen: list[object] = []
    runner = threading.Thread(target=lambda: seen.append(sandbox.exec(["sleep", "85"])))
    runner.start()
    deadline = time.monotonic() + 60
    while not children(children(pid)[0]):
        assert time.monotonic() < deadline
    sandbox.close()
    sandbox.close()
    runner.join(45)
    assert not runner.is_alive()
    assert slots.start_time(pid) is None
    assert not any(folder.exists() for folder in folders)
    with pytest.raises(SandboxDestroyed, match="closed"):
        sandbox.exec(["true"])


CYCLES = """
import os, sys
from pathlib import Path
from lemur_ray.sandbox.backends import slots
from lemur_ray.sandbox.sandbox import SandboxSpec, open_sandbox

def cycle(number):
    for _ in range(number):
        with open_sandbox(SandboxSpec(run="cycles"), sys.argv[1]) as sandbox:
            assert sandbox.exec(["true"]).ok

def state():
    # Mounts of an engine come and go with the containers of others.
    lines = Path("/proc/self/mounts").read_text().splitlines()
    mounts = [line for line in lines if not line.startswith(("overlay ", "nsfs ", "shm "))]
    return slots.children(os.getpid()), mounts, len(os.listdir("/proc/self/fd"))

cycle(1)
before = state()
cycle(int(sys.argv[2]))
after = state()
assert after == before, (before, after)
assert not any(record.get("run") == "cycles" for record in slots.reap())
"""


@pytest.mark.parametrize("cycles", [8, pytest.param(100, marks=pytest.mark.sweep)])
def test_open_and_close_cycles_leave_no_process_mount_descriptor_or_slot(backend: str, cycles: int) -> None:
    """In a process of its own, where nobody else opens anything."""
    done = subprocess.run(
        [sys.executable, "-c", CYCLES, backend, str(cycles)], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr


def test_a_sandbox_that_came_back_is_handed_out_as_new_and_another_is_opened_behind_it(backend: str) -> None:
    with WarmPool(SandboxSpec(), backend, 2) as pool:
        first = pool.take()
        first.write("x", b"x")
        pool.give_back(first)
        taken = {id(each): each for each in (pool.take(), pool.take())}
        assert id(first) in taken
        for sandbox in taken.values():
            with pytest.raises(SandboxFileError):
                sandbox.read("x")
            pool.give_back(sandbox)
        late = pool.take()
    with pytest.raises(SandboxDestroyed):
        taken[next(key for key in taken if key != id(late))].exec(["true"])  # closing took those that were idle
    assert late.exec(["true"]).ok
    pool.give_back(late)
    with pytest.raises(SandboxDestroyed):
        late.exec(["true"])


def test_a_pooled_sandbox_that_does_not_come_back_clean_is_not_handed_out_again(backend: str) -> None:
    with WarmPool(SandboxSpec(), backend, 1) as pool:
        sandbox = open_sandbox(SandboxSpec(), backend)
        sandbox.first_hash = "wrong"  # type: ignore[attr-defined]
        pool.give_back(sandbox)
        assert pool.quarantined == 1
        with pytest.raises(SandboxQuarantined):
            sandbox.exec(["true"])
        another = pool.take()
        assert another is not sandbox
        another.close()


FORK = """
import os, sys
from lemur_ray.sandbox.sandbox import SandboxSpec
from lemur_ray.sandbox.warm_pool import shared_pool
pool = shared_pool(SandboxSpec(run="forked"), sys.argv[1])
taken = pool.take()
taken.write("mine", b"1")
pool.give_back(taken)
pool._opening and pool._opening.join()
idle = len(pool._idle)
child = os.fork()
if child == 0:
    assert pool._idle == []
    with shared_pool(SandboxSpec(run="forked"), sys.argv[1]).one() as own:
        own.write("x", b"child")
        assert own.read("x") == b"child"
    pool.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert len(pool._idle) == idle > 0
for sandbox in pool._idle:
    assert sandbox.exec(["echo", "well"]).out == "well\\n"
    assert sandbox.exec(["ls"]).out == ""
print("parent well")
"""


def test_a_forks_child_has_a_pool_of_its_own_and_the_parents_goes_on(backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, backend],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "parent well\n", done.stderr
