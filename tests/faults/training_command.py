"""``jobs/pretrain.py`` in processes that one other has imported everything for: a run takes seconds, without Ray.

The driver is the job itself (lock, lease, preparation, exit code). What Ray does between it and the training loop is
done by a controller: it starts a worker, and another one where a worker fails or falls silent, by the project's own
rule (``run.failures``). As in a partition, a silent worker is not ended. All processes have the clock of their command.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing as mp
import os
import pickle
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

_PRELOADED = ("lemur_ray.train.on_ray.trainer", "lemur_ray.train.loop", "lemur_ray.corpus.build", "gcsfs")
_ALIVE_EVERY_S, _SILENT_S = 0.2, 3.0
"""Between two signs of life of a worker, and after how many seconds without one it counts as lost if it is stopped. One
that compiles on a busy machine is silent for longer, and is not replaced: twelve in a row were."""


@dataclass(frozen=True)
class Settings:
    """How a command runs."""

    argv: tuple[str, ...]
    folder: Path
    """For its output and the list of its processes."""
    environment: Mapping[str, str]
    clock_s: float = 0.0
    """How far its wall clock is ahead."""
    beat_s: float = 0.25
    """Seconds between two renewals of the lease."""
    linger_s: float = 0.0
    """How long workers go on after their driver was lost."""


class Command:
    """A command that was started, without Ray."""

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.folder
        self.folder.mkdir(parents=True)
        context = mp.get_context("forkserver")
        context.set_forkserver_preload([__name__, *_PRELOADED])
        self.process: Any = context.Process(target=_drive, args=(settings,))
        self.process.start()

    def pids(self, role: str) -> list[int]:
        """Processes of a role, or of the whole host; of workers the newest."""
        try:
            lines = (self.folder / "processes").read_text().splitlines()
        except FileNotFoundError:
            return []
        pids = [int(line.split()[1]) for line in lines if role in ("host", line.split()[0])]
        return pids[-1:] if role == "worker" else pids

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self.process.exitcode  # type: ignore[no-any-return]

    def output(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    def end(self) -> None:
        """End every process of it that still runs."""
        self.process.kill()
        send(signal.SIGKILL, self.pids("host"))
        self.process.join()


def send(number: int, pids: list[int]) -> None:
    """Send a signal to processes, some of which may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _note(settings: Settings, role: str, pid: int) -> None:
    with (settings.folder / "processes").open("a") as file:
        file.write(f"{role} {pid}\n")


