"""The first process of a generation: runs programs, sessions, reads and writes for the harness, and reaps children.

It keeps its capabilities (in the sandbox's own user namespace) and is not dumpable, so code of the policy can neither
trace it nor, since it is process 1, signal it. All code of the policy runs in confined children."""

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from lemur_ray.sandbox.inside import kernel, processes, tree
from lemur_ray.sandbox.inside.confine import Confinement, fork_into, program
from lemur_ray.sandbox.inside.file_access import Files, descriptor_of
from lemur_ray.sandbox.inside.starvation import CpuMeter
from lemur_ray.sandbox.inside.steps import GRACE_S, IDLE_WATCH_S, SHELL_GRACE_S, SessionProcess, Step, Watcher
from lemur_ray.sandbox.inside.wire import Pipe

REPORT_FD, ORDERS_FD = 8, 9


def main(read_fd: int, write_fd: int, spec: dict[str, Any]) -> None:
    """Serve the harness over the descriptors ``read_fd`` and ``write_fd`` until it disconnects; then exit, which ends
    every process of the namespace. ``spec``: the settings that ``backends.keeper_client`` sends."""
    kernel.prctl(kernel.SET_DUMPABLE, 0)
    try:
        init = Init(Pipe(read_fd, write_fd), spec)
        init.serve()
    except (EOFError, ConnectionResetError, BrokenPipeError):
        os._exit(0)
    except BaseException as error:
        sys.stderr.write(f"sandbox: first process: {error!r}\n")
        os._exit(1)


