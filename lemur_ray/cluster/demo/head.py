"""A private Ray head and the jobs submitted to it.

Uses Ray only through its command line, so that every step can be repeated by hand. All processes end with the head."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from lemur_ray.host.commands import scripts_folder
from lemur_ray.host.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
RAY = shutil.which("ray", path=os.path.dirname(sys.executable)) or "ray"
LineCallback = Callable[[str], None]
"""Receives each line of a job's output."""
HEAD_START_S = 180.0
AGENT_PORTS = (
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "metrics-export-port",
    "runtime-env-agent-port",
)
SERVE_START_S = 300.0


class DemoFailed(Exception):
    """Raised if the demo cannot go on; the message says why. ``StageRunner`` adds the stage and the log to read."""


class Head:
    """A running Ray head of the demo. ``env``: environment of its clients, with the token; jobs go to its dashboard."""

    def __init__(self, env: Mapping[str, str], dashboard_port: int) -> None:
        self.env, self.dashboard = dict(env), f"http://127.0.0.1:{dashboard_port}"
        self._ray = RAY

    def submit(self, job: str, *args: str, on_line: LineCallback = print) -> None:
        """Run ``jobs/JOB.py`` with ``args`` on the head and wait for its end. ``on_line``: called with each line of
        output. Raises DemoFailed if it fails."""
        self._submit(job, args, (), on_line)

    def _submit(self, job: str, args: Sequence[str], options: Sequence[str], on_line: LineCallback) -> str:
        job_id = f"{job}-{secrets.token_hex(4)}"
        command = [self._ray, "job", "submit", "--address", self.dashboard, "--submission-id", job_id]
        status = run_command(
            [*command, *options, "--", sys.executable, str(scripts_folder() / f"{job}.py"), *args], self.env, on_line
        )
        if status:
            raise DemoFailed(f"jobs/{job}.py {' '.join(args)} ended with status {status}")
        return job_id

    def takes_jobs(self) -> bool:
        """Whether the head accepts jobs: submits one that does nothing and waits for its end."""
        return self._job("submit", "--", "true").returncode == 0

    @contextlib.contextmanager
    def served(self, *args: str, on_line: LineCallback = print) -> Iterator[str]:
        """Run jobs/serve.py during the block; yields the base URL of the API once the model is warm. Raises DemoFailed
        if it does not become warm."""
        port = free_port()
        job_id = self._submit("serve", (*args, "--port", str(port)), ("--no-wait",), on_line)
        try:
            wait_for(
                f"http://127.0.0.1:{port}/ready", "the served model", SERVE_START_S, partial(self._failure, job_id)
            )
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            for line in self._job("logs", job_id).stdout.splitlines():
                on_line(line)
            self.stop(job_id)

    def _failure(self, job_id: str) -> str:
        """The end of a background job's output once it has ended; empty while it runs."""
        token = {"Authorization": f"Bearer {self.env['RAY_AUTH_TOKEN']}"}
        request = urllib.request.Request(f"{self.dashboard}/api/jobs/{job_id}", headers=token)
        with urllib.request.urlopen(request, timeout=5) as answer:
            if json.load(answer)["status"] not in ("FAILED", "STOPPED", "SUCCEEDED"):
                return ""
        return f"job {job_id} ended; the end of its output:\n{self._job('logs', job_id).stdout[-3000:]}"

    def stop(self, job_id: str) -> None:
        """Stop a background job by its id; errors are ignored."""
        self._job("stop", job_id)

    def _job(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [self._ray, "job", verb, "--address", self.dashboard, *words]
        return subprocess.run(command, env=self.env, cwd=ROOT, capture_output=True, text=True, errors="replace")


def run_command(command: Sequence[str], env: Mapping[str, str], on_line: LineCallback) -> int:
    """Run a command with the environment ``env`` in the repository's folder, passing each line of its output (both
    streams) to ``on_line``. Returns its exit status."""
    process = subprocess.Popen(
        command, env=dict(env), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            on_line(line.rstrip("\n"))
        return process.wait()
    finally:
        process.kill()  # does nothing to one that has ended
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def private_head(num_cpus: int = 0) -> Iterator[Head]:
    """Context manager: start a Ray head with ports, token and temporary folder of its own, yield it once it accepts
    jobs, and end its processes on exit. ``num_cpus`` 0: all of this machine. Raises DemoFailed if it does not start."""
    # Short, because unix socket paths end at 107 bytes.
    temp = tempfile.mkdtemp(prefix="lr-", dir="/tmp" if os.path.isdir("/tmp") else None)
    port, dashboard_port, client_port = free_port(), free_port(), free_port()
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_TMPDIR": temp,
        "RAY_JOB_STOP_WAIT_TIME_S": "60",  # a stopped job shuts its server down; Ray's default of 3 s is too short
        "RAY_worker_niceness": "0",  # Ray's own 15 stalls every job as soon as the machine does anything else
    }
    command = [
        RAY,
        *("start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--temp-dir={temp}", f"--port={port}"),
        *("--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard_port}"),
        f"--ray-client-server-port={client_port}",
        *((f"--num-cpus={num_cpus}",) if num_cpus else ()),
        f"--object-store-memory={512 * 2**20}",
        # The agents' default ports belong to the first Ray of a machine, and an agent without its port takes no jobs.
        *(f"--{name}={free_port()}" for name in AGENT_PORTS),
    ]
    log = open(Path(temp) / "head.log", "wb")  # noqa: SIM115 (lives as long as the process)
    process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        head = Head(env, dashboard_port)
        _wait_until_up(process, head, Path(temp) / "head.log")
        yield head
    finally:
        end_head(process, env["RAY_AUTH_TOKEN"])
        log.close()
        shutil.rmtree(temp, ignore_errors=True)


def wait_for(url: str, what: str, timeout_s: float, failure: Callable[[], str]) -> None:
    """Poll ``url`` until it answers with status 200. ``what``: its name in errors. Raises DemoFailed after
    ``timeout_s`` seconds, or once ``failure()`` returns a reason."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        with contextlib.suppress(OSError):
            if why := failure():
                raise DemoFailed(why)
        if time.monotonic() > deadline:
            raise DemoFailed(f"{what} did not answer at {url} within {timeout_s:.0f} s")
        time.sleep(0.5)


def _wait_until_up(process: subprocess.Popen[bytes], head: Head, log: Path) -> None:
    """Wait until an empty job runs; the dashboard answers well before its agent accepts jobs."""
    deadline = time.monotonic() + HEAD_START_S
    while not head.takes_jobs():
        if process.poll() is not None or time.monotonic() > deadline:
            raise DemoFailed(f"the Ray head did not start; its output:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(1.0)


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_head(process: subprocess.Popen[bytes], token: str) -> None:
    """End the head, then kill what is left of its session and every process with its token (drivers, workers)."""
    with _signals_ignored():
        for sig, patience_s in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(sig)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
                break
        for pid in _left_over(process.pid, token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore further signals, since a second Ctrl-C would interrupt the cleanup. No effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _left_over(leader: int, token: str) -> list[int]:
    """Other processes of the head's session, or with its token in their environment (Linux).
    Some agents' title overwrites their environment, and drivers and workers have sessions of their own."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            session = (folder / "stat").read_text().rpartition(")")[2].split()[3]
            if int(session) == leader or token.encode() in (folder / "environ").read_bytes():
                pids.append(int(folder.name))
    return [pid for pid in pids if pid != os.getpid()]
