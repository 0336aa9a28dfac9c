"""Separates a driver's output: lines of the project go to the terminal, those of Ray and of libraries to a log file.

The log file is in LEMUR_HOME/logs; its path is printed once, before the first message that goes there."""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from lemur_ray.host.home import lemur_home

MAX_LOGS = 20
"""Number of log files that are kept, newest first."""
_LIBRARY_LINE = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\t|[IWEF]\d{4} \d\d:\d\d:\d\d"
    r"|During handling of the above|The above exception was"
    r"|WARNING: All log messages before absl|\*\*\* SIG|PC: @|\s+@ +0x|\S+\.py:\d+: \w*Warning: "
    r"|Reporting training result \d+: |\*{8,}$|\[Compiling module |.*\bfile an? (GitHub )?(issue|bug)\b"
)
"""Beginning of a line of Ray's C++ and Python loggers, of absl, XLA and libtpu, of a stack or a Python warning."""
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|Exception (in thread|ignored in)")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(\([\w.]+\))?(:|$)")
"""Beginning of the last line of a traceback."""
_OF_THE_CLUSTER = re.compile(r"cannot be scheduled|out of memory|OOM|died|insufficient", re.IGNORECASE)
"""Part of a line of a raylet that tells why a job waits or has lost something."""


class OutputFilter:
    """Decides line by line whether output of one process comes from a library. Tracebacks count as such: errors that
    end a job are raised in the driver. ``worker_traceback`` (train.on_ray) prints that of a failed run."""

    def __init__(self) -> None:
        self._in_traceback = self._in_warning = self._last = False

    def is_library_line(self, line: str) -> bool:
        if line.strip():  # an empty line belongs to what is before it
            self._last = self._matches(line)
        return self._last

    def _matches(self, line: str) -> bool:
        if _TRACEBACK.match(line):
            self._in_traceback = True
        elif self._in_traceback and not line.startswith(" "):
            self._in_traceback = False
            return bool(_EXCEPTION.match(line)) or self._matches(line)  # Ray leaves lines out that it printed before
        elif not self._in_traceback:
            continues = self._in_warning and line.startswith(" ")  # a warning quotes its source line
            self._in_warning = bool(_LIBRARY_LINE.match(line)) or continues
            return self._in_warning
        return True


class RayLog(logging.Handler):
    """The log file, as a handler of Ray's loggers; created in ``folder`` with its first message. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self.path = folder / f"ray-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        self._file: TextIO | None = None
        self._writes = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        self.write(self.format(record))

    def write(self, text: str) -> None:
        """Append a line; dropped if the file cannot be written, because a run does not depend on it."""
        with self._writes:
            try:
                if self._file is None:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    _remove_old(self.path.parent)
                    self._file = self.path.open("a", buffering=1)
                    print(f"messages of Ray: {self.path}", file=sys.stderr, flush=True)
                self._file.write(text + "\n")
            except OSError:
                return

    def close(self) -> None:
        """Close the file; ``logging`` does so at the end of the process."""
        with self._writes:
            if self._file is not None:
                self._file.close()
                self._file = None
        super().close()


def _remove_old(folder: Path) -> None:
    logs = sorted(folder.glob("ray-*.log"), key=lambda path: (path.stat().st_mtime, path.name))
    for path in logs[: -MAX_LOGS + 1]:  # not one that a running job still writes
        path.unlink(missing_ok=True)


class WorkerOutput:
    """Replacement for Ray's function ``show`` that prints lines of workers: lines of Ray and of libraries go to
    ``log``, all other lines to ``show``."""

    def __init__(self, show: Callable[..., None], log: RayLog) -> None:
        self.log = log
        self._show = show
        self._filters: dict[tuple[Any, ...], OutputFilter] = {}

    def __call__(self, data: dict[str, Any], *arguments: Any, **keywords: Any) -> None:
        """``data``: message of Ray's log monitor, with ip, pid, is_err, lines and the name of the actor or task."""
        key = (data.get("ip"), data.get("pid"), data.get("is_err"))
        if key[1] == "autoscaler":  # Ray itself selects its lines for people
            self._show(data, *arguments, **keywords)
            return
        output = self._filters.setdefault(key, OutputFilter())
        name = data.get("actor_name") or data.get("task_name") or "process"
        shown: list[str] = []
        for line in data.get("lines", ()):
            of_ray = key[1] in ("raylet", "gcs_server") and not _OF_THE_CLUSTER.search(line)
            if of_ray or output.is_library_line(line):
                self.log.write(f"({name} pid={key[1]}) {line}")
            else:
                shown.append(line)
        if shown:
            self._show({**data, "lines": shown}, *arguments, **keywords)


def redirect_ray_output() -> None:
    """Send messages of Ray's loggers in this process, and library lines of its workers, to a log file. Call after
    ``ray.init``, which sets up the loggers; calling it again adds loggers of modules imported since then."""
    from ray._private import worker

    folder, printer = lemur_home() / "logs", worker.print_worker_logs
    log = printer.log if isinstance(printer, WorkerOutput) else RayLog(folder)
    if log.path.parent != folder:
        log.close()
        log = RayLog(folder)
    for name in list(logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        if name == "ray" or (name.startswith("ray.") and logger.handlers):
            logger.handlers = [*(each for each in logger.handlers if isinstance(each, logging.FileHandler)), log]
    if isinstance(printer, WorkerOutput):
        printer.log = log
    else:
        worker.print_worker_logs = WorkerOutput(printer, log)  # no public hook: log_to_driver is all or nothing
