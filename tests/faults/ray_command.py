"""``jobs/pretrain.py`` on a Ray cluster of its own, with the roles of ``training_command``; nothing is replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.e2e.processes import command_line, descendants
from tests.faults.training_command import Settings
from tests.train.test_resume import Head

_ACTORS = {"controller": "ray::TrainController", "worker": "ray::RayTrainWorker"}
"""Role -> beginning of the command line of Ray's process."""


class RayCommand:
    """A command that was started on a host of its own: a Ray head and a driver. Clocks are those of the machine."""

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.folder
        self.folder.mkdir(parents=True)
        self.head = Head()
        environment = {**os.environ, **settings.environment, "RAY_ADDRESS": self.head.address}
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.train.on_ray.frozen_processes", "driver", "0", *settings.argv],
                env=environment, stdout=log, stderr=log, cwd=ROOT,
            )  # fmt: skip

    @property
    def _log(self) -> Path:
        return self.folder / "output.txt"

    def pids(self, role: str) -> list[int]:
        """Processes of a role that are there, or of the whole host; of workers the newest."""
        if role == "driver":
            return [self.process.pid]
        host = self.head.processes()
        if role == "host":
            return sorted({self.process.pid, *descendants(self.process.pid), *host})
        pids = [pid for pid in host if command_line(pid).startswith(_ACTORS[role])]
        return pids[-1:] if role == "worker" else pids

    def exit_code(self) -> int | None:
        """None while it runs. A host that was killed as a whole has no driver either."""
        return self.process.poll()

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self) -> None:
        """End every process of it that still runs."""
        self.process.kill()
        self.process.wait()
        self.head.kill()
