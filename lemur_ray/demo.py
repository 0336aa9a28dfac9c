"""The whole way once: a private Ray head, and the jobs submitted to it one after another.

Speaks to Ray only through its command line, as a user would: what works here works by hand. Knows nothing of what the
jobs do. Everything it starts ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lemur_ray.home import lemur_home
from lemur_ray.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
HEAD_START_S = 180.0
AGENT_PORTS = (
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "metrics-export-port",
    "runtime-env-agent-port",
)
SERVE_START_S = 300.0


class DemoFailed(Exception):
    """A step of the demo did not end well; the message names the step and what to look at."""


class Head:
    """A Ray head of our own, with its own temp dir, ports and token, and the jobs submitted to it."""

    def __init__(self, env: Mapping[str, str], dashboard_port: int) -> None:
        self.env, self.dashboard = dict(env), f"http://127.0.0.1:{dashboard_port}"
        self._ray = shutil.which("ray", path=os.path.dirname(sys.executable)) or "ray"

    def submit(self, job: str, *args: str, wait: bool = True) -> str:
        """Run a job through ``ray job submit`` and return its id. Raises DemoFailed where it does not end well."""
        job_id = f"{job}-{secrets.token_hex(4)}"
        print(f"\n=== {job} {' '.join(args)}", flush=True)
        started = time.monotonic()
        command = [self._ray, "job", "submit", "--address", self.dashboard, "--submission-id", job_id]
        command += [*(() if wait else ("--no-wait",)), "--", sys.executable, f"jobs/{job}.py", *args]
        status = subprocess.run(command, env=self.env, cwd=ROOT, check=False).returncode
        if status:
            raise DemoFailed(
                f"job {job} ended with status {status}: its output above says why. The same command goes on; a "
                "folder of another program version is left alone: start afresh with LEMUR_HOME=NEW_FOLDER"
            )
        if wait:
            print(f"=== {job}: {time.monotonic() - started:.0f} s", flush=True)
        return job_id

    def takes_jobs(self) -> bool:
        """Whether a job that does nothing runs to its end."""
        command = [self._ray, "job", "submit", "--address", self.dashboard, "--", "true"]
        return subprocess.run(command, env=self.env, cwd=ROOT, check=False, capture_output=True).returncode == 0

    @contextlib.contextmanager
    def served(self, *args: str) -> Iterator[str]:
        """Run jobs/serve.py beside what follows; yields the base URL of the API once the model is warm."""
        port = free_port()
        job_id = self.submit("serve", *args, "--port", str(port), wait=False)
        try:
            wait_for(f"http://127.0.0.1:{port}/ready", "the served model", SERVE_START_S, partial(self._fate, job_id))
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            self.stop(job_id)

    def _fate(self, job_id: str) -> str:
        """Why a job that was not waited for has ended: the end of its output; empty while it runs."""
        token = {"Authorization": f"Bearer {self.env['RAY_AUTH_TOKEN']}"}
        asked = urllib.request.Request(f"{self.dashboard}/api/jobs/{job_id}", headers=token)
        with urllib.request.urlopen(asked, timeout=5) as answer:
            if json.load(answer)["status"] not in ("FAILED", "STOPPED", "SUCCEEDED"):
                return ""
        command = [self._ray, "job", "logs", "--address", self.dashboard, job_id]
        done = subprocess.run(command, env=self.env, cwd=ROOT, check=False, capture_output=True, text=True)
        return f"job {job_id} ended; the end of its output:\n{done.stdout[-3000:]}"

    def stop(self, job_id: str) -> None:
        """Stop a job that was not waited for."""
        command = [self._ray, "job", "stop", "--address", self.dashboard, job_id]
        subprocess.run(command, env=self.env, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def private_head(num_cpus: int = 0) -> Iterator[Head]:
    """Start a Ray head, yield it, and end it with all its processes, whatever happened in between."""
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
        "RAY_JOB_STOP_WAIT_TIME_S": "60",  # a stopped job gives back what it serves; Ray's own 3 s cut that off
        "RAY_worker_niceness": "0",  # Ray's own 15 stalls every job as soon as the machine does anything else
    }
    command = [
        shutil.which("ray", path=os.path.dirname(sys.executable)) or "ray",
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
        _end(process, env["RAY_AUTH_TOKEN"])
        log.close()
        shutil.rmtree(temp, ignore_errors=True)


@dataclass(frozen=True)
class DemoConfig:
    """Corpus to report on a Ray head of our own, under $LEMUR_HOME; the same command again resumes."""

    seed: int = 0
    """Seed of the weights and of the order of rows, in pretraining and tuning. Runs of other seeds than 0 are kept
    beside the first: runs/nano-seed1, runs/nano-chat-seed1."""
    games: int = 120
    """Held-out ALFWorld games played by the tuned model and the scripted baselines."""
    untrained_games: int = 24
    """Held-out games played by the untrained model, which uses all 50 turns of each."""
    num_cpus: int = 0
    """CPUs the head offers. 0: all of the machine."""


def run(config: DemoConfig) -> Path:
    """Run every job once under ``$LEMUR_HOME`` and return the path of the report. Raises DemoFailed."""
    started = time.monotonic()
    seeds = ("--train.seed", str(config.seed), "--data.seed", str(config.seed))
    suffix = f"-seed{config.seed}" if config.seed else ""
    base, chat = f"runs/nano{suffix}", f"nano-chat{suffix}"
    with private_head(config.num_cpus) as head:
        head.submit("build_corpus")
        head.submit("pretrain", "nano", *seeds, "--out", base)
        head.submit("instruct", "nano-chat", *seeds, "--init-from", base, "--out", f"runs/{chat}")
        with head.served("--model", chat) as url:
            games = ("--benchmark", "alfworld/text", "--prompt", "brief")
            tuned = ("--policy", f"openai:{url}", "--policy-model", chat)
            head.submit("agent_eval", *games, *tuned, "--limit", str(config.games))
            head.submit("agent_eval", "--benchmark", "intercode/sql", "--data", "", *tuned)
        for baseline in ("random", "expert"):
            # No model, no waiting: threads of one process are faster there than Ray actors are started.
            head.submit("agent_eval", *games, "--policy", baseline, "--limit", str(config.games), "--actors", "0")
        untrained = ("--policy", f"checkpoint:random:nano@{chat}", "--limit", str(config.untrained_games))
        head.submit("agent_eval", *games, *untrained)
        head.submit("report")
    report = lemur_home() / "report" / "index.html"
    print(f"\n{(time.monotonic() - started) / 60:.1f} minutes in all. Open {report}", flush=True)
    return report


def wait_for(url: str, what: str, timeout_s: float, fate: Callable[[], str]) -> None:
    """Poll a URL until it answers 200. Raises DemoFailed after ``timeout_s``, or once ``fate`` says why."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        with contextlib.suppress(OSError):
            if why := fate():
                raise DemoFailed(why)
        if time.monotonic() > deadline:
            raise DemoFailed(f"{what} did not answer at {url} within {timeout_s:.0f} s")
        time.sleep(0.5)


def _wait_until_up(process: subprocess.Popen[bytes], head: Head, log: Path) -> None:
    """Until an empty job runs: the dashboard answers well before its agent takes jobs."""
    deadline = time.monotonic() + HEAD_START_S
    while not head.takes_jobs():
        if process.poll() is not None or time.monotonic() > deadline:
            raise DemoFailed(f"the Ray head did not start; its output:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(1.0)


def _end(process: subprocess.Popen[bytes], token: str) -> None:
    """End the head, then by id what is left of its session and whatever carries its token (drivers, workers)."""
    for sig, patience_s in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(sig)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            break
    for pid in {*_carrying(token), *_in_session(process.pid)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _in_session(leader: int) -> Sequence[int]:
    """Processes of the session that the head led (Linux): its agents' names overwrite their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            session = path.read_text().rpartition(")")[2].split()[3]
            if int(session) == leader:
                found.append(int(path.parent.name))
    return found


def _carrying(token: str) -> Sequence[int]:
    """Processes, this one left out, that inherited the head's token (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if token.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found