class Init:
    """Executes the harness's requests in the first process. ``spec``: the settings that ``backends.keeper_client``
    sends."""

    def __init__(self, pipe: Pipe, spec: dict[str, Any]) -> None:
        self.pipe, self.spec = pipe, spec
        self.proc, self.own_network = "/proc", not spec["network"]
        self.null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.sessions: dict[int, SessionProcess] = {}
        self.ended: processes.Ended = {}
        """Wait status and CPU seconds of sessions whose process was already collected."""
        self.killed_between = 0
        """Processes killed between steps for exceeding the memory limit; reported with the next step."""
        self.watch_at = 0.0
        self.wakeup, awake = os.pipe()
        os.set_blocking(awake, False)
        signal.set_wakeup_fd(awake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.watcher = Watcher(pipe, self.wakeup, self.proc, self._remember, self.own_network)
        files = Files(pipe, self.null, partial(self._fork, {}), self._waited)
        self.answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "exec": self.exec,
            "session": self.session,
            "step": self.step,
            "end": self.end,
            "read": files.read,
            "write": files.write,
            "list": files.listing,
            "snapshot": files.snapshot,
        }

    def serve(self) -> None:
        self.pipe.send_json({"ok": True, "hash": tree.digest("/")})
        while True:
            while self.pipe.read_fd not in (ready := self._waited_for()):
                if ready:
                    os.read(ready[0], 4096)
                    self._remember(processes.collect())
            order = self.pipe.receive_json()
            answer = self.answers[order["op"]](order)
            self.pipe.send_json(answer)

    def _waited_for(self) -> list[int]:
        """Wait for readable descriptors; meanwhile the memory of background processes is checked."""
        left_s = None
        if not self.spec["memory_cgroup"]:
            if time.monotonic() >= self.watch_at:
                self.killed_between += processes.kill_heaviest(self.proc, self.spec["memory_bytes"], self.own_network)
                self.watch_at = time.monotonic() + IDLE_WATCH_S
            left_s = max(0.0, self.watch_at - time.monotonic())
        return select.select([self.pipe.read_fd, self.wakeup], [], [], left_s)[0]

    def _remember(self, ended: processes.Ended) -> None:
        self.ended.update({pid: how for pid, how in ended.items() if pid in self.sessions})

    def _fork(self, order: dict[str, Any], descriptors: dict[int, int], action: Callable[[], int]) -> int:
        """Fork a confined child. If the process limit prevents that, kill all processes but sessions and try again."""
        try:
            return fork_into(self.confinement(order), descriptors, action)
        except BlockingIOError:
            spared = {live.name for live in self.sessions.values()}
            processes.kill_except(self.proc, spared, self._remember)
            return fork_into(self.confinement(order), descriptors, action)

    # Steps

    def confinement(self, order: dict[str, Any]) -> Confinement:
        spec = self.spec
        return Confinement(
            processes=min(order.get("processes", spec["processes"]), spec["processes"]) + spec["overhead"],
            memory_bytes=spec["memory_bytes"],
            disk_bytes=spec["disk_bytes"],
            count_all_memory=not spec["memory_cgroup"],
            tracing=bool(spec.get("tracing")),
        )

    def exec(self, order: dict[str, Any]) -> dict[str, Any]:
        stdin = descriptor_of(self.pipe.receive_data(), self.null)
        before = {p.name for p in processes.listed(self.proc)}
        out, out_w = os.pipe2(os.O_CLOEXEC)
        err, err_w = os.pipe2(os.O_CLOEXEC)
        action = program(order["argv"], order["cwd"], order["env"])
        started = time.monotonic()
        pid = self._fork(order, {0: stdin, 1: out_w, 2: err_w}, action)
        for fd in (out_w, err_w, *([stdin] if stdin != self.null else [])):
            os.close(fd)
        step = self._step(order, started, out, err)
        step.main = pid
        crowd = partial(self._of_step, before)
        step.meter = CpuMeter(self.proc, pid, crowd, lambda: sum(process.cpu_s for process in crowd()))
        self.watcher.watch(step)
        extra = self._measured(step)
        if step.reason:
            self._clear(before, step)
            self.watcher.settle(step, lambda: step.status is not None, 2.0)
            self.watcher.drain(step, 0.0)
        else:
            self.watcher.drain(step, GRACE_S)
            left = self._crowd(before)
            if not order["keep_background"] or left >= self.spec["processes"] * 0.9:
                extra["killed_behind"] = left
                self._clear(before, step)
                self.watcher.drain(step, 0.0)
        os.close(out)
        os.close(err)
        status = None if step.status is None else os.waitstatus_to_exitcode(step.status)
        return {**self._done(step, started), **extra, "status": status}

    def session(self, order: dict[str, Any]) -> dict[str, Any]:
        out, out_w = os.pipe2(os.O_CLOEXEC)
        err, err_w = os.pipe2(os.O_CLOEXEC)
        report, report_w = os.pipe2(os.O_CLOEXEC)
        orders_r, orders = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(orders, False)
        action = program(order["argv"], order["cwd"], order["env"])
        descriptors = {0: self.null, 1: out_w, 2: err_w, REPORT_FD: report_w, ORDERS_FD: orders_r}
        pid = self._fork(order, descriptors, action)
        for fd in (out_w, err_w, report_w, orders_r):
            os.close(fd)
        self.sessions[pid] = SessionProcess(pid, self._name(pid), out, err, report, orders)
        return {"ok": True, "session": pid}

    def step(self, order: dict[str, Any]) -> dict[str, Any]:
        message = self.pipe.receive_data()
        live = self.sessions.get(order["session"])
        if live is None:
            return {"reason": "gone", "produced": 0, "cpu_s": 0.0, "wall_s": 0.0, "status": None, "session": False}
        before, used_s = {p.name for p in processes.listed(self.proc)} | {live.name}, processes.used_s(self.proc)
        with_it = partial(self._of_step, before - {live.name})
        started = time.monotonic()
        step = self._step(order, started, live.out, live.err)
        step.main, step.live, step.nonce = live.pid, live, os.urandom(16).hex().encode()
        step.pending = message + step.nonce + b"\n"
        if live.pid in self.ended:
            step.status, step.finished = self.ended[live.pid][0], True
        step.meter = CpuMeter(self.proc, live.pid, with_it, partial(self._spent_s, step, used_s))
        self.watcher.watch(step)
        extra = self._measured(step)
        if step.reason:
            self._clear(before, step)
            done = lambda: step.reported is not None or step.status is not None  # noqa: E731
            if not self.watcher.settle(step, done, SHELL_GRACE_S):
                processes.send(live.pid, signal.SIGKILL)
                self.watcher.settle(step, lambda: step.status is not None, 2.0)
        elif self._crowd(before) >= self.spec["processes"] * 0.9:
            extra["killed_behind"] = self._crowd(before)
            self._clear(before, step)
        step.cpu_s = self._spent_s(step, used_s)
        self.watcher.drain(step, 0.0)
        alive = step.status is None
        status = step.reported
        if not alive:
            status = os.waitstatus_to_exitcode(step.status or 0)
            self._clear({other.name for other in self.sessions.values() if other is not live}, step)
            self._forget(live)
        return {**self._done(step, started), **extra, "status": status, "session": alive}

    def end(self, order: dict[str, Any]) -> dict[str, Any]:
        live = self.sessions.get(order["session"])
        if live:
            for process in processes.listed(self.proc):
                if process.session == live.pid:
                    processes.send(process.pid, signal.SIGKILL)
            self._forget(live)
        return {"ok": True}

    def _step(self, order: dict[str, Any], started: float, out: int, err: int) -> Step:
        watched = None if self.spec["memory_cgroup"] else self.spec["memory_bytes"]
        killed, self.killed_between = self.killed_between, 0
        step = Step(out, err, started + order["time_s"], order["kill_at"], watched, memory_kills=killed)
        step.time_s, step.patience_s, step.allowed_cpu_s = order["time_s"], order["patience_s"], order["cpu_s"]
        return step

    def _done(self, step: Step, started: float) -> dict[str, Any]:
        return {
            "reason": step.reason,
            "produced": step.produced,
            "cpu_s": step.cpu_s,
            "wall_s": time.monotonic() - started,
            "memory_kills": step.memory_kills,
        }

    def _measured(self, step: Step) -> dict[str, Any]:
        """Starvation measurements, taken before processes are killed; all of them if a limit was exceeded."""
        assert step.meter
        measured = step.meter.measurements()
        return measured if step.reason else {"waited_s": measured["waited_s"]}

    def _clear(self, spared: set[tuple[int, int]], step: Step) -> None:
        processes.kill_except(self.proc, spared, lambda ended: self.watcher.record_exits(step, ended))

    def _of_step(self, before: set[tuple[int, int]]) -> list[processes.Process]:
        return [p for p in processes.listed(self.proc) if p.name not in before]

    def _crowd(self, before: set[tuple[int, int]]) -> int:
        return len(self._of_step(before))

    def _name(self, pid: int) -> tuple[int, int]:
        return next((p.name for p in processes.listed(self.proc) if p.pid == pid), (pid, 0))

    def _spent_s(self, step: Step, used_s: float) -> float:
        """CPU seconds of all processes, ended ones included, since their total was ``used_s``."""
        ended_s = sum(cpu_s for _, cpu_s in step.dead) + (0.0 if step.status is None else step.cpu_s)
        return max(0.0, processes.used_s(self.proc) + ended_s - used_s)

    def _forget(self, live: SessionProcess) -> None:
        live.close()
        del self.sessions[live.pid]
        self.ended.pop(live.pid, None)

    def _waited(self, pid: int) -> int:
        if pid in self.ended:
            return os.waitstatus_to_exitcode(self.ended.pop(pid)[0])
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
