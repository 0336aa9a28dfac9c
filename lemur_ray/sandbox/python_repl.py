"""A persistent Python session in a sandbox that prints what IPython would; see ``inside/payload/repl.py``.

A cell that exceeds its time gets a TimeoutError raised in it, so the session and its variables survive. A cell that
suppresses the error is killed and the session restarted, which the text states."""

import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lemur_ray.sandbox.inside.payload.repl import LATE
from lemur_ray.sandbox.programs import framed, start
from lemur_ray.sandbox.sandbox import ExecResult, Sandbox, SandboxDestroyed, Session

REPL = ("ipython_text", "channel", "harness_functions", "repl")
"""Modules of ``inside/payload`` that form the loop over cells."""
HARD_S = 2.0
"""Seconds after a cell's time limit at which the process is killed."""
LOST = "The Python session was ended and started again: its variables are lost."


@dataclass(frozen=True)
class CellResult:
    """Result of a cell. ``text``: all that IPython would print; ``raised``: whether it ended with an exception;
    ``restarted``: whether the session ended with this cell; ``result``: the sandbox's."""

    text: str
    raised: bool
    timed_out: bool
    restarted: bool
    result: ExecResult


class PythonSession:
    """A Python process in ``sandbox`` whose variables persist from cell to cell; it starts with the first one.
    ``packages``: folders inside the sandbox for PYTHONPATH."""

    def __init__(self, sandbox: Sandbox, *, packages: tuple[str, ...] = ()) -> None:
        self._sandbox = sandbox
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._env = {**threads, "MPLBACKEND": "Agg", "PYTHONPATH": ":".join(packages)}
        self._session: Session | None = None
        self._cells = 0

    def run(self, code: str, time_s: float = 30.0) -> str:
        """Run a cell for at most ``time_s`` seconds and return what IPython would print, errors and notes on limits
        included. Raises SandboxDestroyed if the sandbox is gone or can no longer run Python, RuntimeError if Python
        does not start."""
        return self.cell(code, time_s).text

    def cell(self, code: str, time_s: float = 30.0) -> CellResult:
        """Run the code of a cell. After ``time_s`` seconds TimeoutError is raised in it; 2 s later the process is
        killed. Raises SandboxDestroyed if the sandbox is gone, or earlier cells have left it unable to run Python;
        RuntimeError if Python does not start in a fresh one."""
        message = framed({"code": code.encode("utf-8", "replace").decode(), "time_s": time_s})
        limits = replace(self._sandbox.spec.limits, time_s=time_s + HARD_S)
        session = self._ensure_started()
        self._cells += 1
        result = session.step(message, limits)
        restarted = result.session_ended
        if restarted or not result.alive:
            self._session = None
        text = result.out + result.err
        notes = [*result.notes, *([LOST] if restarted else [])]
        if notes:
            text += ("\n" if text and not text.endswith("\n") else "") + "\n".join(notes) + "\n"
        raised = result.exit_code != 0
        timed_out = result.timed_out or result.exit_code == LATE
        return CellResult(text, raised, timed_out, restarted, result)

    def reset(self) -> None:
        """End the process; the next cell starts a new one without variables. Idempotent."""
        if self._session:
            self._session.close()
            self._session = None

    close = reset

    def _ensure_started(self) -> Session:
        if self._session is None or not self._session.alive:
            limits = replace(self._sandbox.spec.limits, time_s=30.0)
            session, loaded = start(self._sandbox, REPL, limits, env=self._env)
            if loaded.exit_code != 0:
                output = (loaded.err or loaded.note or loaded.out)[-500:]
                if self._cells and loaded.blame != "infra":
                    raise SandboxDestroyed(f"after its cells no Python starts in the sandbox: {output}", "policy")
                raise RuntimeError(f"no Python session starts in the sandbox: {output}")
            self._session = session
        return self._session


def own_packages() -> Mapping[str, Path]:
    """The installed packages of this interpreter as a mount for ``SandboxSpec.mounts``: {"/opt/packages": site-packages
    folder}. They need a Python of the same version inside. Raises FileNotFoundError if the folder does not exist."""
    folder = Path(sysconfig.get_paths()["purelib"])
    if not folder.is_dir():
        raise FileNotFoundError(f"{sys.executable} has no packages at {folder}")
    return {"/opt/packages": folder}