def _drive(settings: Settings) -> None:
    output = os.open(settings.folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(settings.environment)
    real = time.time
    time.time = lambda: real() + settings.clock_s
    _note(settings, "driver", os.getpid())
    ours, theirs = mp.Pipe()
    if (pid := os.fork()) == 0:  # before any thread: the controller forks workers
        ours.close()
        _control(settings, theirs)
        os._exit(0)
    theirs.close()
    _note(settings, "controller", pid)
    sys.path.insert(0, str(ROOT / "jobs"))
    from lemur_ray.cluster import connection
    from lemur_ray.train.on_ray import trainer

    connection.connect = lambda *_, **__: ""  # type: ignore[assignment]
    trainer.hosts_without_storage = lambda run: []  # type: ignore[assignment]
    trainer.lease = partial(trainer.lease, beat_s=settings.beat_s)
    trainer._fit = partial(_fit, ours)  # type: ignore[assignment]
    code = importlib.import_module("pretrain").main(settings.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of bucket clients may hang in a partition


def _fit(controller: Connection, run: Any, shapes: Any, feed: Any, fence: Any) -> dict[str, Any]:
    """In the place of ``trainer._fit``."""
    from lemur_ray.train.run.failures import WorkersLost
    from lemur_ray.train.run.folder import read_object

    try:
        controller.send((run, fence.for_group()))
        stopped = controller.recv()
    except (EOFError, OSError) as error:
        raise WorkersLost("what starts the workers failed; run the same command again to resume") from error
    if stopped is not None:
        raise stopped
    return read_object(f"{run.out}/result.json")


def _control(settings: Settings, driver: Connection) -> None:
    from ray.train.v2.api.exceptions import ControllerError

    from lemur_ray.train.on_ray.restarts import Restarts
    from lemur_ray.train.run.failures import WorkersLost

    try:
        run, fence = driver.recv()
    except EOFError:
        return
    newest = [0]
    restarts, workers = Restarts(lambda: newest[0]), dict[int, Connection]()
    for _ in range(12):
        worker, theirs = mp.Pipe()
        if (pid := os.fork()) == 0:
            driver.close()
            worker.close()
            _work(run, fence, theirs, settings.linger_s)
        theirs.close()
        _note(settings, "worker", pid)
        workers[pid] = worker  # stays open: a worker that was silent does not notice that it is given up
        ended, error, newest[0] = _watch(pid, worker, driver)
        if ended == "driver":
            time.sleep(settings.linger_s)
            break
        try:
            if ended == "worker":
                restarts.after_exception(None, {0: error})
                fence = _in_child(_next_fence, fence)
                continue
            driver.send(None)
        except ControllerError as stop:
            driver.send(stop.controller_failure)
        except Exception as stop:
            driver.send(stop)
        break
    else:
        driver.send(WorkersLost("the workers failed 12 times; run the same command again to resume"))
    for pid in workers:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _next_fence(fence: Any) -> Any:
    return type(fence)(fence.out, after=fence)


def _in_child(function: Any, *arguments: Any) -> Any:
    """Result of a function that uses a bucket, whose clients have threads, in a process that forks."""
    ours, theirs = mp.Pipe()
    if (pid := os.fork()) == 0:
        try:
            theirs.send(function(*arguments))
        except Exception as error:
            theirs.send(_portable(error))
        os._exit(0)
    result = ours.recv()
    os.waitpid(pid, 0)
    if isinstance(result, Exception):
        raise result
    return result


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by SIGSTOP."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _watch(pid: int, worker: Connection, driver: Connection) -> tuple[str, Exception, int]:
    """Wait for the end of a worker or the driver: (who ended, the worker's error, its newest commit)."""
    lost = RuntimeError("the worker process has died")
    while True:
        ready, _, _ = select.select([worker, driver], [], [], _SILENT_S)
        if driver in ready:
            return "driver", lost, 0
        if worker not in ready:
            if not is_stopped(pid):
                continue
            return "worker", RuntimeError("the node has died: the worker is silent"), 0
        try:
            message = worker.recv()
        except (EOFError, OSError):
            return "worker", lost, 0
        if message is not None:
            return message


def _work(run: Any, fence: Any, controller: Connection, linger_s: float) -> None:
    """A worker process; never returns."""
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(_ALIVE_EVERY_S):
            try:
                controller.send(None)
            except OSError:  # Ray ends the workers of a controller that is gone
                time.sleep(linger_s)
                os._exit(1)

    thread = threading.Thread(target=live)
    thread.start()
    came: tuple[str, Exception, int] = ("done", RuntimeError(), 0)
    try:
        from lemur_ray.corpus.manifest import read_manifest
        from lemur_ray.plan.fetch import iterate
        from lemur_ray.plan.plan import plan_for
        from lemur_ray.train import loop
        from lemur_ray.train.on_ray.trainer import newest_step

        plan = plan_for(run.recipe, read_manifest(run.corpus))
        rows = partial(iterate, plan, run.corpus, rows_per_step=run.recipe.train.rows_per_step)
        loop.train(run, rows, loop.Worker(log=partial(print, flush=True), fence=fence))
    except Exception as error:
        newest = 0
        with contextlib.suppress(OSError):
            newest = newest_step(run.checkpoints)
        came = ("worker", _portable(error), newest)
    ended.set()
    thread.join()
    with contextlib.suppress(OSError):
        controller.send(came)
    sys.stdout.flush()
    os._exit(0)


def _portable(error: Exception) -> Exception:
    with contextlib.suppress(Exception):
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def ended_after(commands: list[Command]) -> Iterator[list[Command]]:
    """Context after which all these commands are ended."""
    try:
        yield commands
    finally:
        for command in commands:
            command.end()
