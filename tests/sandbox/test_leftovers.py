"""Memory summed with and without a control group, and what dead runs left: cgroups, sessions, slots."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lemur_ray.sandbox.backends import cgroup, slots
from lemur_ray.sandbox.backends.bwrap import BwrapBackend
from lemur_ray.sandbox.sandbox import (
    Limits,
    SandboxDestroyed,
    SandboxError,
    SandboxSpec,
    open_sandbox,
)
from tests.attacks.arena import children, keeper_pid

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def own_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots of this test alone: what the dead left in the machine's is cleared by whoever opens a sandbox next."""
    (tmp_path / "slots").mkdir()
    monkeypatch.setattr(slots, "folder", lambda: tmp_path / "slots")


def test_without_a_cgroup_the_sum_of_memory_is_watched_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_parents", lambda: ())
    limits = Limits(time_s=20.0, memory_bytes=128 * 2**20)
    grow = (
        "import os, time\n"
        "for _ in range(4):\n"
        "  if os.fork() == 0:\n"
        "    held = [bytearray(b'x' * (5 << 20)) for _ in range(12)]; time.sleep(60); os._exit(0)\n"
        "print(sorted(os.wait()[1] for _ in range(1)))"
    )
    with open_sandbox(SandboxSpec(limits=limits)) as sandbox:  # type: ignore[attr-defined]
        grown = sandbox.exec(["python3", "-c", grow])
        assert grown.out == "[9]\n", grown
        assert grown.blame == "policy"
        assert "memory limit of 134217728 bytes" in grown.note
        hidden = "import os; os.memfd_create('x')"
        assert "Operation not permitted" in sandbox.exec(["python3", "-c", hidden]).err
        shared = (
            "import os, time\nx = bytearray(b'x' * (60 << 20))\nfor _ in range(5):\n"
            "  if os.fork() == 0: time.sleep(0.3); os._exit(0)\n"
        )
        forked = sandbox.exec(["python3", "-c", shared + "print([os.wait()[1] for _ in range(5)])"])
        assert forked.out == "[0, 0, 0, 0, 0]\n", "shared pages count once"


def test_between_steps_the_sum_of_memory_is_watched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_parents", lambda: ())
    grow = (
        "import os, time\nfor _ in range(2):\n  if os.fork() == 0:\n"
        "    os.setsid(); time.sleep(0.3); x = b'1' * (100 << 20); time.sleep(60)\n"
    )
    with open_sandbox(SandboxSpec(limits=Limits(memory_bytes=128 * 2**20))) as sandbox:  # type: ignore[attr-defined]
        sandbox.exec(["python3", "-c", grow], keep_background=True)
        deadline = time.monotonic() + 60
        first = children(keeper_pid(sandbox))[0]
        while len(children(first)) > 1:  # seen from outside: no step is to come in between
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "memory limit of 134217728 bytes: 1 process(es) killed" in sandbox.exec(["true"]).note
        assert sandbox.exec(["true"]).note == ""


def test_where_memory_is_only_watched_the_backend_does_not_promise_its_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    promised = BwrapBackend().capabilities
    assert promised.mem_total is bool(cgroup._parents())
    assert promised.mem_total is ("mem_total" not in promised.reasons)
    monkeypatch.setattr(cgroup, "_parents", lambda: ())
    watched = BwrapBackend().capabilities
    assert not watched.mem_total
    assert "no memory cgroup" in watched.reasons["mem_total"]


