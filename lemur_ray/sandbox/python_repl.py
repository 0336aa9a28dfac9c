"""A Python that lives from cell to cell and answers as IPython would (``inside/repl.py`` is the part within).

A cell that runs longer than its time gets a TimeoutError raised inside it, so the session and its variables stay; a
cell that does not even let that through is killed, and the session starts anew, which the text says.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lemur_ray.sandbox import inside
from lemur_ray.sandbox.sandbox import ExecResult, Sandbox, Session

# The program comes in on descriptor 9, so nothing of it need lie in any file system of the sandbox. What it imports is
# the system's: folders that the policy writes to are on the path only once all of it is loaded.
START_TEXT = """
import sys
own = [path for path in sys.path if not path]
sys.path[:] = [path for path in sys.path if path]
import os, site
def take(n):
    b = b""
    while len(b) < n: b += os.read(9, n - len(b))
    return b
def load(name):
    import types
    module = types.ModuleType(name)
    exec(compile(take(int.from_bytes(take(4), "big")), f"<lemur {{name}}>", "exec"), module.__dict__)
    return module
*others, last = [load(name) for name in {names}]
sys.path[:0] = own
sys.path += [path for path in [site.getusersitepackages()] if os.path.isdir(path)]
last.serve(*others)
"""
START = START_TEXT.format(names=("look", "repl"))
OPTIONS = ("-u", "-s")
"""Of the interpreter: no file in the policy's home has a say in its start."""
HARD_S = 2.0
"""How long after a cell's own time the process is killed."""
LOST = "The Python session was ended and started again: its variables are lost."


@dataclass(frozen=True)
class CellResult:
    """``text``: what IPython would show, not cut or stripped. ``restarted``: the session ended with this cell."""

    text: str
    raised: bool
    timed_out: bool
    restarted: bool
    result: ExecResult


class PythonSession:
    """A persistent Python in ``sandbox``. ``packages``: folders inside that ``import`` looks into."""

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        python: str = "python3",
        cwd: str = "/work",
        packages: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._sandbox, self._python, self._cwd = sandbox, python, cwd
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        backend = {"MPLBACKEND": "Agg", "PYTHONPATH": ":".join(packages)}
        self._env = {**threads, **backend, **(env or {})}
        self._session: Session | None = None

    def run(self, code: str, time_s: float = 30.0) -> str:
        """What IPython would print for the cell."""
        return self.cell(code, time_s).text

    def cell(self, code: str, time_s: float = 30.0) -> CellResult:
        """Run a cell. SandboxDestroyed where the sandbox is gone already."""
        message = json.dumps({"code": code.encode("utf-8", "replace").decode(), "time_s": time_s}).encode()
        limits = replace(self._sandbox.spec.limits, time_s=time_s + HARD_S)
        result = self._started().step(len(message).to_bytes(4, "big") + message, limits)
        restarted = "session ended" in result.note
        if restarted or not result.alive:
            self._session = None
        text = result.out + result.err
        notes = [part for part in result.note.split("; ") if part and part != "session ended"]
        notes += [LOST] if restarted else []
        if notes:
            text += ("\n" if text and not text.endswith("\n") else "") + "\n".join(notes) + "\n"
        raised = result.exit_code != 0
        late = result.timed_out or (raised and "TimeoutError: Timed out after" in text)
        return CellResult(text, raised, late, restarted, result)

    def reset(self) -> None:
        """Begin anew with the next cell."""
        if self._session:
            self._session.close()
            self._session = None

    close = reset

    def _started(self) -> Session:
        if self._session is None or not self._session.alive:
            session = self._sandbox.session([self._python, *OPTIONS, "-c", START], cwd=self._cwd, env=self._env)
            loaded = session.step(program(), replace(self._sandbox.spec.limits, time_s=30.0))
            if loaded.exit_code != 0:
                raise RuntimeError(
                    f"no Python session starts in the sandbox: {loaded.err or loaded.note or loaded.out}"
                )
            self._session = session
        return self._session


def program() -> bytes:
    """The texts of the session's program, each behind its length."""
    folder = Path(inside.__file__).parent
    texts = [(folder / f"{name}.py").read_bytes() for name in ("look", "repl")]
    return b"".join(len(text).to_bytes(4, "big") + text for text in texts)


def own_packages() -> Mapping[str, Path]:
    """Mounts (``SandboxSpec.mounts``) that show this interpreter's packages inside, at /opt/packages.

    Right where the Python inside is of this version, which bubblewrap's is.
    """
    folder = Path(sysconfig.get_paths()["purelib"])
    if not folder.is_dir():
        raise FileNotFoundError(f"{sys.executable} has no packages at {folder}")
    return {"/opt/packages": folder}