def test_what_a_dead_run_left_in_a_cgroup_or_a_session_is_ended_before_the_next_sandbox(
    tmp_path: Path, own_slots: None
) -> None:
    program = tmp_path / "bwrap"  # as bubblewrap's child that waits for a parent which was killed while starting
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    starter = subprocess.Popen(
        ["sh", "-c", f"{program} 300 & echo $!; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert starter.stdin
    assert starter.stdout
    orphan = int(starter.stdout.readline())
    slot = slots.take()
    slot.record(run="dead", process=[starter.pid, slots.start_time(starter.pid)])
    starter.kill()
    starter.wait()
    starter.stdin.close()
    starter.stdout.close()
    os.close(slot._file)  # as the death of its process does
    assert slots.start_time(orphan) is not None
    assert any(record.get("run") == "dead" for record in slots.reap())
    deadline = time.monotonic() + 60
    while slots.start_time(orphan) is not None and slots.is_running(orphan, slots.start_time(orphan) or 0):
        assert time.monotonic() < deadline


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can surely make a control group")
def test_a_cgroup_that_a_dead_run_left_does_not_stand_in_the_way() -> None:
    if not cgroup._parents():
        pytest.skip("no control group can be made here")
    left = cgroup.make(f"test-left-{os.getpid()}", 64 * 2**20, 10)
    assert left
    held = subprocess.Popen(["sleep", "300"])
    try:
        for joined in left.joins:
            joined.write_text(str(held.pid))
        again = cgroup.make(f"test-left-{os.getpid()}", 2**31, 20)
        assert again
        assert held.wait(60) == -signal.SIGKILL
        again.remove()
        assert not any(folder.exists() for folder in again.folders)
    finally:
        held.kill()
        held.wait()


def test_threads_that_ask_at_once_are_all_told_the_same_of_cgroups() -> None:
    for _ in range(5):
        cgroup._tried.cache_clear()
        gate, told = threading.Barrier(8), []

        def ask(gate: threading.Barrier = gate, told: list[object] = told) -> None:
            gate.wait()
            told.append(cgroup._parents())

        askers = [threading.Thread(target=ask) for _ in range(8)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        assert len(set(told)) == 1, told


def test_the_first_sandbox_of_a_process_clears_what_dead_runs_left() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    held, slot = slots.take(), slots.take()
    slot.record(run="dead-first", process=[sleeper.pid, slots.start_time(sleeper.pid)], cgroups=[])
    slot.abandon()
    slots.reap_once.cache_clear()
    open_sandbox(SandboxSpec()).close()
    assert sleeper.wait(60) == -signal.SIGKILL
    held.release()


def test_what_cannot_be_ended_keeps_its_record_and_its_slot(own_slots: None, monkeypatch: pytest.MonkeyPatch) -> None:
    held = slots.take()
    held.record(run="held", cgroups=["/sys/fs/cgroup/none"])
    held.abandon()
    with monkeypatch.context() as stuck:
        stuck.setattr(cgroup.Cgroup, "remove", lambda self, timeout_s=0.0: False)
        taken = slots.take()
        assert taken.number != held.number
        taken.release()
        assert any(record.get("run") == "held" for record in slots.reap())
        assert any(record.get("run") == "held" for record in slots.reap()), "until it can be"
    assert any(record.get("run") == "held" for record in slots.reap())
    assert not any(record.get("run") == "held" for record in slots.reap())


def test_a_slot_of_a_dead_run_is_cleared_before_it_is_used_again(own_slots: None) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    slot = slots.take()
    slot.record(run="dead", process=[sleeper.pid, slots.start_time(sleeper.pid)], cgroups=[])
    os.close(slot._file)
    slot._file = -1
    records = slots.reap()
    assert [record["run"] for record in records if record["run"] == "dead"] == ["dead"]
    assert sleeper.wait(60) == -signal.SIGKILL
    assert re.fullmatch(r"\d+", slot.path.name)
    with pytest.raises(SandboxError):
        raise SandboxDestroyed("x", "infra")


FILL = """import socket, time
held = []
while True:
    try:
        a, b = socket.socketpair(); a.setblocking(False); held.append((a, b))
        while True: a.send(bytes(65536))
    except BlockingIOError: pass
    except OSError: time.sleep(60)  # it has all the descriptors that it gets
"""
SENT_AWAY = """import socket, array, time
carriers = []
for n in range(900):
    if n % 20 == 0: carriers.append(socket.socketpair())
    a, b = socket.socketpair(); a.setblocking(False)
    try:
        while True: a.send(bytes(65536))
    except BlockingIOError: pass
    carriers[-1][0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [b.fileno()]))])
    a.close(); b.close()
time.sleep(60)
"""


def test_without_a_cgroup_what_lies_in_sockets_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_parents", lambda: ())
    limits = Limits(time_s=20.0, memory_bytes=128 * 2**20)
    with open_sandbox(SandboxSpec(limits=limits)) as sandbox:  # type: ignore[attr-defined]
        for fill in (FILL, SENT_AWAY):
            filled = sandbox.exec(["python3", "-c", fill])
            assert (filled.signal, filled.blame) == (9, "policy"), filled
            assert "memory limit of 134217728 bytes" in filled.note
        wish = (
            "import socket\na, b = socket.socketpair()\nbefore = a.getsockopt(1, 7)\n"
            "for name in (7, 8, 32, 33): a.setsockopt(1, name, 1 << 28)\n"
            "print(a.getsockopt(1, 7) == before)\na.setsockopt(1, 9, 1); print(a.getsockopt(1, 9))"
        )
        assert sandbox.exec(["python3", "-c", wish]).out == "True\n1\n", "larger buffers are not to be had"
        benign = (
            "import socket\na = [socket.socketpair() for _ in range(60)]\nfor x, y in a: x.send(b'x' * 9999)\n"
            "print(sum(len(y.recv(9999)) for x, y in a))"
        )
        assert sandbox.exec(["python3", "-c", benign]).out == "599940\n"
        for call in ("msgget(1, 0o1777)", "semget(1, 9, 0o1777)", "shmget(1, 9, 0o1777)"):
            asked = f"import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.{call}, ctypes.get_errno())"
            assert sandbox.exec(["python3", "-c", asked]).out == "-1 1\n", call
